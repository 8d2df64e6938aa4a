"""What every other package uses: errors, files, processes, streams. Knows nothing of records."""
