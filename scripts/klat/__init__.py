"""The front of klat: plans and runs sessions, and reads what they recorded."""

__version__ = "0.1.0"
