"""Algorithm 1 of SCAFFOLD with option II: the control variates alone, from movements that are given."""


def option_two(count, n, lr, rounds):
    """(c, c_i of every node) after these rounds, each given as (drawn nodes, their movements y - x, their steps K)."""
    c, own = [0.0] * n, [[0.0] * n for _ in range(count)]
    for drawn, moves, steps in rounds:
        change = [0.0] * n
        for node, move, k in zip(drawn, moves, steps, strict=True):
            new = [own[node][j] - c[j] + (-move[j]) / (k * lr) for j in range(n)]
            for j in range(n):
                change[j] += new[j] - own[node][j]
            own[node] = new
        c = [c[j] + change[j] / count for j in range(n)]
    return c, own
