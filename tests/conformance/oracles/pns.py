"""The released rule of FedPNS (models/func.py of its repository), stated with dictionaries and loops."""


def released_probabilities(count, history, alpha):
    """p of every node after these rounds, each given as (drawn nodes, labelled nodes)."""
    p = {node: 1 / count for node in range(count)}
    drawn_times, labelled_times = dict.fromkeys(p, 0), dict.fromkeys(p, 0)
    for drawn, labelled in history:
        for node in drawn:
            drawn_times[node] += 1
        for node in labelled:
            labelled_times[node] += 1
        taken = 0.0
        for node in labelled:
            factor = (labelled_times[node] / drawn_times[node] + 0.7) ** alpha
            change = p[node] * (factor if factor < 1 else 1)
            taken += change
            p[node] -= change
        others = [node for node in p if node not in labelled]
        for node in others:
            p[node] += taken / len(others)
    return [p[node] for node in range(count)]
