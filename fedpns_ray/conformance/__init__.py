"""Invariants that every strategy must keep, built-in or user-defined, checked on populations of a few nodes."""
