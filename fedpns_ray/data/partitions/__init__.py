"""Who holds what: one partition per file."""
