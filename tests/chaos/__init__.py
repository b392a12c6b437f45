"""Chaos: real faults at random moments of real runs and studies, and what became of them.

`make chaos` injects 200 of them; a short selection is part of the tests.
"""
