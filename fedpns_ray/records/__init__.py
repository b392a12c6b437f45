"""The on-disk format of runs: folders, storage, results."""
