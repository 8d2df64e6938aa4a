"""Explains slow samples on a real machine: the kernel's trace of a sample, and who took its time."""
