"""Checks this machine or a cluster: what is there, what is missing, what to do about it."""
