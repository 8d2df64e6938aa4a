"""Counts the instructions of the lab's samples by function, from the plugin's trace."""
