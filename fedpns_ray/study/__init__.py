"""Studies: Ray Tune over whole experiments. One trial is one experiment with one seed."""
