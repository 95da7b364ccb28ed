"""What the monitors were told of a cycle, kept so that charts can be made again, also of it resampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from stages.monitor.cycle import Cycle


@contextmanager
def recorded(path: Path) -> Iterator[None]:
    """While it lasts, the cycle that `distill` hands to its monitors is also written to `path`."""
    from stages.distill import run
    from stages.distill.monitored import cycle_of

    def kept(*arguments: Any) -> Cycle:
        cycle = cycle_of(*arguments)
        save(path, cycle)
        return cycle

    with mock.patch.object(run, "cycle_of", kept):
        yield


def save(path: Path, cycle: Cycle) -> None:
    """A whole file or none."""
    columns: dict[str, Any] = {
        f"column_{name}": values.astype(np.float32) for name, values in cycle.columns.items()
    }
    partial = path.with_name(f".{path.name}.new.npz")
    np.savez_compressed(
        partial,
        at=cycle.at,
        checkpoint=cycle.checkpoint,
        users=np.array(cycle.users),
        cells=np.array(cycle.cells),
        spec=cycle.spec,
        reward=np.array([] if cycle.reward is None else cycle.reward),
        user=np.array([] if cycle.user is None else cycle.user),
        told=np.array([] if cycle.told is None else cycle.told),
        **columns,
    )
    partial.rename(path)


def load(path: Path) -> Cycle:
    """What `save` wrote."""
    with np.load(path) as found:
        return Cycle(
            at=int(found["at"]),
            checkpoint=str(found["checkpoint"]),
            columns={
                name.removeprefix("column_"): found[name].astype(np.float64)
                for name in found.files
                if name.startswith("column_")
            },
            users=found["users"].tolist(),
            cells=found["cells"].tolist(),
            spec=str(found["spec"]),
            reward=found["reward"] if len(found["reward"]) else None,
            user=found["user"] if len(found["user"]) else None,
            told=found["told"] if len(found["told"]) else None,
        )


def resampled(cycle: Cycle, random: np.random.Generator) -> Cycle:
    """The cycle with its people drawn anew, with replacement; somebody drawn twice is two people."""
    names = np.unique(np.array(cycle.users, dtype=object))
    of = {name: np.flatnonzero(np.array(cycle.users, dtype=object) == name) for name in names}
    drawn = random.choice(len(names), len(names))
    rows = np.concatenate([of[names[n]] for n in drawn])
    users = [f"{names[n]}/{copy}" for copy, n in enumerate(drawn) for _ in of[names[n]]]
    return Cycle(
        at=cycle.at,
        checkpoint=cycle.checkpoint,
        columns={name: values[rows] for name, values in cycle.columns.items()},
        users=users,
        cells=[cycle.cells[row] for row in rows],
        spec=cycle.spec,
        reward=None if cycle.reward is None else cycle.reward[rows],
        user=None if cycle.user is None else cycle.user[rows],
        told=None if cycle.told is None else cycle.told[rows],
    )
