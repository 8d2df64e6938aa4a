"""Explains slow samples on a real machine: traces each one with the kernel's tracing, and splits its time
by cause."""
