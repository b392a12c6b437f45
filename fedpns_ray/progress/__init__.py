"""Progress of runs and studies, in terminals and notebooks."""
