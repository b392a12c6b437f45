"""Mutants that no test can kill, by file and as `line | before → after`, each with the reason."""
# ruff: noqa: E501

LENGTH = "a common length of the global gradient changes no angle"
ROUNDING = "differs by rounding only"
START = "the bisection starts elsewhere and ends at the same lambda"
NOTHING = "a factor of a_i = 0"
SURPLUS = "an entry more, which nobody reads"
REDUNDANT = "int(0.95 n) never reaches n"

CONVEX = "the best is never below the current one, and equal only if all tie, which the other condition sees"
LOOP = "while len(kept) > max(1.0, floor + 1e-9):"
TIES = "if exact and rounding and (abs(best - current) <= rounding or len(contenders) > 1):"
SHARE = "shares = np.divide(updates.sizes / updates.sizes.sum(), p, out=np.zeros(len(p)), where=p > 0)"
CAP = "if (m - certain) * norms[ascending[size - 1]] <= sums[size - 1]:"

ANGLES = 'together = np.einsum("i,ik->k", updates.sizes / updates.sizes.sum(), updates.of_parameters, dtype=np.float64)'

UNKNOWN = "(share * np.where(known, samples, 0.0)).sum(axis=0), total, out=np.zeros_like(total), where=total > 0"
WEIGHTS = "p = self._nodes.sizes / self._nodes.sizes.sum()"
AFTER = "after = t > 1 and self.samples(t - 1)"
CHUNKS = "sums of other pieces differ by rounding only"
FACTOR = "a common factor of all scores"
AT_100 = "100 / 100 = 200 / (100 + 100)"

EQUIVALENT: dict[str, dict[str, str]] = {
    "afl": {
        "active = by_probability(rng, p, int((1 - self.alpha3) * size + 1e-9)) | 1e-09 → 2e-09": ROUNDING,
        'kept[np.argsort(values, kind="stable")[: int(alpha1 * len(values) + 1e-9)]] = False | 1e-09 → 2e-09': ROUNDING,
    },
    "divfl": {
        "EVERYONE = 2**40 | 2 → 3": "both are more than any population",
        "EVERYONE = 2**40 | 40 → 41": "both are more than any population",
        "ROUNDING = 1e-9 | 1e-09 → 2e-09": ROUNDING,
        "if len(updates) <= self._nodes.per_round: | len(updates) <= self._nodes.per_round → len(updates) < self._nodes.per_round": "of as many as are aggregated, all are picked",
    },
    "fedcor": {
        "return round <= self.warmup or (round - self.warmup) % self.fit_every == 0 | round <= self.warmup → round < self.warmup": "0 rounds after the warm-up are a multiple of fit_every",
        f"{AFTER} | t > 1 → t >= 1": "round 1 is in the warm-up: all are asked, and the draw is uniform",
        f"{WEIGHTS} | {WEIGHTS[4:]} → {WEIGHTS[4:].replace('/', '*')}": FACTOR,
        f"{WEIGHTS} | {WEIGHTS[4:]} → self._nodes.sizes": FACTOR,
    },
    "gaussian_process": {
        f"{UNKNOWN} | 0.0 → 1.0": "an unknown change has the share 0",
        f"{UNKNOWN} | total > 0 → total >= 0": "where no change is known, the mean is not used",
    },
    "gpfl": {
        "step = np.zeros(0, dtype=np.float32) if outcome.step is None else outcome.step | 0 → 1": "a step of one 0 has no direction either",
        "return t / 100 if t < 100 else 200 / (t + 100) | t < 100 → t <= 100": AT_100,
        "return t / 100 if t < 100 else 200 / (t + 100) | 100 → 101": AT_100,
    },
    "hics": {
        "return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) | 1.0 → 2.0": "0 times a logarithm",
    },
    "memory": {
        "CHUNK = 1 << 16 | 1 → 2": CHUNKS,
        "CHUNK = 1 << 16 | 16 → 17": CHUNKS,
    },
    "fedadp": {
        f"{ANGLES} | updates.sizes / updates.sizes.sum() → updates.sizes * updates.sizes.sum()": LENGTH,
        f"{ANGLES} | updates.sizes / updates.sizes.sum() → updates.sizes": LENGTH,
        f"{ANGLES} | updates.sizes → updates.steps (no. 2)": LENGTH,
    },
    "importance_latency": {
        "BISECTIONS = 200 | 200 → 201": "both are more than float64 resolves",
        "low = -float(cost[a > 0].min())  # here some p_i is infinite | cost[a > 0].min() → cost[a > 0].max()": START,
        "low = -float(cost[a > 0].min())  # here some p_i is infinite | a > 0 → a >= 0": START,
        "if _at(a, cost, rho, middle).sum() > 1: | _at(a, cost, rho, middle).sum() > 1 → _at(a, cost, rho, middle).sum() >= 1": ROUNDING,
        "return p / p.sum() | p / p.sum() → p * p.sum()": ROUNDING,
        "return p / p.sum() | p / p.sum() → p": ROUNDING,
        "below = np.where(a > 0, np.maximum(cost + multiplier, np.finfo(float).tiny), 1.0) | a > 0 → a >= 0": NOTHING,
        "below = np.where(a > 0, np.maximum(cost + multiplier, np.finfo(float).tiny), 1.0) | 1.0 → 2.0": NOTHING,
    },
    "optimal_aggregation": {
        f"{LOOP} | 1e-09 → 2e-09": ROUNDING,
        f"{TIES} | abs(best - current) <= rounding → abs(best - current) < rounding": CONVEX,
        f"{TIES} | abs(best - current) <= rounding → abs(best - current) >= rounding": CONVEX,
        f"{TIES} | abs(best - current) → best - current": CONVEX,
        f"{TIES} | best - current → best + current": CONVEX,
        f"{TIES} | best - current → best": CONVEX,
        f"{TIES} | len(contenders) > 1 → len(contenders) >= 1": "exact arithmetic more often decides the same",
        "if kind == \"mean\": | kind == 'mean' → kind != 'mean'": ROUNDING,
    },
    "optimal_sampling": {
        f"{SHARE} | p > 0 → p >= 0": "a node with p = 0 is never sent, whatever its share",
        f"{CAP} | {CAP[3:-1]} → {CAP[3:-1].replace('<=', '<')}": "at equality both give the same p",
        "p[ascending[:size]] = (m - certain) * norms[ascending[:size]] / (sums[size - 1] or 1.0) | 1.0 → 2.0": "0 / 2 is 0",
        "return np.minimum(p, 1.0) | 1.0 → 2.0": ROUNDING,
    },
    "oort": {
        "self._last, self._history = np.zeros(nodes.count, dtype=np.int64), np.zeros(0) | 0 → 1": "a round of utility 0 before the first one never lets the pacer see a fall",
        "exploit = min(int(k * (1 - epsilon) + 1e-9), len(seen)) | 1e-09 → 2e-09": ROUNDING,
        "return np.ones(self._nodes.count) | self._nodes.count → self._nodes.count + 1": SURPLUS,
        "return 1 / (needs.train + needs.upload) | 1 → 2": "probabilities are normalised",
        "clip = np.sort(raw)[min(int(len(raw) * 0.95), len(raw) - 1)] | len(raw) - 1 → len(raw) + 1": REDUNDANT,
        "clip = np.sort(raw)[min(int(len(raw) * 0.95), len(raw) - 1)] | len(raw) - 1 → len(raw)": REDUNDANT,
    },
}
