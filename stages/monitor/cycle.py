"""One cycle for the monitors: figures with their errors, held against what is usual for such requests.

A change of the users is no change of the policy. So each behaviour is compared with its history reweighted
to this cycle's requests (post-stratification by kind of work, language and size of the request):

    expected = sum over cells c of  share of c in this cycle * usual value in c
    adjusted = value - (expected - usual value overall)

Only `adjusted` is charted. A cell with little history leans on the usual value overall (`LEAN` episodes'
worth). Standard errors are of the residuals, clustered by user. Not for: limits and alarms (`charts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.monitor.behaviours import ratios
from stages.monitor.history import Figure, Reference, Window

Floats = NDArray[np.float64]

LEAN = 20.0
MEMORY = 0.85  # of the reference, a cycle
CELLS = 48  # kinds of request that are told apart; of a rarer one the usual value overall is expected


@dataclass(frozen=True)
class Cycle:
    """What the monitors need of one cycle's E episodes.

    Attributes:
        at, checkpoint: when (ms), and which checkpoint answered.
        columns: per-episode columns [E] of `behaviours.BEHAVIOURS`, nan where not known; more do no harm.
        users: whose each episode is, [E].
        cells: which kind of request each is, known before the first sampled token, [E].
        reward: training reward [E], nan where there is none.
        spec: digest of the reward spec.
        user: what users told of it that is not what was trained on, [E] (`behaviours.contentment`).
    """

    at: int
    checkpoint: str
    columns: Mapping[str, Floats]
    users: Sequence[str]
    cells: Sequence[str]
    spec: str = ""
    reward: Floats | None = None
    user: Floats | None = None


def window(cycle: Cycle, reference: Reference) -> Window:
    """The cycle in figures."""
    users = _codes(cycle.users)
    figures = {}
    for name, (over, under) in ratios(cycle.columns).items():
        if under.sum() > 0:
            figures[name] = _figure(name, over, under, users, cycle.cells, reference)
    return Window(
        at=cycle.at,
        checkpoint=cycle.checkpoint,
        episodes=len(cycle.users),
        users=int(users.max(initial=-1)) + 1,
        figures=figures,
        cohort=round(_distance(cycle.cells, reference), 4),
        spec=cycle.spec,
        reward=_mean(cycle.reward, users),
        user=_mean(cycle.user, users),
    )


def remembered(cycle: Cycle, reference: Reference) -> Reference:
    """The reference after this cycle: older cycles fade, the rarest cells are forgotten."""
    episodes = {cell: MEMORY * n for cell, n in reference.episodes.items()}
    sums = {
        cell: {name: (MEMORY * over, MEMORY * under) for name, (over, under) in found.items()}
        for cell, found in reference.sums.items()
    }
    of = ratios(cycle.columns)
    names, codes = np.unique(np.array(cycle.cells, dtype=object), return_inverse=True)
    for code, cell in enumerate(map(str, names)):
        rows = codes == code
        episodes[cell] = episodes.get(cell, 0.0) + float(rows.sum())
        mine = sums.setdefault(cell, {})
        for name, (over, under) in of.items():
            before = mine.get(name, (0.0, 0.0))
            mine[name] = (before[0] + float(over[rows].sum()), before[1] + float(under[rows].sum()))
    return _trimmed(Reference(episodes=episodes, sums=sums))


def standard_error(over: Floats, under: Floats, users: NDArray[np.int64]) -> float:
    """Of the ratio sum over / sum under, clustered by user (CR1); by episode where there is one user."""
    total = under.sum()
    influence = (over - over.sum() / total * under) / total
    known = under > 0
    groups = len(np.unique(users[known]))
    if groups < 2:
        sums, groups = influence[known], int(known.sum())
    else:
        sums = np.bincount(users[known], weights=influence[known])
    return float(np.sqrt(groups / max(1, groups - 1) * (sums**2).sum()))


def _figure(
    name: str,
    over: Floats,
    under: Floats,
    users: NDArray[np.int64],
    cells: Sequence[str],
    reference: Reference,
) -> Figure:
    value = float(over.sum() / under.sum())
    usual = _usual(name, reference)
    if usual is None:
        error = standard_error(over, under, users)
        return Figure(*(_short(x) for x in (value, value, value, error, float(under.sum()))))
    overall, by_cell = usual
    level = np.array([by_cell.get(cell, overall) for cell in cells])
    expected = float((level * under).sum() / under.sum())
    residual = over - level * under  # what the kind of request does not explain
    error = standard_error(residual + overall * under, under, users)
    adjusted = value - (expected - overall)
    return Figure(*(_short(x) for x in (value, expected, adjusted, error, float(under.sum()))))


def _usual(name: str, reference: Reference) -> tuple[float, dict[str, float]] | None:
    """The usual value overall and by cell; None without history."""
    told = {cell: found[name] for cell, found in reference.sums.items() if name in found}
    under = sum(weight for _, weight in told.values())
    if under <= 0:
        return None
    overall = sum(total for total, _ in told.values()) / under
    mean = under / max(1e-9, sum(reference.episodes.get(cell, 0.0) for cell in told))  # an episode's weight
    lean = LEAN * mean
    return overall, {
        cell: (total + lean * overall) / (weight + lean) for cell, (total, weight) in told.items()
    }


def _distance(cells: Sequence[str], reference: Reference) -> float:
    """Total variation distance of this cycle's mix of requests from the usual one; 0 without history."""
    before = sum(reference.episodes.values())
    if not before or not len(cells):
        return 0.0
    names, counts = np.unique(np.array(cells, dtype=object), return_counts=True)
    now = dict(zip(map(str, names), (counts / len(cells)).tolist(), strict=True))
    both = now.keys() | reference.episodes.keys()
    return 0.5 * float(sum(abs(now.get(c, 0.0) - reference.episodes.get(c, 0.0) / before) for c in both))


def _trimmed(reference: Reference) -> Reference:
    if len(reference.episodes) <= CELLS:
        kept = list(reference.episodes)
    else:
        kept = sorted(reference.episodes, key=lambda cell: (-reference.episodes[cell], cell))[:CELLS]
    return Reference(
        episodes={cell: round(reference.episodes[cell], 3) for cell in sorted(kept)},
        sums={
            cell: {name: (_short(a), _short(b)) for name, (a, b) in reference.sums[cell].items()}
            for cell in sorted(kept)
        },
    )


def _mean(values: Floats | None, users: NDArray[np.int64]) -> tuple[float, float] | None:
    if values is None:
        return None
    known = ~np.isnan(values)
    if known.sum() < 2:
        return None
    filled = np.where(known, values, 0.0)
    under = known.astype(np.float64)
    return _short(float(filled.sum() / under.sum())), _short(standard_error(filled, under, users))


def _codes(users: Sequence[str]) -> NDArray[np.int64]:
    return np.unique(np.array(users, dtype=object), return_inverse=True)[1].astype(np.int64)


def _short(value: float) -> float:
    return float(f"{value:.7g}")
