"""The science: what a round is, how a node trains, what a model is. Imports no Ray, writes no file, starts no process."""
