"""No user and no API key contributes more than a capped share of a batch's gradient, of a rate, or of a mean.

A contributor's contribution to the gradient is c_u = sum over their tokens of |coefficient| (importance
weight times |advantage|): the size of what they can do to the loss; to a rate, a mean or a median it is their
episodes. Those above the cap are scaled down to a common level L, such that afterwards each of them has
exactly the share `cap` of the total:

    f_u = min(1, L / c_u),   L = cap * sum_u min(c_u, L)

Clients choose users' names, so one client could be many users; keys are given out. Scaling users changes
the keys' shares and the other way round, so both are repeated until both caps hold. A key that is marked
as shared (`rtrl keys add --shared`: of a product that answers for its users' names) is its users, not one
contributor, and is not capped as a whole.

Where nearly all there is came from few (four of twelve users, one of three keys), the caps would throw nearly
all of it away and leave the step to the occasional others. They are relaxed then, both by the same part of
the way to 1, just so far that the share `least` of all contributions is kept; `relaxed` says so. They are as
well, by a few thousandths, where both can only just hold: scaling one side and the other would never end.

Not here: who the contributors are, and detecting that they act together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_TOLERANCE = 1e-9
_ROUNDS = 1000
_HALVINGS = 12  # of the way to 1, when the caps are relaxed
BARELY = 0.01  # relaxed no further, the caps were not too narrow: they could only just hold at once

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weigh = Callable[[Ints], Floats]  # what each of these episodes counts for in their mean, in (0, 1]
_Found = tuple[Floats, Floats, float, bool]  # factors of users and of keys, the share kept, both caps hold
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Capped:
    """What the caps do to a batch of E episodes.

    Attributes:
        user_cap, key_cap: the caps in force, shares.
        relaxed: how far they are on the way from what was asked for to 1; 0 as a rule.
        users, keys: name -> factor, only those below 1.
        factor: [E] in (0, 1], user's times key's.
        kept: share of the batch's contributions that is left.
    """

    user_cap: float
    key_cap: float
    relaxed: float
    users: dict[str, float]
    keys: dict[str, float]
    factor: Floats
    kept: float


def effective_cap(cap: float, contributors: int) -> float:
    """The cap in force: at least 2 / (contributors), so that a small team is not flattened.

    Without this, five users could never all stay below a share of 0.1, and every one of them would be
    scaled down to the quietest.
    """
    return min(1.0, max(cap, 2.0 / contributors)) if contributors else 1.0


def cap_factors(contributions: Floats, cap: float, exempt: Bools | None = None) -> Floats:
    """Factor in (0, 1] for each contributor's coefficients, [N]. `contributions` [N] are not negative.

    Those `exempt` [N] count in the total and are not scaled. A `cap` of 1 scales nobody.
    """
    capping = contributions > 0 if exempt is None else (contributions > 0) & ~exempt
    largest_first = np.sort(contributions[capping])[::-1]
    rest, level = float(contributions.sum()), float("inf")
    for capped in range(len(largest_first) + 1):
        if capped * cap >= 1:
            break
        # the common level if exactly the `capped` largest are scaled down to it
        level = cap * rest / (1 - capped * cap)
        if capped == len(largest_first) or largest_first[capped] <= level:
            break
        rest -= largest_first[capped]
    factors = np.ones(len(contributions))
    above = capping & (contributions > level)
    factors[above] = level / contributions[above]
    return factors


def cap_contributions(
    users: Sequence[str],
    keys: Sequence[str],
    sizes: Floats,
    *,
    user_cap: float,
    key_cap: float,
    shared: Collection[str] = (),
    least: float = 0.0,
) -> Capped:
    """Both caps over a batch: episode e is `users[e]`'s through `keys[e]` and contributes `sizes[e]`, [E].

    A key cap of 2 / (contributors) is in force where there are few: personal keys, and users of shared ones.

    Args:
        shared: keys that are not capped as a whole.
        least: share of the contributions that is kept at least, for which the caps are relaxed.
    """
    user_names, user_of = np.unique(np.array(users, dtype=object), return_inverse=True)
    key_names, key_of = np.unique(np.array(keys, dtype=object), return_inverse=True)
    is_shared = np.array([key in shared for key in key_names], dtype=np.bool_)
    there, through_shared = sizes > 0, is_shared[key_of]
    personal = len(set(key_of[there & ~through_shared]))
    asked = np.array(
        [
            effective_cap(user_cap, len(set(user_of[there]))),
            effective_cap(key_cap, personal + len(set(user_of[there & through_shared]))),
        ]
    )
    sides = _Side(user_of, len(user_names), None), _Side(key_of, len(key_names), is_shared)

    def caps(relaxed: float) -> Floats:
        return asked + relaxed * (1 - asked) if relaxed < 1 else np.ones(2)

    relaxed, found = _relaxed(lambda share: _both(sizes, sides, caps(share), least), least)
    by_user, by_key, kept, _ = found
    return Capped(
        user_cap=float(caps(relaxed)[0]),
        key_cap=float(caps(relaxed)[1]),
        relaxed=relaxed,
        users=_below_one(user_names, by_user),
        keys=_below_one(key_names, by_key),
        factor=by_user[user_of] * by_key[key_of],
        kept=kept,
    )


def equally(rows: Ints) -> Floats:
    """Every episode counts once."""
    return np.ones(len(rows))


def weigh_by(
    users: pa.Array,
    keys: pa.Array,
    *,
    user_cap: float,
    key_cap: float,
    shared: Collection[str],
    least: float,
) -> Weigh:
    """What some of E episodes count for in a mean or a median of theirs; each counts once before the caps.

    Else a flood would move what others are held against, however little of the gradient it is itself.

    Args:
        users, keys: names, [E]; none is "".
        shared, least: as of `cap_contributions`.
    """
    users, keys = (names.fill_null("").dictionary_encode() for names in (users, keys))
    user_names, key_names = users.dictionary.to_pylist(), keys.dictionary.to_pylist()
    user_of, key_of = (np.asarray(codes.indices, dtype=np.int64) for codes in (users, keys))
    personal = np.array([name not in shared for name in key_names], dtype=np.bool_)

    def weigh(rows: Ints) -> Floats:
        by_key = np.bincount(key_of[rows], minlength=len(key_names))[personal].max(initial=0)
        by_user = np.bincount(user_of[rows]).max(initial=0)
        if by_user <= user_cap * len(rows) and by_key <= key_cap * len(rows):
            return equally(rows)  # sorting a million names takes seconds
        of = user_of[rows] * len(key_names) + key_of[rows]
        whose, contributor, episodes = np.unique(of, return_inverse=True, return_counts=True)
        capped = cap_contributions(
            [user_names[one // len(key_names)] for one in whose],
            [key_names[one % len(key_names)] for one in whose],
            episodes.astype(np.float64),
            user_cap=user_cap,
            key_cap=key_cap,
            shared=shared,
            least=least,
        )
        return capped.factor[contributor]

    return weigh


def _relaxed(capped_at: Callable[[float], _Found], least: float) -> tuple[float, _Found]:
    """How far the caps are moved towards none (0 to 1), so that both hold and `least` is kept."""

    def will_do(tried: _Found) -> bool:
        return tried[3] and tried[2] >= least

    asked = capped_at(0.0)
    if will_do(asked):
        return 0.0, asked
    low, high, found = 0.0, 1.0, capped_at(1.0)  # no caps at all keep everything
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if will_do(tried := capped_at(middle)):
            high, found = middle, tried
        else:
            low = middle
    return high, found


class _Side(NamedTuple):
    """Users, or keys: whose each episode is [E], how many they are, who of them is exempt [N]."""

    of: NDArray[np.intp]
    n: int
    exempt: Bools | None


def _both(sizes: Floats, sides: tuple[_Side, _Side], caps: Floats, least: float) -> _Found:
    """Factors of users and keys within both caps, the share kept, and whether both caps hold.

    They do not where the share is below `least`, and nobody goes on, or after `_ROUNDS`.
    """
    factors = [np.ones(side.n) for side in sides]
    left, total, hold = sizes, float(sizes.sum()), False
    for _ in range(_ROUNDS):
        smallest = 1.0
        for at, side in enumerate(sides):
            by = cap_factors(_sums(side.of, left, side.n), float(caps[at]), side.exempt)
            factors[at] *= by
            left = left * by[side.of]
            smallest = min(smallest, float(by.min(initial=1.0)))
        hold = smallest > 1 - _TOLERANCE
        if hold or left.sum() < least * total:
            break
    return factors[0], factors[1], float(left.sum()) / total if total else 1.0, hold


def _sums(of: NDArray[np.intp], sizes: Floats, n: int) -> Floats:
    return np.bincount(of, sizes, n).astype(np.float64)


def _below_one(names: NDArray[np.object_], factors: Floats) -> dict[str, float]:
    below = factors < 1 - _TOLERANCE
    return dict(zip(map(str, names[below]), factors[below].tolist(), strict=True))
