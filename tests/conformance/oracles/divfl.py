"""The greedy search of melodi-lab/divfl (flearn/trainers/fedbase.py), told again in plain loops."""

import math


def distance(a, b, squared=False):
    total = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return total if squared else math.sqrt(total)


def uncovered(rows, chosen, squared=False):
    """G(S)."""
    return sum(min(distance(row, rows[i], squared) for i in chosen) for row in rows)


def released_greedy(rng, rows, size, looked, squared):
    left, chosen = list(range(len(rows))), []
    for _ in range(min(size, len(rows))):
        look = left if looked >= len(left) else [int(k) for k in rng.choice(left, looked, replace=False)]
        best = None
        for candidate in look:
            value = uncovered(rows, [*chosen, candidate], squared)
            if best is None or value < best[0] * (1 - 1e-7):
                best = (value, candidate)
        chosen.append(best[1])
        left.remove(best[1])
    return chosen
