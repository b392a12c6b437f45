"""The science: what a round is, how a node trains, what a model is. No Ray, no files, no processes."""
