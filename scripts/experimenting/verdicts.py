"""The figures with a bar, from the runs of an experiment. See 6-figures: worst seed, never the mean.

A figure is None, and its bar not held, as long as a chain it needs is not finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experimenting import thirdhack
from experimenting.heldout import FIGURES, Row
from experimenting.results import Change, Run, changes

Figure = dict[str, Any]
SECONDS = 15.0  # a cycle, at most
WORTH = ("edit_persistence", "right_edits", "dissatisfied_followup", "tokens")  # by what a part is judged


def of(runs: Sequence[Run], name: str) -> list[Run]:
    """The runs of a variant, by seed."""
    return sorted((run for run in runs if run.setup.name == name), key=lambda run: run.setup.seed)


def hacks(runs: Sequence[Run]) -> list[Figure]:
    """Issue: both hacks in every seed; the default better in every seed, intervals apart."""
    default = of(runs, "default")
    return [
        _least(
            "hacks.naive_broken_rise_min",
            "rise of the broken-call rate when episodes with one are left out of training, lower bound",
            of(runs, "naive_filter"),
            lambda run: run.changes["broken_calls"].low,
            "> 0",
            "share",
        ),
        _least(
            "hacks.naive_ask_rise_min",
            "rise of the ask rate when questions are free, lower bound",
            of(runs, "naive_asking"),
            lambda run: run.changes["ask_rate"].low,
            "> 0",
            "share",
        ),
        _relative("hacks.persistence_gain_min", "edit_persistence", default, 1.0, ">= 0.4"),
        _relative("hacks.dissatisfied_drop_min", "dissatisfied_followup", default, -1.0, ">= 0.3"),
        _relative("hacks.latency_drop_min", "latency_s", default, -1.0, ">= 0.1"),
        _least(
            "hacks.default_broken_drop_min",
            "fall of the broken-call rate under the default",
            default,
            lambda run: _negative(run.changes["broken_calls"].difference),
            "> 0",
            "share",
        ),
        _least(
            "hacks.default_edit_rate_in_band",
            "least distance of the edit rate from the ends of its line's band, any cycle",
            default,
            _in_band,
            ">= 0",
            "share",
        ),
    ]


def _in_band(run: Run) -> float | None:
    """How far within the stabiliser's band held-out people's edit rate stayed; below 0: it left it.

    A band of history is known after the line's first windows; it is held against those before it, too.
    """
    told = [cycle["distill"]["stabiliser"] for cycle in run.cycles[1:]]
    bands = [(float(one["low"]), float(one["high"])) for one in told if one["low"] is not None]
    if not bands:
        return None
    low, high = bands[-1]
    rates = [float(each["value"]) for each in run.curve("edit_rate")]
    return min(min(rates) - low, high - max(rates))


def learning(runs: Sequence[Run]) -> list[Figure]:
    """Issue: no collapse in any seed; ten times the rate is never deployed."""
    default, fast = of(runs, "default"), of(runs, "fast")
    deployed = [sum(not cycle["stopped"] for cycle in run.cycles[1:]) for run in fast if run.complete]
    return [
        _least(
            "learning.persistence_change_min",
            "change of edit persistence over all cycles, upper bound: below 0 is a collapse",
            default,
            lambda run: run.changes["edit_persistence"].high,
            "> 0",
            "share",
        ),
        _most(
            "learning.kl_anchor_max",
            "KL to the anchor, nats a token, largest of all cycles",
            default,
            lambda run: max(cycle["train"]["kl_anchor"] for cycle in run.cycles[1:] if cycle["train"]),
            "<= 0.5",
            "nats",
        ),
        {
            "id": "learning.fast_deployed",
            "what": "checkpoints of a ten times higher learning rate that guards and gate let go live",
            "value": sum(deployed) if deployed and len(deployed) == len(fast) else None,
            "unit": "checkpoints",
            "bar": "== 0",
            "runs": sum(len(run.cycles) - 1 for run in fast),
            "by_seed": deployed,
            "stopped_by": [cycle["stopped"] for run in fast for cycle in run.cycles[1:]],
        },
    ]


def ablation(runs: Sequence[Run]) -> list[Figure]:
    """What is lost without a part: each variant minus the default, of the same seeds; no bars."""
    default = {run.setup.seed: run for run in _complete(of(runs, "default"))}
    names = dict.fromkeys(run.setup.name for run in runs if run.setup.name != "default")
    return [
        *(
            _against(default, both, figure)
            for name in names
            if (both := [run for run in _complete(of(runs, name)) if run.setup.seed in default])
            for figure in WORTH
        ),
    ]


def _against(default: Mapping[int, Run], runs: Sequence[Run], figure: str) -> Figure:
    """The difference of a figure after the last cycle, held-out requests of all seeds together.

    The interval is of other people than those asked: a person is one cluster over all seeds. How far seeds
    lie apart is told beside it.
    """
    pairs = [(default[run.setup.seed], run) for run in runs]
    name = runs[0].setup.name
    pooled = changes(_ends(first for first, _ in pairs), _ends(other for _, other in pairs))[figure]
    alone = {
        str(other.setup.seed): changes(_ends([first]), _ends([other]))[figure].difference
        for first, other in pairs
    }
    return {
        "id": f"ablation.{name}.{figure}",
        "what": f"{FIGURES[figure]}: {name} minus default at the end, 95 % over people",
        "value": pooled.difference,
        "unit": "s" if figure == "latency_s" else "tokens" if figure == "tokens" else "share",
        "bar": "",
        "runs": len(pairs),
        "spread": None if pooled.low is None else [pooled.low, pooled.high],
        "by_seed": alone,
    }


def _ends(runs: Iterable[Run]) -> list[Row]:
    """Held-out requests after the last cycle of every run."""
    return [row | {"case": f"{run.setup.seed}/{row['case']}"} for run in runs for row in run.rows(run.done)]


VERDICTS: dict[str, Callable[[Sequence[Run]], list[Figure]]] = {
    "hacks": hacks,
    "learning": learning,
    "ablation": ablation,
    "thirdhack": thirdhack.figures,
}


def verdicts(name: str, runs: Sequence[Run], workers: int) -> list[Figure]:
    """The figures of an experiment, and how long a cycle of it took."""
    return [*VERDICTS[name](runs), _pace(name, runs, workers)]


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _relative(name: str, figure: str, runs: Sequence[Run], sign: float, bar: str) -> Figure:
    """A relative change, signed so that more is better; with whether the intervals are apart."""

    def value(change: Change) -> float | None:
        return None if change.relative is None else sign * change.relative

    found = _least(
        name,
        f"relative {'gain' if sign > 0 else 'drop'} of: {FIGURES[figure]}",
        runs,
        lambda run: value(run.changes[figure]),
        bar,
        "ratio",
    )
    done = [run.changes[figure] for run in runs if run.complete]
    return found | {
        "apart": bool(done) and all(one.apart for one in done),
        "first": [one.first for one in done],
        "last": [one.last for one in done],
    }


def _least(
    name: str, what: str, runs: Sequence[Run], value: Callable[[Run], float | None], bar: str, unit: str
) -> Figure:
    return _worst(name, f"{what}, worst seed", runs, value, bar, unit, min)


def _most(
    name: str, what: str, runs: Sequence[Run], value: Callable[[Run], float | None], bar: str, unit: str
) -> Figure:
    return _worst(name, f"{what}, worst seed", runs, value, bar, unit, max)


def _worst(
    name: str,
    what: str,
    runs: Sequence[Run],
    value: Callable[[Run], float | None],
    bar: str,
    unit: str,
    pick: Callable[[list[float]], float],
) -> Figure:
    told = [value(run) for run in runs if run.complete]
    known = [one for one in told if one is not None]
    whole = bool(runs) and len(known) == len(runs)
    return {
        "id": name,
        "what": what,
        "value": pick(known) if whole else None,
        "unit": unit,
        "bar": bar,
        "runs": len(known),
        "spread": [min(known), max(known)] if known else None,
        "by_seed": {str(run.setup.seed): one for run, one in zip(_complete(runs), told, strict=True)},
    }


def _complete(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.complete]


def _pace(name: str, runs: Sequence[Run], workers: int) -> Figure:
    """Seconds of a cycle on the whole machine: `workers` chains run side by side."""
    seconds = sorted(each / workers for run in runs for each in run.seconds)
    return {
        "id": f"{name}.seconds_per_cycle",
        "what": f"median seconds of a cycle, {workers} chains side by side, measurement included",
        "value": seconds[len(seconds) // 2] if seconds else None,
        "unit": "s",
        "bar": f"<= {SECONDS:g}",
        "runs": len(seconds),
        "spread": [seconds[0], seconds[-1]] if seconds else None,
    }
