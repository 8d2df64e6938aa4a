"""Reads and checks what is on disk. The only reader of a record."""
