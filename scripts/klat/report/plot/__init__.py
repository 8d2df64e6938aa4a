"""Reports as figures, drawn by gnuplot."""
