"""What is in no figure, or gives no gradient, and why: from the artifacts' own counts.

Not for: deciding it (`stages/collect/plan.py`, `stages/distill/exits.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.collect.counted import EVENT_REASONS
from stages.collect.logs.vanished import logs_of
from stages.collect.plan import REASONS
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store

_EXITS = {
    "text_only": "read from a log that holds texts and no tokens: figures, never a gradient",
    "forgotten": "its user was forgotten: in no figure",
    "no_tokens": "the answer has no tokens",
    "trainable": "goes to training",
}
_COUNTED = ("unanswered", "automatic:", "feedback ", "invalid calls told late")  # of what collect counts
_BEGINNING = ("automatic:command", "automatic:plan")  # a press of a button, or a word for the client
_ELSEWHERE = "made in folders not called as the repository is"
_OF_LOGS = {
    "unknown files": "no session log that is known",
    "unanswered requests": "a request without an answer is no episode",
    "feedback of other kinds": "a metric that [collect.metrics] does not name",
    "feedback without its answer": "about an answer that no log has",
    "invalid calls told late": "in no figure: the answer that made the call was complete already",
}


@dataclass(frozen=True)
class Left:
    """So many of something left out for a reason. `share` None: of what is not known."""

    what: str
    reason: str
    count: int
    share: float | None
    about: str


@dataclass(frozen=True)
class Timing:
    """How many episodes were ripe, still waited, or came too late for the gradient; events too late."""

    matured: int
    waiting: int
    too_late: int
    events_too_late: int


@dataclass(frozen=True)
class LeftOut:
    """`timing` None: read from logs, where nothing waits."""

    rows: tuple[Left, ...]
    timing: Timing | None


def left_out(
    store: Store, experiences: Sequence[Artifact], why_not: pa.ChunkedArray, forgotten: int, untimed: int
) -> LeftOut:
    """Everything the experiences and their interactions count.

    Args:
        why_not: per episode why it gives no gradient, "" where it does.
        forgotten: episodes of the experiences that are in no figure.
        untimed: episodes that no window of time shows.
    """
    rows: list[Left] = []
    for name, n in _sorted(_counted(why_not)):
        about = _EXITS.get(name, "gives no gradient; it is in the figures")
        rows.append(Left("from the gradient", name, n, n / len(why_not), about))
    if forgotten:
        rows.append(Left("from the figures", "forgotten", forgotten, None, _EXITS["forgotten"]))
    if untimed:
        about = "no time is told, or it was long before the others; in the other figures"
        rows.append(Left("from the figures over time", "no window", untimed, None, about))
    collects = _collects(store, experiences)
    counted = {one.digest for one in collects}
    for experience in experiences:
        if counted.isdisjoint(experience.meta["interactions"]):
            continue
        path = experience.path / schemas.QUARANTINE_FILE
        reasons = tables.read(path, schemas.QUARANTINE, ["reason"])["reason"]
        rows += [
            Left("quarantined by distill", name, n, None, "a record, not an episode")
            for name, n in _sorted(_counted(reasons))
        ]
    metas = _metas(collects)
    for meta in metas:
        rows += _of_collect(meta, alone=len(metas) == 1)
    rows += _not_followed(metas)
    served = [meta for meta in metas if meta.get("checkpoint")]
    return LeftOut(tuple(_joined(rows)), _timing(served, len(why_not)) if served else None)


def _counted(names: pa.ChunkedArray) -> dict[str, int]:
    return {
        str(one["values"]): int(one["counts"]) for one in pc.value_counts(names).to_pylist() if one["values"]
    }


def _joined(rows: Sequence[Left]) -> list[Left]:
    """One row for each reason, those of one kind together, the most first. The share of what several collects
    count is not known."""
    found: dict[tuple[str, str], Left] = {}
    for row in rows:
        place = row.what, row.reason
        if (known := found.get(place)) is not None:
            row = replace(known, count=known.count + row.count, share=None)  # noqa: PLW2901
        found[place] = row
    kinds = list(dict.fromkeys(row.what for row in found.values()))
    return sorted(found.values(), key=lambda row: (kinds.index(row.what), -row.count))


def _collects(store: Store, experiences: Sequence[Artifact]) -> list[Artifact]:
    """The interactions that they were made from, the newest first, of those that count the same use the last.

    Collects for one checkpoint begin to read at one place, and those of the same logs read them anew, so a
    later one has counted again what the earlier ones had. Their counts stay when gc has removed their bytes.
    """
    wanted = {digest for one in experiences for digest in one.meta["interactions"]}
    found: dict[tuple[object, ...], Artifact] = {}
    for one in store.all_of("interactions", removed=True):
        if one.digest in wanted:
            found.setdefault(_read(one), one)
    return list(found.values())


def _read(collect: Artifact) -> tuple[object, ...]:
    """What a collect read, and by which rules."""
    meta = collect.meta
    if checkpoint := meta.get("checkpoint"):
        return collect.line, checkpoint, meta.get("arm"), meta.get("max_lag")
    return (collect.line, *logs_of(meta["source"])) if meta.get("source") else (collect.digest,)


def _metas(collects: Sequence[Artifact]) -> list[Mapping[str, Any]]:
    """What each of them counts, the newest first.

    What waited at an earlier one, the next met again. What a later one met again for a lasting reason, the
    one before it has told, or had in its episodes: trained on since, they are in the report.
    """
    whose = [(one.line, one.meta.get("arm")) for one in collects]
    found: list[Mapping[str, Any]] = []
    for n, one in enumerate(collects):
        meta = one.meta
        for name in ("left_behind", "events_left_behind") if meta.get("checkpoint") else ():
            counts = dict(meta.get(name) or {})
            if whose[n] in whose[:n]:
                for waited in ("immature", "limit"):
                    counts.pop(waited, None)
            if whose[n] in whose[n + 1 :]:
                older = {name: {"consumed": counts.get("consumed", 0)}}  # by a version that did not tell
                counts = _less(counts, meta.get("left_again", older)[name])
            meta = {**meta, name: counts}
        found.append(meta)
    return found


def _less(counts: Mapping[str, int], again: Mapping[str, int]) -> dict[str, int]:
    left = {name: n - again.get(name, 0) for name, n in counts.items()}
    return {name: n for name, n in left.items() if n}


def _of_collect(meta: Mapping[str, Any], *, alone: bool) -> list[Left]:
    """`alone`: there is no other collect whose episodes a share would be of, too."""
    left, events = meta.get("left_behind") or {}, meta.get("events_left_behind") or {}
    total = sum(left.values()) + meta["counts"]["episodes"]
    rows = [
        Left("episodes left by collect", name, n, n / total if alone else None, REASONS.get(name, ""))
        for name, n in _sorted(left)
    ]
    about = {**REASONS, **EVENT_REASONS}
    rows += [
        Left("events left by collect", name, n, None, about.get(name, "")) for name, n in _sorted(events)
    ]
    rows += [
        Left("quarantined by collect", name, n, None, "a record, not an episode")
        for name, n in _sorted(meta.get("quarantined") or {})
    ]
    if meta.get("lost_events"):
        rows.append(Left("events lost", "spool damaged", int(meta["lost_events"]), None, "cannot be read"))
    said = {name.replace("_", " "): n for name, n in (meta.get("said") or {}).items()}
    unanswered = {name: n for name, n in said.items() if name.startswith(_COUNTED)}
    counted = {"unknown files": int(meta.get("unknown_files") or 0), **unanswered}
    return rows + [
        Left("of the logs", name, n, None, _OF_LOGS.get(name, _of_log(name)))
        for name, n in _sorted(counted)
        if n
    ]


def _not_followed(metas: Sequence[Mapping[str, Any]]) -> list[Left]:
    """Edits that no commit of the repository shows, of all that collects with `--repo` met."""
    followed = [meta.get("persistence") or {} for meta in metas]
    elsewhere = sum(int(one.get("made_elsewhere", 0)) for one in followed)
    total = sum(int(one.get("edits", 0)) for one in followed) + elsewhere
    reasons = Counter({_ELSEWHERE: elsewhere} if elsewhere else {})
    for one in followed:
        reasons.update(one.get("reasons") or {})
    return [
        Left("edits not followed in git", name, n, n / total, _of_edit(name)) for name, n in _sorted(reasons)
    ]


def _of_edit(reason: str) -> str:
    from cursorbench.history.follow import LOST, SUPERSEDED

    if reason == SUPERSEDED:
        return "counts neither way: the later changes stand for it"
    return "counts as lost" if reason in LOST else "counts as not measured"


def _of_log(name: str) -> str:
    if name in _BEGINNING:
        return "not written by a person; what answers one by itself is an episode all the same"
    return (
        "not written by a person: no request"
        if name.startswith("automatic")
        else "there is no answer that it is about"
    )


def _timing(metas: Sequence[Mapping[str, Any]], matured: int) -> Timing:
    def total(key: str, name: str) -> int:
        return sum(int((meta.get(key) or {}).get(name, 0)) for meta in metas)

    return Timing(
        matured=matured,
        waiting=total("left_behind", "immature"),
        too_late=total("left_behind", "lag"),
        events_too_late=sum(
            int(meta.get("events_too_late", 0)) + int(meta.get("events_after_horizon", 0)) for meta in metas
        ),
    )


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
