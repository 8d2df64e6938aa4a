"""Which instructions a sample of the lab consists of: the plugin's trace, read by function."""
