"""What people type and see: the command line, progress, live views. Imported by nobody but the entry point."""
