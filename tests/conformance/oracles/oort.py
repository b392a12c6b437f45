"""The released rule of Oort (oort/oort.py of its repository), stated with lists: the utility of nodes seen before."""

import math


def utilities(rewards, seen_in, durations, now, preferred, penalty, lowest=0.999):
    """`lowest`: the factor of the smallest reward, which the released code takes as 0.999."""
    ordered = sorted(rewards)
    clip = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
    low, high = lowest * ordered[0], ordered[-1]
    found = []
    for reward, last, duration in zip(rewards, seen_in, durations, strict=True):
        score = (min(reward, clip) - low) / (high - low) + math.sqrt(0.1 * math.log(now) / last)
        if duration > preferred:
            score *= (preferred / duration) ** penalty
        found.append(score)
    return found


def percentile(durations, percent):
    """T: the preferred duration."""
    ordered = sorted(durations)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]
