"""What is watched during an update, per optimizer step: figures of the tokens just used.

    ratio        pi_now / pi_logged of a token: quantiles, and the share above the cap
    ess          effective sample share of the truncated weights (1 when nothing is off-policy)
    kl_parent    k3 of parent and policy per token, >= 0: how far this update has gone
    kl_anchor    weighted k1 against the line's anchor per token: how far the line has gone
    entropy      of the policy per token

All in nats a token. They are measured before the step is taken, on episodes no earlier step has
seen. Not here: what is done about them, but for the two limits of `limit_exceeded`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.train.importance import effective_sample_share
from stages.train.kl import k1, k3


@dataclass
class Watch:
    """Collects the tokens of one optimizer step, micro-batch by micro-batch."""

    cap: float
    log_ratio: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    kl_parent: list[Tensor] = field(default_factory=list)
    kl_anchor: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)

    def add(
        self,
        logp: Tensor,
        entropy: Tensor,
        weights: Tensor,
        logged: Tensor,
        parent: Tensor,
        anchor: Tensor | None,
    ) -> None:
        """All [n]: present logprobs and entropies, truncated weights, logprobs of log, parent and anchor."""
        logp = logp.detach()
        inside = logp.isfinite() & parent.isfinite()
        self.log_ratio.append((logp - logged).cpu())
        self.weights.append(weights.cpu())
        self.kl_parent.append(k3(parent[inside], logp[inside]).cpu())
        self.entropy.append(entropy.cpu())
        if anchor is not None:
            both = logp.isfinite() & anchor.isfinite()
            self.kl_anchor.append((weights[both] * k1(logp[both], anchor[both])).cpu())

    def figures(self) -> dict[str, Any]:
        """The step's figures; None for what was not measured."""
        log_ratio = torch.cat(self.log_ratio).double()
        ratio = log_ratio.exp().numpy()
        low, middle, high = np.quantile(ratio, [0.01, 0.5, 0.99])
        return {
            "tokens": len(ratio),
            "ratio_p01": float(low),
            "ratio_p50": float(middle),
            "ratio_p99": float(high),
            "ratio_max": float(ratio.max()),
            "clipped": float((ratio > self.cap).mean()),
            "ruled_out": float(np.isneginf(log_ratio.numpy()).mean()),
            "ess": effective_sample_share(torch.cat(self.weights)),
            "kl_parent": _mean(self.kl_parent),
            "kl_anchor": _mean(self.kl_anchor),
            "entropy": _mean(self.entropy),
        }


def _mean(parts: list[Tensor]) -> float | None:
    values = torch.cat(parts).double() if parts else torch.zeros(0)
    return float(values.mean()) if len(values) else None


def limit_exceeded(figures: dict[str, Any], *, kl_stop: float, ess_stop: float) -> str:
    """Why the update ends before this step, or "". A limit of 0 is off."""
    kl, ess = figures["kl_parent"], figures["ess"]
    if kl_stop and kl is not None and kl > kl_stop:
        return f"KL to the parent is {kl:.3g} nats a token, limit kl_stop {kl_stop:g}"
    if ess_stop and ess < ess_stop:
        return f"effective sample share is {ess:.3g}, limit ess_stop {ess_stop:g}"
    return ""
