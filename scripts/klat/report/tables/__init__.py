"""Reports for other programs: CSV, JSON, Markdown."""
