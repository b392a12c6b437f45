"""What every strategy must keep, whoever wrote it: invariants, checked on populations of a few nodes."""
