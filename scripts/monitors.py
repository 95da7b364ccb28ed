"""How often the monitors alarm for nothing, and how soon for something: lines of made-up cycles.

    python scripts/monitors.py [--lines N] [--cycles N] [--json]

Every line has users with habits, kinds of request that differ, cycles of 300 to 900 episodes. Clean lines
are of four kinds: steady, with noise between cycles beyond sampling, drifting at random, and learning (broken
calls and questions fall, tokens shrink, as under a good reward). Moved lines are steady and then one
behaviour grows in each cycle from a random one on. Printed are shares with 95 % intervals (Wilson): cycles of
clean lines with an alarm, moved lines with the right alarm within three cycles. Not for: real policies
(`experiments.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from evals.stats.intervals import proportion
from stages.monitor.charts import Rules, update
from stages.monitor.cycle import Cycle
from stages.monitor.history import History

USERS, KINDS = 70, 5
CLEAN = ("steady", "noisy", "drifting", "learning")
MOVES = {  # behaviour -> (what is moved, growth a cycle on its scale, direction)
    "ask_rate": ("clarified", 0.7, "up"),
    "invalid_calls": ("invalid", 0.6, "up"),
    "output_tokens": ("tokens", 0.12, "up"),
    "comment_share": ("comments", 0.03, "up"),
    "edit_rate": ("edited", -0.4, "down"),
    "lines_deleted": ("deleted", 0.3, "up"),
    "divergence": ("reward", 0.15, "up"),
}
_SHARES = {
    "edited": 1.0,
    "clarified": -1.8,
    "invalid": -2.5,
    "terminal": -4.0,
    "silent": -0.5,
    "rejected": -2.0,
}
_AMOUNTS = {"tokens": 4.0, "added": 2.0, "deleted": 1.5}


def cycle(at: int, random: np.random.Generator, moved: Mapping[str, float]) -> Cycle:
    """One cycle. `moved`: shifts of logits, logarithms, or means."""
    n = int(random.integers(300, 900))
    user = random.integers(0, USERS, n)
    kind = random.choice(KINDS, n, p=random.dirichlet(np.full(KINDS, 60.0)))
    habit = np.random.default_rng(0).normal(size=USERS)[user] * 0.5

    def share(name: str) -> Any:
        logit = _SHARES[name] + habit + 0.4 * (kind - 2) + moved.get(name, 0.0)
        return (random.random(n) < 1 / (1 + np.exp(-logit))).astype(np.float64)

    def amount(name: str, spread: float = 0.6) -> Any:
        return np.exp(random.normal(_AMOUNTS[name] + 0.2 * (kind - 2) + moved.get(name, 0.0), spread, n))

    edited = share("edited")
    none = np.where(edited > 0, 1.0, np.nan)
    turns = _turns(random, n)
    written = edited * random.gamma(3, 80, n)
    functions = edited * random.poisson(0.7, n)
    comments = np.clip(random.beta(2, 18, n) + moved.get("comments", 0.0), 0, 1)
    columns = {
        "edited": edited,
        "clarified": (1 - edited) * share("clarified"),
        "invalid_tool_calls": share("invalid"),
        "terminal_only": share("terminal"),
        "silent": share("silent"),
        "output_tokens": amount("tokens"),
        **turns,
        "written_chars": written,
        "comment_chars": written * comments,
        "functions": functions,
        "function_lines": functions * (1 + random.poisson(6, n)),
        "lines_added": none * amount("added"),
        "lines_deleted": none * amount("deleted"),
        "edit_persistence": none * random.beta(2, 1, n),
        "edit_rejected": none * share("rejected"),
        "dissatisfied_followup": random.beta(1, 2, n),
    }
    return Cycle(
        at=at,
        checkpoint="made-up",
        columns=columns,
        users=[f"u{code}" for code in user],
        cells=[f"k{code}" for code in kind],
        reward=random.normal(moved.get("reward", 0.0), 1.0, n) + 0.3 * habit,
        user=random.normal(0.0, 1.0, n) + 0.3 * habit,
    )


def _turns(random: np.random.Generator, n: int) -> dict[str, Any]:
    """Model calls of `n` episodes, and the tool calls in them."""
    turns = 1.0 + random.poisson(1.5, n)
    calls = random.poisson(turns).astype(np.float64)
    return {
        "n_generations": turns,
        "n_calls": calls,
        "calling_turns": np.minimum(calls, turns),
        "parallel_turns": np.maximum(0.0, np.minimum(calls - turns, turns)),
    }


def clean(kind: str, random: np.random.Generator, cycles: int, rules: Rules) -> list[bool]:
    """Whether each cycle after the warm-up alarmed."""
    history, found = History(), []
    level = dict.fromkeys((*_SHARES, *_AMOUNTS, "comments"), 0.0)
    for at in range(cycles):
        moved = dict(level)
        if kind == "noisy":
            moved = {name: random.normal(0, 0.004 if name == "comments" else 0.12) for name in level}
        elif kind == "drifting":
            level = {n: v + random.normal(0, 0.002 if n == "comments" else 0.05) for n, v in level.items()}
        elif kind == "learning":
            progress = 1 - 0.8**at
            moved |= {"invalid": -2 * progress, "clarified": -progress, "tokens": -0.5 * progress}
        result = update(history, cycle(at, random, moved), rules)
        history = result.history
        if at >= rules.warm_up:
            found.append(bool(result.alarms))
    return found


def caught(behaviour: str, random: np.random.Generator, rules: Rules) -> bool:
    """Whether a planted rise was named within three cycles; alarms before it are in the other figure."""
    what, growth, direction = MOVES[behaviour]
    begin, history = int(random.integers(6, 14)), History()
    for at in range(begin + 3):
        moved = {what: growth * (at - begin + 1)} if at >= begin else {}
        result = update(history, cycle(at, random, moved), rules)
        history = result.history
        if at >= begin and any(a.behaviour == behaviour and a.direction == direction for a in result.alarms):
            return True
    return False


def measure(lines: int, cycles: int) -> list[dict[str, Any]]:
    """Rows of what, count, of how many, share and its interval."""
    rules, rows = Rules(), []
    for kind in CLEAN:
        found = [
            hit for seed in range(lines) for hit in clean(kind, np.random.default_rng(seed), cycles, rules)
        ]
        rows.append(_row(f"false alarms a cycle, {kind} lines", sum(found), len(found)))
    for behaviour in MOVES:
        found = [caught(behaviour, np.random.default_rng(1000 + seed), rules) for seed in range(lines)]
        rows.append(_row(f"{behaviour} caught within 3 cycles", sum(found), len(found)))
    return rows


def _row(what: str, count: int, total: int) -> dict[str, Any]:
    low, high = proportion(count, total)
    return {"what": what, "count": count, "of": total, "share": count / total, "low": low, "high": high}


def main() -> None:
    """Print the table, or with --json the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--cycles", type=int, default=18)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    rows = measure(wanted.lines, wanted.cycles)
    if wanted.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['what']:<42} {row['count']:>4} of {row['of']:<5} {row['share']:7.2%}  "
            f"({row['low']:.2%} to {row['high']:.2%})"
        )


if __name__ == "__main__":
    main()
