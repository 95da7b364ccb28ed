"""What is watched during an update, per optimizer step: figures of the tokens just used.

    ratio        pi_now / pi_logged of a token: quantiles
    clipped      share of the tokens whose weight the correction limits
    ess          effective sample share of the weights (1 when nothing is off-policy), without tokens that a
                 clip leaves alone: GSPO's range does so with most of them once an update has begun
    kl_parent    k3 of parent and policy per token, >= 0: how far this update has gone
    kl_anchor    k1 against the line's anchor per token, weighed with min(ratio, 4) whatever the correction:
                 how far the line has gone; kl_anchor_k3 the same by k3, to be compared with
    entropy      of the policy per token
    routing_decisions, routing_differed
                 mixture-of-experts: replayed choices of an expert, and those the router now makes otherwise

All in nats a token. They are measured before the step is taken, on episodes no earlier step has
seen. Not here: what is done about them, but for the limits of `limit_exceeded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.train.config import TrainConfig
from stages.train.correction import Weights
from stages.train.kl import k1, k3
from stages.train.routing import Decisions
from stages.train.routing import figures as routing_figures
from stages.train.truncated import truncated_ratio

USUAL_CAP = 4.0  # of the weights of a KL, which is not the correction's affair


@dataclass
class Watch:
    """Collects the tokens of one optimizer step, micro-batch by micro-batch."""

    log_ratio: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    limited: list[Tensor] = field(default_factory=list)
    kl_parent: list[Tensor] = field(default_factory=list)
    kl_anchor: list[Tensor] = field(default_factory=list)
    kl_anchor_k3: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)
    routing: list[Decisions] = field(default_factory=list)

    def add(
        self,
        logp: Tensor,
        entropy: Tensor,
        weights: Weights,
        logged: Tensor,
        parent: Tensor,
        anchor: Tensor,
    ) -> None:
        """All [n]: present logprobs and entropies, weights, logprobs of log, parent and anchor."""
        logp = logp.detach()
        inside = logp.isfinite() & parent.isfinite()
        self.log_ratio.append((logp - logged).cpu())
        self.weights.append(weights.value[weights.pushed].cpu())
        self.limited.append(weights.limited.cpu())
        self.kl_parent.append(k3(parent[inside], logp[inside]).cpu())
        self.entropy.append(entropy.cpu())
        both = logp.isfinite() & anchor.isfinite()
        weight = truncated_ratio(logp[both] - logged[both], USUAL_CAP)
        self.kl_anchor.append((weight * k1(logp[both], anchor[both])).cpu())
        self.kl_anchor_k3.append((weight * k3(logp[both], anchor[both])).cpu())

    def extend(self, other: Watch) -> None:
        """Take over what another one has collected."""
        for each in fields(self):
            getattr(self, each.name).extend(getattr(other, each.name))

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
            "clipped": float(torch.cat(self.limited).double().mean()),
            "ruled_out": float(np.isneginf(log_ratio.numpy()).mean()),
            "ess": effective_sample_share(values) if len(values := torch.cat(self.weights)) else 1.0,
            "kl_parent": _mean(self.kl_parent),
            "kl_anchor": _mean(self.kl_anchor),
            "kl_anchor_k3": _mean(self.kl_anchor_k3),
            "entropy": _mean(self.entropy),
            **routing_figures(self.routing),
        }


def effective_sample_share(weights: Tensor) -> float:
    """(sum w)^2 / (N sum w^2), in (0, 1]: 1 when all weights are equal. 0 for no or only zero weights.

    Source: Kong 1992; Liu 2001, "Monte Carlo Strategies", eq. 2.6.
    """
    values = weights.detach().double()
    total, squares = float(values.sum()), float((values * values).sum())
    return total * total / (values.numel() * squares) if squares > 0 else 0.0


def _mean(parts: list[Tensor]) -> float | None:
    values = torch.cat(parts).double() if parts else torch.zeros(0)
    return float(values.mean()) if len(values) else None


def limit_exceeded(figures: Mapping[str, Any], config: TrainConfig) -> str:
    """Why the update ends before this step, or "". A limit of 0 is off."""
    limits = (
        ("kl_stop", "KL to the parent", figures["kl_parent"], config.kl_stop),
        ("anchor_kl_stop", "KL to the anchor", figures["kl_anchor"], config.anchor_kl_stop),
    )
    for name, what, value, limit in limits:
        if limit and value is not None and value > limit:
            return f"{what} is {value:.3g} nats a token, limit {name} {limit:g}"
    ess, least = figures["ess"], config.ess_stop
    return f"effective sample share is {ess:.3g}, limit ess_stop {least:g}" if ess < least else ""


def live(figures: Mapping[str, Any]) -> str:
    """A step's figures as one line, for who watches."""
    shown = (
        ("loss", "loss"),
        ("grad_norm", "grad norm"),
        ("ratio_p01", "ratio p1"),
        ("ratio_p99", "p99"),
        ("clipped", "clipped"),
        ("ess", "ess"),
        ("kl_parent", "kl parent"),
        ("kl_anchor", "kl anchor"),
        ("entropy", "entropy"),
    )
    parts = [f"{name} {figures[key]:.3g}" for key, name in shown if figures[key] is not None]
    return ", ".join([*parts, f"{figures['tokens_per_s']:.0f} tokens/s"])
