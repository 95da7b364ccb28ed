"""Cycles of a made-up line, for the tests of its monitors."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.monitor.cycle import Cycle

USERS, EPISODES, KINDS = 60, 500, 4


def made(at: int, random: np.random.Generator, *, mix: Any = None, **moved: float) -> Cycle:
    """A cycle of a steady policy, but for what is `moved` (on the logit or log scale).

    Users have habits, and kinds of request differ: a fifth kind would edit less and be long.
    """
    user = random.integers(0, USERS, EPISODES)
    kind = random.choice(KINDS, EPISODES, p=mix)
    habit = np.random.default_rng(0).normal(size=USERS)[user] * 0.5  # the same in every cycle

    def share(name: str, base: float) -> Any:
        logit = base + habit - 0.5 * kind + moved.get(name, 0.0)
        return (random.random(EPISODES) < 1 / (1 + np.exp(-logit))).astype(np.float64)

    edited = share("edited", 1.5)
    written = np.where(edited > 0, random.gamma(3, 80, EPISODES), 0.0)
    columns = {
        "edited": edited,
        "clarified": share("clarified", -1.5),
        "invalid_tool_calls": share("invalid", -2.5),
        "terminal_only": share("terminal_only", -4.0),
        "output_tokens": np.exp(random.normal(4 + 0.3 * kind + moved.get("tokens", 0.0), 0.5, EPISODES)),
        "n_generations": 1.0 + random.poisson(1.5, EPISODES),
        "written_chars": written,
        "comment_chars": written * random.beta(2, 18, EPISODES) + moved.get("comments", 0.0) * written,
        "dissatisfied_followup": random.beta(1, 2, EPISODES),
    }
    return Cycle(
        at=at,
        checkpoint=f"sha256:{at:064x}",
        columns=columns,
        users=[f"u{n}" for n in user],
        cells=[f"k{n}" for n in kind],
        spec="s",
        reward=random.normal(moved.get("reward", 0.0), 1.0, EPISODES),
        user=random.normal(moved.get("content", 0.0), 1.0, EPISODES),
    )
