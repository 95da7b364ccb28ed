"""What finished cycles say: figures by variant, seed and cycle, and the change from first to last.

A change is paired: the same held-out requests of the same people before and after, clustered by person.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evals.stats.inference import Inference
from evals.stats.paired import paired_sums, ratio
from experimenting.heldout import Row, answered, columns, figures
from experimenting.setup import Setup


@dataclass(frozen=True)
class Change:
    """A figure before and after, and the difference with its 95 % interval; None where it is not defined."""

    first: float | None
    last: float | None
    difference: float | None
    low: float | None
    high: float | None
    apart: bool  # the two figures' own intervals do not touch

    @property
    def relative(self) -> float | None:
        """Difference over the first value."""
        return self.difference / self.first if self.difference is not None and self.first else None


@dataclass(frozen=True)
class Run:
    """One chain as far as it got."""

    setup: Setup
    folder: Path

    @cached_property
    def cycles(self) -> list[dict[str, Any]]:
        """What stands in `cycles/NN.json`, in order; the first is before any learning."""
        paths = sorted((self.folder / "cycles").glob("[0-9][0-9].json"))
        return [json.loads(path.read_text("utf-8")) for path in paths]

    def rows(self, cycle: int) -> list[Row]:
        """Held-out requests after a cycle."""
        found: list[Row] = json.loads((self.folder / "cycles" / f"{cycle:02}.rows.json").read_text("utf-8"))
        return found

    @property
    def done(self) -> int:
        """Cycles finished."""
        return len(self.cycles) - 1

    @property
    def complete(self) -> bool:
        """Whether all cycles are, or as many as had to be."""
        return self.done >= self.setup.cycles or (self.folder / "last").is_dir()

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """From before the first cycle to after the last that is done."""
        return changes(self.rows(0), self.rows(self.done)) if self.done > 0 else {}

    def curve(self, figure: str) -> list[dict[str, Any]]:
        """The figure's estimates cycle by cycle."""
        return [cycle["heldout"][figure] for cycle in self.cycles]

    @property
    def seconds(self) -> list[float]:
        """Wall-clock seconds of each cycle of learning."""
        return [float(cycle["seconds"]["all"]) for cycle in self.cycles[1:]]


def changes(before: Sequence[Row], after: Sequence[Row]) -> dict[str, Change]:
    """Every figure's change over the requests that both answered."""
    both = {row["case"] for row in answered(before)} & {row["case"] for row in answered(after)}
    first, last = ([row for row in rows if row["case"] in both] for rows in (before, after))
    if [row["case"] for row in first] != [row["case"] for row in last]:
        raise ValueError("the two measurements have other cases, or another order")
    users = [row["user"] for row in first]
    one, two = columns(first), columns(last)
    ends = figures(first), figures(last)
    return {name: _change(one[name], two[name], users, ends[0][name], ends[1][name]) for name in one}


def _change(
    before: tuple[list[float], list[float]],
    after: tuple[list[float], list[float]],
    users: Sequence[str],
    first: Mapping[str, Any],
    last: Mapping[str, Any],
) -> Change:
    if not sum(before[1]) or not sum(after[1]):
        return Change(first["value"], last["value"], None, None, None, False)
    low, high = Inference(paired_sums(after, before, users), None).interval(0.95)
    ends = (first["low"], first["high"], last["low"], last["high"])
    apart = None not in ends and (last["low"] > first["high"] or last["high"] < first["low"])
    return Change(ratio(*before), ratio(*after), ratio(*after) - ratio(*before), low, high, apart)


def read(setups: Sequence[Setup], folder_of: Mapping[tuple[str, int], Path]) -> list[Run]:
    """The chains that have begun, in the order asked for."""
    runs = [Run(setup, folder_of[setup.name, setup.seed]) for setup in setups]
    return [run for run in runs if run.cycles]
