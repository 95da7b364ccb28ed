"""Which episodes are taken, and why the others are left behind. Pure, on columns.

An episode is left behind for exactly one reason, the first of `REASONS` that applies. None of them can
be brought about by what the model writes: broken calls, overflow, time-outs and empty answers stay.
Not for: reading or writing anything.

    E  episodes, G  generations, V  events of the window (see `scan.Scan`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from stages import exclusion
from stages.collect.follow_ups import follow_ups
from stages.collect.scan import EVENT_CODE, Bools, Ints, Scan
from stages.exits import EXITS

REASONS = {
    name: EXITS[name].what
    for name in ("no_train", "forgotten", "consumed", "arm", "unrelated", "lag", "immature", "limit")
}
TAKEN = "taken"
# what no later checkpoint changes: consumed, unrelated, not to be read, or too far from what comes after live
_SETTLED = ("no_train", "forgotten", "consumed", "unrelated")


@dataclass(frozen=True)
class Rules:
    """What makes an episode ready. Times in ms.

    Attributes:
        lags: distance to live by checkpoint digest, None for unrelated.
        after_live: checkpoints that live is an ancestor of, as after a rollback: they may be live again.
        no_train: episodes that had a no-train request before the window.
        most: of more ready episodes the newest so many are taken; 0 takes all.
    """

    arms: frozenset[str]
    max_lag: int
    horizon_ms: int  # grace included
    lags: Mapping[str, int | None]
    consumed: frozenset[str]
    after_live: frozenset[str] = frozenset()
    no_train: frozenset[str] = frozenset()
    most: int = 0


@dataclass(frozen=True)
class Plan:
    """The decision. `left` is an index into `tuple(REASONS)`, -1 for episodes that are taken.

    Attributes:
        first_row, last_row: rows of an episode's first and last generation, [E].
        last_at: time of its last generation or edit, [E].
        lag: largest distance of a sampler, -1 for unrelated, [E].
        follow_up: row of the first generation of the session's next episode, whose request is the
            user's next message; -1 when there is none or the client told it by an event, [E].
        take_generation, reseal: [G]; reseal where the prompt extends something outside the episode.
        take_event: [V].
        resume_seq: the first seq that a later collect of a descendant of the live checkpoint needs.
    """

    left: Ints
    first_row: Ints
    last_row: Ints
    last_at: Ints
    lag: Ints
    follow_up: Ints
    take_generation: Bools
    reseal: Bools
    take_event: Bools
    resume_seq: int

    @property
    def taken(self) -> Ints:
        """Codes of the episodes taken, in capture order."""
        codes = np.flatnonzero(self.left < 0)
        return codes[np.argsort(self.first_row[codes], kind="stable")]

    def ripe_at(self, horizon_ms: int) -> Ints:
        """When each episode's training horizon has passed (ms), [E]."""
        return self.last_at + horizon_ms


def last_activity(scan: Scan) -> Ints:
    """Time (ms) of the last generation (when its request came) or applied edit of each episode, [E]."""
    last = np.full(len(scan.episodes), np.iinfo(np.int64).min)
    np.maximum.at(last, scan.g_episode, scan.g_at)
    edits = (scan.v_type == EVENT_CODE["edit_applied"]) & scan.v_own_key
    np.maximum.at(last, scan.g_episode[scan.v_generation[edits]], scan.v_at[edits])
    return last


def plan(scan: Scan, rules: Rules, now: int, forgotten: Bools) -> Plan:
    """Decide for every episode of the window.

    Args:
        now: ms; an episode is mature when its last activity is a horizon ago.
        forgotten: generations whose payload can no longer be opened, [G].
    """
    n = len(scan.episodes)
    last_at = last_activity(scan)
    lag, unrelated = _lags(scan, rules)
    consumed = np.fromiter((e in rules.consumed for e in scan.episodes), dtype=np.bool_, count=n)
    no_train = np.fromiter((e in rules.no_train for e in scan.episodes), dtype=np.bool_, count=n)
    arm = np.array([name not in rules.arms for name in scan.arms], dtype=np.bool_)
    conditions = {
        "no_train": no_train | _any(n, scan.g_episode, scan.g_no_train),
        "forgotten": _any(n, scan.g_episode, forgotten),
        "consumed": consumed,
        "arm": _any(n, scan.g_episode, arm[scan.g_arm]),
        "unrelated": unrelated,
        "lag": lag > rules.max_lag,
        "immature": last_at + rules.horizon_ms > now,
    }
    left = np.full(n, -1)
    for code, reason in reversed(list(enumerate(conditions))):
        left[conditions[reason]] = code
    first_row, last_row = _ends(scan, n)
    if rules.most:
        left[_beyond(np.flatnonzero(left < 0), last_at, first_row, rules.most)] = [*REASONS].index("limit")
    take = (left < 0)[scan.g_episode]
    settled = [conditions[name] for name in _SETTLED]
    in_episode = (scan.g_base >= 0) & (scan.g_episode[scan.g_base] == scan.g_episode)
    take_event = np.zeros(len(scan.v_seq), dtype=np.bool_)
    attached = scan.v_own_key & (scan.v_generation >= 0)
    take_event[attached] = take[scan.v_generation[attached]]
    return Plan(
        left=left,
        first_row=first_row,
        last_row=last_row,
        last_at=last_at,
        lag=np.where(unrelated, -1, lag),
        follow_up=follow_ups(scan, first_row, last_row, ~scan.g_no_train & ~forgotten),
        take_generation=take,
        reseal=take & (scan.g_prefix > 0) & ~in_episode,
        take_event=take_event,
        resume_seq=_resume(scan, [*settled, conditions["lag"] & ~_after_live(scan, rules)], first_row),
    )


def audit(scan: Scan, decided: Plan) -> list[dict[str, Any]]:
    """The exclusion audit of the window: one row per exit, what is taken last; see `exclusion.audit`.

    Texts are sealed here, so the behaviours are those that counts and events tell.
    """
    n = len(scan.episodes)
    left = [*REASONS, ""]  # -1, taken, is the last
    calls = pc.fill_null(pc.list_value_length(scan.generations["tool_calls"]), 0)
    edits = (scan.v_type == EVENT_CODE["edit_applied"]) & scan.v_own_key & (scan.v_generation >= 0)
    edited = np.zeros(n)
    edited[scan.g_episode[scan.v_generation[edits]]] = 1.0
    user = np.zeros(n, dtype=np.int64)
    user[scan.g_episode] = scan.g_user
    return exclusion.audit(
        [left[code] for code in decided.left],
        user,
        {
            "invalid_calls": _sum(n, scan.g_episode, scan.g_invalid),
            "edited": edited,
            "output_tokens": _sum(n, scan.g_episode, scan.g_output),
            "calls": _sum(n, scan.g_episode, np.asarray(calls, dtype=np.int64)),
            "turns": np.bincount(scan.g_episode, minlength=n).astype(np.float64),
        },
        kept=TAKEN,
    )


def _sum(n: int, episode: Ints, values: Ints) -> exclusion.Floats:
    return np.bincount(episode, weights=values, minlength=n).astype(np.float64)


def _any(n: int, episode: Ints, flag: Bools) -> Bools:
    found = np.zeros(n, dtype=np.bool_)
    found[episode[flag]] = True
    return found


def _lags(scan: Scan, rules: Rules) -> tuple[Ints, Bools]:
    """Largest distance to live per episode, and whether any of its samplers is unrelated."""
    of_set = np.array(
        [max((_distance(rules.lags.get(c)) for c in digests), default=0) for digests in scan.samplers],
        dtype=np.int64,
    )
    lag = np.zeros(len(scan.episodes), dtype=np.int64)
    np.maximum.at(lag, scan.g_episode, of_set[scan.g_samplers])
    return lag, lag == _FAR


def _after_live(scan: Scan, rules: Rules) -> Bools:
    """Episodes that a checkpoint after live has sampled in: where that is live again, they are near."""
    of_set = np.array([not rules.after_live.isdisjoint(digests) for digests in scan.samplers], dtype=np.bool_)
    return _any(len(scan.episodes), scan.g_episode, of_set[scan.g_samplers])


_FAR = 1 << 40


def _distance(lag: int | None) -> int:
    return _FAR if lag is None else lag


def _ends(scan: Scan, n: int) -> tuple[Ints, Ints]:
    rows = np.arange(len(scan.g_episode))
    first = np.full(n, len(rows))
    np.minimum.at(first, scan.g_episode, rows)
    last = np.full(n, -1)
    np.maximum.at(last, scan.g_episode, rows)
    return first, last


def _beyond(ready: Ints, last_at: Ints, first_row: Ints, most: int) -> Ints:
    """Of episodes that are `ready` all but the newest `most`, by their last activity."""
    order = np.lexsort((first_row[ready], last_at[ready]))  # the newest last
    older: Ints = ready[order[: max(len(order) - most, 0)]]
    return older


def _resume(scan: Scan, settled: Sequence[Bools], first_row: Ints) -> int:
    """Everything before is settled for good, by any of these reasons: another arm's episode too."""
    rows = first_row[~np.any(settled, axis=0)]
    if not len(scan.g_seq):
        return 0
    return int(scan.g_seq[rows].min()) if len(rows) else int(scan.g_seq[-1]) + 1
