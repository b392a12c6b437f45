"""A user-defined metric: it declares what it adds to the records, and computes it from the confusion matrix.

    fedpns run --dataset mnist --metrics balanced-accuracy,examples.own_metric:KappaMetric --rounds 20

Tables, plots, `fedpns watch` and the page find the quantity by its declaration.
"""

from fedpns_ray.core.metrics import Metric
from fedpns_ray.core.quantity import Quantity

KAPPA = Quantity("cohens_kappa", "Cohen's kappa", better="higher")


class KappaMetric(Metric):
    """Agreement of predictions and labels beyond what chance would give (Cohen 1960)."""

    name = "kappa"
    quantities = (KAPPA,)

    def measure(self, confusion):
        """Row i, column j: how many test samples of label i were predicted to be j."""
        samples = confusion.sum()
        agreement = confusion.trace() / samples
        by_chance = (confusion.sum(axis=0) * confusion.sum(axis=1)).sum() / samples**2
        return {KAPPA.key: float((agreement - by_chance) / (1 - by_chance)) if by_chance < 1 else None}
