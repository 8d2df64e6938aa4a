"""A Document in each of its forms. Nothing here knows what a kernel is."""
