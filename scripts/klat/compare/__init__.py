"""One dataset of runs by unit; conditions, matching and verdicts; trends; planning."""
