"""Speed as ratios measured side by side, and the comparison of bits between commits."""
