"""Official files, one family per file: how they are found, verified by what they contain, and read."""
