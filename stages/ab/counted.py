"""Who is one user of an A/B. Clients choose users' names; keys are given out.

Arms are drawn by name, and users are what is compared, so a key that names hundreds would be hundreds of
users, in whichever arm `system_fingerprint` tells it. As in training (`stages/contributor_cap.py`) the names
of a key that is marked as shared are users each (`rtrl keys add --shared`: of a product that answers for
them), and a key that is not is one contributor:

    a name through a shared key, the only key there is, or one that names nobody else    that user
    any name through another key                                                        the key, in each arm

Such a key counts no more than the arm's median user, however much it did. As it has names in both arms, it is
left out of the sample ratio. A user counts no more than HEAVIEST median ones: two that have most of either
arm's episodes would be what is compared, and no error would tell. Not here: episodes (`observe.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputMissingError
from stages.gateway.keys import ApiKeys

Columns = Mapping[str, Sequence[object]]  # `episode_id`, `key_id`, `user`, and a column per signal
HEAVIEST = 5.0  # median users; by simulation 3 to 10 do about as well
_KEY = "\0"  # before a key's id: no user's name has one


class Counted:
    """Of one look.

    Args:
        seen: all episodes that were read, of both arms: what a key names in one of them counts for both.
        many: ids of keys whose names are users, `of_many`.
    """

    def __init__(self, seen: Iterable[Columns], many: Collection[str]) -> None:
        names: dict[str, set[str]] = {}
        for columns in seen:
            for key, user in _pairs(columns):
                if key not in many:
                    names.setdefault(key, set()).add(user)
        self._joined = {key for key, users in names.items() if len(users) > 1}

    def of(self, columns: Columns) -> Columns:
        """`columns` and one more, `unit`: whose each episode is, a user's name or a key (`is_key`)."""
        units = [_KEY + key if key in self._joined else user for key, user in _pairs(columns)]
        return {**columns, "unit": units}


def of_many(keys_dir: Path) -> set[str]:
    """Ids of the keys that many people come through: shared ones, and one that is the only key there is."""
    try:
        keys = ApiKeys.listed(keys_dir)
    except InputMissingError:  # lost: the gateway says so
        return set()
    there = [key.id for key in keys if not key.revoked]
    return {key.id for key in keys if key.shared} | set(there if len(there) == 1 else ())


def is_key(unit: str) -> bool:
    """Whether it is a key that counts as one."""
    return unit.startswith(_KEY)


def joined(columns: Columns, rows: Iterable[int]) -> dict[str, int]:
    """Of the keys that count as one in these rows: how many users each names. Key id -> names."""
    named = {(str(columns["unit"][row]), columns["user"][row]) for row in rows}
    return dict(Counter(unit.removeprefix(_KEY) for unit, _ in named if is_key(unit)))


def weights_of(units: Sequence[str], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each of an arm's units counts with, [U] in (0, 1], by how much of a metric it has, `counts` [U].

    Below 1 for keys that have more than the median of those with any, and users that have more than HEAVIEST
    times it: they have that much then.
    """
    known = counts > 0
    if not known.any():
        return np.ones(len(units))
    times = np.array([1.0 if is_key(unit) else HEAVIEST for unit in units])
    weights: NDArray[np.float64] = np.minimum(1.0, np.median(counts[known]) * times / np.maximum(counts, 1))
    return weights


def told(keys_dir: Path, *arms: Mapping[str, int]) -> list[dict[str, Any]]:
    """The keys that count as one in these arms, and how many users each names, most first."""
    users: Counter[str] = Counter()
    for arm in arms:
        users.update(arm)  # a user is in one arm
    names: dict[str, str] = {}
    with suppress(InputMissingError):
        names = {key.id: key.name for key in ApiKeys.listed(keys_dir)}
    return [{"key": key, "name": names.get(key, key), "users": n} for key, n in users.most_common()]


def _pairs(columns: Columns) -> list[tuple[str, str]]:
    return [(str(key), str(user)) for key, user in zip(columns["key_id"], columns["user"], strict=True)]
