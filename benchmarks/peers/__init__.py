"""Other engines, each in an environment of its own: the same task, written as their own documentation writes it."""
