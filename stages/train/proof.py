"""The on-policy proof: what the engine logged is what its checkpoint says.

Before the first step every trained token is scored by the checkpoint that sampled it, under the
recorded sampling parameters:

    d_t = log pi_sampler(y_t) - logged_t

Both numbers are of the same distribution at the same weights, so d is numerical noise of the serving
dtype and nothing else. Mean and 99th percentile of |d| beyond the dtype's tolerance mean that the
update would be computed on a wrong premise: the run stops. How far the *parent* is from the log
because the sampler is older (lag) is another question, reported apart.

Tolerances: float32 serving and float32 training agree to about 1e-5 on CPUs
(`tests/e2e/test_train_exact.py`); bfloat16 serving is some hundredths of a nat away from float32. What a
failure means: `diagnosis.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Tolerance:
    """Largest mean and 99th percentile of |d|, nats."""

    mean: float
    p99: float


TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(1e-4, 1e-3),
    "float16": Tolerance(0.01, 0.1),
    "bfloat16": Tolerance(0.05, 0.4),
}

SEQUENCE_FACTOR = 20  # a single sequence is off when its mean |d| is this many times the tolerance
SEQUENCES_OFF = 0.005  # so many of the sequences may be off; they are left out and counted
RULED_OUT = 0.005  # so many of the tokens may lie on the edge of top-k or top-p, where noise decides


@dataclass(frozen=True)
class Proof:
    """d of the batch in figures (nats; shares in [0, 1])."""

    tokens: int
    mean: float
    median: float
    p99: float
    largest: float
    signed_mean: float
    ruled_out: float  # share of tokens that the recorded sampling parameters rule out
    sequences_off: float  # share of sequences that are off on their own

    def failures(self, tolerance: Tolerance) -> list[str]:
        """What is beyond tolerance, one sentence each; empty when the proof holds."""
        found = []
        if not self.mean <= tolerance.mean:
            found.append(f"mean |logp - logged| is {self.mean:.3g} nats, tolerance {tolerance.mean:g}")
        if not self.p99 <= tolerance.p99:
            found.append(
                f"99th percentile of |logp - logged| is {self.p99:.3g} nats, tolerance {tolerance.p99:g}"
            )
        if self.ruled_out > RULED_OUT:
            found.append(f"{self.ruled_out:.1%} of the tokens are ruled out by the recorded sampling")
        if self.sequences_off > SEQUENCES_OFF:
            found.append(f"{self.sequences_off:.1%} of the sequences are off")
        return found

    def as_dict(self) -> dict[str, float]:
        """For logs and metrics."""
        return asdict(self)


def prove(
    logp: Array, logged: Array, row_of: NDArray[np.int64], rows: int, tolerance: Tolerance
) -> tuple[Proof, NDArray[np.bool_]]:
    """(figures, rows [rows] that are off on their own) from logp and logged [M] in nats.

    Tokens the sampling parameters rule out (logp = -inf) are counted apart; NaN counts as off. Where few
    rows are off, and will be left out, the other figures are those of the rows that stay.
    """
    difference = logp.astype(np.float64) - logged
    ruled_out = np.isneginf(logp)
    size = np.where(ruled_out, 0.0, np.abs(difference))
    counted = np.bincount(row_of, weights=~ruled_out, minlength=rows)
    per_row = np.bincount(row_of, weights=size, minlength=rows) / np.maximum(counted, 1)
    share_out = np.bincount(row_of, weights=ruled_out, minlength=rows) / np.maximum(
        np.bincount(row_of, minlength=rows), 1
    )
    off = ~(per_row <= SEQUENCE_FACTOR * tolerance.mean) | (share_out > 0.5)
    share_off = float(off.mean()) if rows else 0.0
    stays = ~off[row_of] if share_off <= SEQUENCES_OFF else np.ones(len(logp), dtype=np.bool_)
    counts = stays & ~ruled_out
    kept = size[counts]
    if not len(kept):
        kept = np.array([np.nan])
    proof = Proof(
        tokens=int(stays.sum()),
        mean=float(kept.mean()),
        median=float(np.median(kept)),
        p99=float(np.quantile(kept, 0.99)),
        largest=float(kept.max()),
        signed_mean=float(difference[counts].mean()) if counts.any() else float("nan"),
        ruled_out=float(ruled_out[stays].mean()),
        sequences_off=share_off,
    )
    return proof, off
