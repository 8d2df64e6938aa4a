"""Schedules, runs and resumes sessions on this machine."""
