"""The command line: what users type and see. Imported only by the entry point."""
