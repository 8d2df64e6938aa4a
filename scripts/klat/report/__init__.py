"""Prints, plots and exports what was measured. Computes nothing."""
