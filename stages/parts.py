"""Model calls that are lost out of episodes that stay, for the exclusion audit (`exclusion.py`).

An episode that loses a call is still trained on: what is left of it is rewarded for the whole. So the way out
is another one than an episode's, and what left is compared call by call, with the calls that stayed. A longer
episode has more calls to lose, and more that stay: by calls that is no difference.

Reads columns of interactions that are not sealed. Not for: who loses what (each stage).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stages import schemas, tables
from stages.stage import Artifact

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OF_EPISODE = ("reward", "edited", "clarified")  # what a call's episode tells, beside the call itself
LOST = "error"  # finish reason of an answer that the engine lost
CUT = ("abort", LOST, "timeout")  # finish reasons of answers that somebody else ended
_COLUMNS = ["id", "episode", "finish_reason", "output_tokens", "invalid_tool_calls", "tool_calls"]


@dataclass(frozen=True, eq=False)
class Parts:
    """The model calls of some episodes that have anything to lose: those with tokens, and the lost ones.

    Attributes:
        reasons: why no gradient comes of it, "" where one does, [C].
        order: of what an episode lost, the call with the least is looked at, [C].
        episodes: the row of its episode, [C].
        values: what the policy controls, nan where not known, [C] each.
    """

    reasons: NDArray[np.object_]
    order: Ints
    episodes: Ints
    values: Mapping[str, Floats]

    def of(self, episodes: NDArray[np.bool_]) -> Parts:
        """Those of some of the episodes, [E]."""
        rows = episodes[self.episodes]
        values = {name: column[rows] for name, column in self.values.items()}
        return Parts(self.reasons[rows], self.order[rows], self.episodes[rows], values)

    def one_each(self, reason: str) -> NDArray[np.bool_]:
        """One call of each episode that lost any for this reason, [C]: what is lost together is one loss."""
        rows = np.flatnonzero(self.reasons == reason)
        rows = rows[np.argsort(self.order[rows])]
        found = np.zeros(len(self.reasons), dtype=np.bool_)
        found[rows[np.unique(self.episodes[rows], return_index=True)[1]]] = True
        return found


def read(
    interactions: Iterable[Artifact],
    ids: pa.Array,
    of_episode: Mapping[str, Floats],
    lost: Mapping[str, str],
    kept: pa.Array | None = None,
    along: Collection[str] = (),
) -> Parts | None:
    """The calls of these episodes; None when they lost none.

    Args:
        ids: the episodes, [E].
        of_episode: what is known of each by name, [E]; `OF_EPISODE` is taken of it.
        lost: why a call gives no gradient, by its id.
        kept: ids of the calls that stay; None: all that are not lost.
        along: those of the lost that only went with another, which is looked at instead.

    Raises:
        IntegrityError: a file is damaged.
    """
    if not lost:
        return None
    reasons = np.array(["", *lost.values()], dtype=object)
    order = np.random.default_rng(0).permutation(len(reasons))  # the first ones would be early in episodes
    order += [len(reasons) * (name in along) for name in ("", *lost)]
    names = pa.array(list(lost), pa.string())
    found = [
        _calls(tables.read(part / schemas.GENERATIONS_FILE, schemas.GENERATIONS, _COLUMNS), ids, names, kept)
        for artifact in interactions
        for part in tables.parts(artifact.path)
    ]
    columns = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
    episodes, places = (columns.pop(name).astype(np.int64) for name in ("episode", "place"))
    return Parts(
        reasons=reasons[places],
        order=order[places],
        episodes=episodes,
        values={
            **{name: of_episode[name][episodes] for name in OF_EPISODE if name in of_episode},
            **columns,
        },
    )


def _calls(table: pa.Table, ids: pa.Array, lost: pa.Array, kept: pa.Array | None) -> dict[str, Floats]:
    """Columns of the calls of these episodes, in capture order."""
    episode = _place(table["episode"], ids)
    place = _place(table["id"], lost) + 1
    tokens = floats(table["output_tokens"])
    told = tokens > 0
    # what came without a token, nobody knows what it was; and a call that was cut is broken by that
    whole = told & (_place(table["finish_reason"], pa.array(CUT)) < 0)
    calls = np.nan_to_num(floats(pc.list_value_length(table["tool_calls"])))
    columns = {
        "episode": episode,
        "place": place,
        "turn_tokens": np.where(told, tokens, np.nan),
        "turn_invalid_calls": np.where(whole, floats(table["invalid_tool_calls"]), np.nan),
        "turn_calls": np.where(whole, calls, np.nan),
        "turns_before": _before(episode),
    }
    stays = told if kept is None else told & (_place(table["id"], kept) >= 0)
    rows = (episode >= 0) & (stays | (place > 0))
    return {name: column[rows] for name, column in columns.items()}


def _before(episode: Floats) -> Floats:
    """How many calls of its episode came before each."""
    order = np.argsort(episode, kind="stable")
    _, first, counts = np.unique(episode[order], return_index=True, return_counts=True)
    found = np.zeros(len(episode))
    found[order] = np.arange(len(episode)) - np.repeat(first, counts)
    return found


def _place(names: pa.ChunkedArray, among: pa.Array) -> Floats:
    """The place of each name, -1 where it has none."""
    return floats(pc.fill_null(pc.index_in(names, value_set=among), -1))


def floats(column: Any) -> Floats:
    """The values of a column of numbers; null becomes nan."""
    return np.asarray(column.to_numpy(), dtype=np.float64)
