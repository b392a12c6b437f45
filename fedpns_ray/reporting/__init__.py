"""Pictures and tables of what was run. Reads folders and records, never a running process."""
