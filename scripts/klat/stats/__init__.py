"""What follows from runs and boots: estimates, intervals, tests, power. Pure functions over arrays;
no files, no printing. Every formula names where it comes from."""
