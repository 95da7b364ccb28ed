"""One cycle for the monitors: figures with their errors, held against what is usual for such requests.

A change of the users is no change of the policy. So each behaviour is compared with its history reweighted
to this cycle's requests (post-stratification by kind of work, language and size of the request):

    expected = sum over cells c of  share of c in this cycle * usual value in c
    adjusted = value - (expected - usual value overall)

A cell with little history leans on the usual value overall (`LEAN` episodes' worth). When other requests
become the usual ones, the usual value overall moves with them; that part of its movement (the composition
effect of Kitagawa 1955, doi:10.1080/01621459.1955.10501299) is kept as `mixed`, so that `charts.py` can hold
all windows against the same requests. Standard errors are of the residuals, clustered by user, and of the
usual values where the requests are not the usual ones. Not for: limits and alarms (`charts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.monitor.behaviours import BEHAVIOURS, ratios
from stages.monitor.history import Figure, Reference, Window

Floats = NDArray[np.float64]

LEAN = 20.0
MEMORY = 0.85  # of the reference, a cycle
CELLS = 48  # kinds of request that are told apart; of a rarer one the usual value overall is expected
ONE_MORE = 0.5  # by how much one more case may be expected to differ from those there are, of a mean of few
FORGOTTEN = 0.1  # episodes of a rarer one that are no longer counted: of one, those of 15 cycles ago


@dataclass(frozen=True)
class Cycle:
    """What the monitors need of one cycle's E episodes.

    Attributes:
        at, checkpoint: when (ms, the newest episode), and which checkpoint answered.
        columns: per-episode columns [E] of `behaviours.BEHAVIOURS`, nan where not known; more do no harm.
        users: whose each episode is, [E].
        cells: which kind of request each is, known before the first sampled token, [E].
        reward: training reward [E], without what changes by itself (the price of asking); nan: there is none.
        spec: which reward it is: of two, windows are not compared.
        user: what users told of it that is not what was trained on, [E] (`behaviours.contentment`); None
            where that is next to nothing.
        told: all that users told, what was trained on as well, [E].
        line: whose it is; an alarm of one is none of another.
        read_to: see `history.Window`; None where that is not known.
    """

    at: int
    checkpoint: str
    columns: Mapping[str, Floats]
    users: Sequence[str]
    cells: Sequence[str]
    spec: str = ""
    reward: Floats | None = None
    user: Floats | None = None
    told: Floats | None = None
    line: str = ""
    read_to: tuple[int, int] | None = None


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
        cohort=round(_of_another_kind(cycle.cells, reference), 4),
        read_to=cycle.read_to,
        spec=cycle.spec,
        reward=_mean(cycle.reward, users),
        user=_mean(cycle.user, users),
        told=_mean(cycle.told, users),
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
    after = _trimmed(Reference(episodes=episodes, sums=sums, rare=reference.rare))
    for name in sorted({name for found in after.sums.values() for name in found}):
        told = name in of and of[name][1].sum() > 0
        before_it = 0.0 if told else reference.mixed.get(name, 0.0)
        after.mixed[name] = _short(before_it + composition(name, reference, after))
    return after


def composition(name: str, before: Reference, after: Reference) -> float:
    """By how much the usual value overall moved from one reference to the next because of the mix alone.

    The sum over cells of the change of share times the mean of both usual values (Kitagawa 1955); a cell that
    only one of them knows has the same value in both. 0 where either knows nothing.
    """
    one, other = (
        {cell: found[name] for cell, found in each.sums.items() if name in found and found[name][1] > 0}
        for each in (before, after)
    )
    if not one or not other:
        return 0.0
    first, second = (sum(under for _, under in each.values()) for each in (one, other))
    total = 0.0
    for cell in sorted(one.keys() | other.keys()):
        (a, m), (b, n) = one.get(cell, (0.0, 0.0)), other.get(cell, (0.0, 0.0))
        values = [over / under for over, under in ((a, m), (b, n)) if under]
        total += (n / second - m / first) * sum(values) / len(values)
    return total


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


def least_error(name: str, value: float, under: Floats) -> float:
    """What one more case might add, by the widest that is to be expected of it, of as many as there are.

    A few cases that are alike have no spread, and tell little all the same: one of an amount may be twice as
    much, one of a part anything. Shares need none: `charts.scaled` has the binomial's.
    """
    spread = {"share": 0.0, "part": ONE_MORE, "amount": 1 + abs(value)}[BEHAVIOURS[name].scale]
    return spread * float((under**2).sum() / under.sum() ** 2)  # by Kish's effective number of cases


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
    least = least_error(name, value, under)
    if usual is None:
        error = float(np.hypot(standard_error(over, under, users), least))
        return Figure(*(_short(x) for x in (value, value, value, error, float(under.sum()))))
    overall, by_cell = usual
    level = np.array([by_cell.get(cell, overall) for cell in cells])
    expected = float((level * under).sum() / under.sum())
    residual = over - level * under  # what the kind of request does not explain
    error = standard_error(residual + overall * under, under, users)
    error = float(np.hypot(error * np.sqrt(1 + _unknown(name, under, cells, reference)), least))
    adjusted = value - (expected - overall)
    mixed = reference.mixed.get(name, 0.0)
    return Figure(*(_short(x) for x in (value, expected, adjusted, error, float(under.sum()), mixed)))


def _unknown(name: str, under: Floats, cells: Sequence[str], reference: Reference) -> float:
    """Variance of what is expected of these requests rather than the usual ones, over that of the cycle.

    A cell's usual value is as well known as its episodes in the reference allow; where the shares are the
    usual ones, its error is in the usual value overall as well and cancels.
    """
    shares: dict[str, float] = {}
    whole = float(under.sum())
    for cell, weight in zip(cells, under.tolist(), strict=True):
        shares[cell] = shares.get(cell, 0.0) + weight / whole
    usual = {cell: found[name][1] for cell, found in reference.sums.items() if name in found}
    total = sum(usual.values())
    return float(
        sum(
            (shares.get(cell, 0.0) - usual.get(cell, 0.0) / total) ** 2
            * len(cells)
            / (reference.episodes.get(cell, 0.0) + LEAN)
            for cell in sorted(shares.keys() | usual.keys())
        )
    )


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


def _of_another_kind(cells: Sequence[str], reference: Reference) -> float:
    """Which part of these requests is of another kind than usual: the total variation distance of the two
    mixes, less, in squares, the standard errors that so few requests give it; 0 without history."""
    usual = dict(reference.rare)
    for cell, count in reference.episodes.items():
        usual[cell] = usual.get(cell, 0.0) + count
    before, now = sum(usual.values()), len(cells)
    if not before or not now:
        return 0.0
    names, counts = np.unique(np.array(cells, dtype=object), return_counts=True)
    found = dict(zip(map(str, names), counts.tolist(), strict=True))
    both = sorted(found.keys() | usual.keys())
    here, there = (np.array([each.get(cell, 0.0) for cell in both]) for each in (found, usual))
    pooled = (here + there) / (now + before)
    errors = np.sqrt(pooled * (1 - pooled) * (1 / now + 1 / before))
    distance, chance = 0.5 * np.abs(here / now - there / before).sum(), 0.5 * errors.sum()
    return float(np.sqrt(max(0.0, distance**2 - chance**2)))


def _trimmed(reference: Reference) -> Reference:
    kept = sorted(reference.episodes, key=lambda cell: (-reference.episodes[cell], cell))[:CELLS]
    rare = {cell: MEMORY * count for cell, count in reference.rare.items()}
    for cell in reference.episodes.keys() - set(kept):
        rare[cell] = rare.get(cell, 0.0) + reference.episodes[cell]
    return Reference(
        episodes={cell: round(reference.episodes[cell], 3) for cell in sorted(kept)},
        sums={
            cell: {name: (_short(a), _short(b)) for name, (a, b) in reference.sums[cell].items()}
            for cell in sorted(kept)
        },
        rare={cell: round(rare[cell], 3) for cell in sorted(rare) if rare[cell] >= FORGOTTEN},
    )


def _mean(values: Floats | None, users: NDArray[np.int64]) -> tuple[float, float] | None:
    if values is None:
        return None
    known = ~np.isnan(values)
    if known.sum() < 2:
        return None
    filled = np.where(known, values, 0.0)
    under = known.astype(np.float64)
    # of episodes that are all alike too: an error of 0 has no unit to measure a trend in
    error = np.hypot(standard_error(filled, under, users), ONE_MORE / under.sum())
    return _short(float(filled.sum() / under.sum())), _short(float(error))


def _codes(users: Sequence[str]) -> NDArray[np.int64]:
    return np.unique(np.array(users, dtype=object), return_inverse=True)[1].astype(np.int64)


def _short(value: float) -> float:
    return float(f"{value:.7g}")
