"""Estimates, intervals, tests and power from runs and boots. Pure functions over arrays: no files,
no printing. Every formula names its source."""
