"""Proof that every strategy is the published one.

`fedpns_ray/strategies/<file>.py` has its proof in `test_<file>.py`: cases worked out by hand from the paper's
equations, with source and number of the equation; and, where code is public or the rule can be stated naively, an
oracle written separately (plain loops, no code shared with the strategy), compared on hundreds of seeded cases.
`DIFFERENCES` lists every deliberate difference from the released code, for the documentation to quote.

Tests take no fixtures, and import the strategy's names from its module at the top of the file: `mutation.py` puts a
mutated module in its place and calls them.
"""
