"""What this machine is, and what on it would spoil a measurement."""
