"""What a session log tells of its changes, as `cursorbench.history` wants it, and figures of what stands."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursorbench.history.changes import HEAD, HORIZONS, Change, Survival
from cursorbench.sessions import kinds
from cursorbench.sessions.items import Commit, Edit, Feedback, Item, Read, SessionStart, UserTurn
from evals.stats.intervals import clustered


@dataclass
class Told:
    """What a log tells: changes in order, and by key the commit that it names and the session."""

    changes: list[Change] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    undone_commits: set[str] = field(default_factory=set)
    shares: dict[tuple[str, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))


def told(items: Iterable[Read], zone: int = 0) -> Told:
    """The applied changes of a log. An episode of a session is what follows one message of the user.

    `zone`: ms taken off the start of a session, where its items have no times.
    """
    found = Told()
    start: dict[str, int | None] = {}
    turns: Counter[str] = Counter()
    edits: dict[str, tuple[Edit, str]] = {}
    open_: dict[str, list[str]] = defaultdict(list)
    taken: dict[str, str] = {}
    undone: set[str] = set()
    for item in items:
        key = f"{item.session}/{item.id}" if isinstance(item, Item) else ""
        if isinstance(item, SessionStart):
            start[item.session] = None if item.at is None else item.at - zone
        elif isinstance(item, UserTurn) and not item.automatic:
            turns[item.session] += 1
        elif isinstance(item, Edit) and item.status == "applied":
            edits[key] = item, f"{item.session}#{turns[item.session]}"
            open_[item.session].append(key)
        elif isinstance(item, Edit) and item.status == "undone":
            undone.add(key)
            if (sha := taken.get(key) or item.id) and re.fullmatch(r"[0-9a-f]{7,40}", sha):
                found.undone_commits.add(sha)
        elif isinstance(item, Commit) and item.sha:
            taken.update(dict.fromkeys(open_.pop(item.session, ()), item.sha))
        elif isinstance(item, Feedback) and item.name.startswith("entire."):
            found.shares[item.session, item.target][item.name[7:]] = float(item.value)
    for key, (edit, episode) in edits.items():
        at = edit.at if edit.at is not None else start.get(edit.session)
        commits = (taken[key],) if key in taken else ()
        change = Change(
            key, edit.path, edit.before, edit.after, edit.diff, at, commits, episode, key in undone
        )
        found.changes.append(change)
        found.session[key] = edit.session
    return found


def items_of(log: Path) -> Iterator[Read]:
    """Every item below a path."""
    for _, item in kinds.read(log):
        yield item


def standing(survivals: Sequence[Survival], session: dict[str, str]) -> dict[str, Any]:
    """By horizon: lines, and the share of them that stands, by line and by change, with intervals."""
    out: dict[str, Any] = {"changes": len(survivals)}
    for horizon in (*HORIZONS, HEAD):
        known = [one for one in survivals if horizon in one.kept and one.kept[horizon].units]
        names = [session[one.key] for one in known]
        kept, units = ([getattr(one.kept[horizon], of) for one in known] for of in ("kept", "units"))
        rates = [k / n for k, n in zip(kept, units, strict=True)]
        by_line = clustered(kept, units, names, bounds=(0.0, 1.0)).to_json()
        by_change = clustered(rates, [1] * len(rates), names, bounds=(0.0, 1.0)).to_json()
        gone = sum(not number for number in kept)
        out[horizon] = {
            "known": len(known), "lines": sum(units), "none_left": gone,
            "by_line": by_line, "by_change": by_change,
        }  # fmt: skip
    return out
