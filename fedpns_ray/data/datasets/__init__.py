"""What is learned: one data set per file."""
