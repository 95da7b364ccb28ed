"""What is tested of one metric's gains: bounds and p values over all planned looks.

Not here: the gains of two arms (`evals/criteria.py`), the verdict over all metrics (`evals/gate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from evals.cases import Metric
from evals.stats.clusters import ClusterSums
from evals.stats.inference import Inference
from evals.stats.sequential import ONCE, Look, nominal, sequential_p
from evals.stats.sparse import padded


@dataclass(frozen=True)
class Comparison:
    """What is tested of one metric's gains, from their cluster sums alone.

    A deterministic metric is the same at every look, so that looking again costs nothing.
    """

    data: ClusterSums
    metric: Metric
    alpha: float
    look: Look = ONCE

    @property
    def inference(self) -> Inference:
        """Bounds and p values as if looked at once; padded where hardly any case differs."""
        return Inference(padded(self.data), self.metric.limits)

    @property
    def p_noninferior(self) -> float:
        """Of gain <= -margin; where values without chance are all equal, there is nothing to test."""
        if self.inference.method == "equal" and self.metric.limits is None:
            return 0.0 if self.data.mean >= -self.metric.margin else 1.0
        return self._over_looks(self.inference.p_greater(-self.metric.margin))

    @property
    def p_regressed(self) -> float:
        """Of gain >= 0."""
        return self._over_looks(self.inference.p_less(0.0))

    @property
    def bound(self) -> float:
        """Lower end of the one-sided 1 - alpha interval."""
        return self.inference.lower(self._level(self.alpha))

    @property
    def interval(self) -> tuple[float, float]:
        """Two-sided 1 - alpha interval."""
        return self.inference.interval(1 - 2 * self._level(self.alpha / 2))

    def _over_looks(self, p: float) -> float:
        return sequential_p(p, self.look.number, self.look.planned) if self.metric.sampled else p

    def _level(self, alpha: float) -> float:
        return nominal(alpha, self.look.number, self.look.planned) if self.metric.sampled else alpha
