"""Boots kernels in QEMU, runs the suite in each guest and brings the records out."""
