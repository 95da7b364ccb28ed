"""What git repositories tell of a window's edits: `edit_survival` at fixed horizons, and `edit_reverted`.

For users whose editors send edits but not what stands of them later, and for agents that send nothing, whose
edits the gateway reads off their calls. An edit is looked for in the repository whose name its path has, a
relative one where there is only one. Episodes whose client measures by itself are left to it.
Following: `cursorbench/history`, as for session logs (`logs/survival.py`). Not for: sealing (`sealing.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cursorbench.sessions import items as said
from stages.collect.columns import Payloads
from stages.collect.logs.edits import KeptEdits, belongs, names_of
from stages.collect.logs.spill import Spill
from stages.collect.logs.state import Session
from stages.collect.logs.survival import Survivals, merged, repository_facts, survivals
from stages.collect.plan import Plan
from stages.collect.scan import EVENT_CODE, Scan
from stages.collect.sealing import Later
from stages.errors import IntegrityError
from stages.reactions import told_again
from stages.records import EVENT_TYPES, WHOLE
from stages.spool import codec
from stages.stage import Progress
from stages.vault import UserForgottenError, Vault

_PLACE = said.Place("spool", 0)
_WANTED = ("edit_applied", "edit_rejected")


@dataclass(frozen=True)
class Followed:
    """What came of it.

    Attributes:
        later: what is told behind an edit, by the row of its event in the window.
        figures: as `Survivals.figures`, of all repositories.
        warnings: what the repositories' user should know.
    """

    later: Mapping[int, Sequence[Later]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def facts_of(repos: Sequence[str], root: Path) -> list[dict[str, str]]:
    """What an answer hangs on, of each repository once; relative paths are of `root`.

    Raises InputMissingError (5), UsageError (2).
    """
    places = {(root / repo).resolve(): root / repo for repo in repos}  # one named twice has no edits: whose?
    return [repository_facts(place) for place in places.values()]


def follow(
    facts: Sequence[Mapping[str, str]],
    scan: Scan,
    plan: Plan,
    spool_dir: Path,
    vault: Vault,
    out_dir: Path,
    progress: Progress,
) -> Followed:
    """Follow the edits of the episodes that are taken through the histories that `facts` tells."""
    with Spill(out_dir) as spill:
        kept = [KeptEdits(Path(one["path"]), all_of_it=False, spill=spill) for one in facts]
        paths: dict[str, str] = {}
        elsewhere = _sort(kept, _edits(scan, plan, spool_dir, vault), paths)
        found = [
            survivals(Path(one["path"]), one["head"], of, progress)
            for one, of in zip(facts, kept, strict=True)
        ]
    figures = merged([one.figures for one in found]) | {"made_elsewhere": elsewhere}
    later = {int(row): told for one in found for row, told in _later(one, paths)}
    warnings = [warning for one in found for warning in one.warnings]
    if elsewhere and not paths:
        names = ", ".join(names_of(one.root)[0] for one in kept)
        warnings.append(
            f"all edits ({elsewhere}) were made in folders not called {names}, and are left out: "
            "name a repository by a symbolic link that is called as they are"
        )
    return Followed(later, figures, tuple(warnings))


def _later(found: Survivals, paths: Mapping[str, str]) -> Iterator[tuple[str, list[Later]]]:
    for row in {*found.events, *found.reverted}:
        yield row, [one._replace(data={"path": paths[row], **one.data}) for one in found.later(row)]


@dataclass(frozen=True)
class _Edit:
    row: int
    session: str
    episode: str
    item: said.Edit


def _sort(kept: Sequence[KeptEdits], edits: Iterator[_Edit], paths: dict[str, str]) -> int:
    """Each edit to the repository that it was made in, `paths` by row; how many were made in none of them."""
    elsewhere = 0
    for edit in edits:
        mine = [one for one in kept if belongs(one.root, "", edit.item.path)]
        if len(mine) != 1:
            elsewhere += 1
            continue
        paths[str(edit.row)] = edit.item.path
        session = Session(kind="spool", id=edit.session, name=edit.session)
        mine[0].add(session, edit.item, str(edit.row), edit.episode)
    return elsewhere


def _edits(scan: Scan, plan: Plan, spool_dir: Path, vault: Vault) -> Iterator[_Edit]:
    """The edits that count, of episodes whose client does not measure; none that cannot be read any more."""
    of_type = {
        name: plan.take_event & (scan.v_type == EVENT_CODE[name]) for name in (*_WANTED, "edit_survival")
    }
    episode = scan.g_episode[scan.v_generation] if len(scan.g_episode) else scan.v_generation
    measured = np.unique(episode[of_type["edit_survival"]])
    rows = np.flatnonzero((of_type["edit_applied"] | of_type["edit_rejected"]) & ~np.isin(episode, measured))
    by_episode: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_episode[int(episode[row])].append(row)
    payloads = Payloads(spool_dir)
    try:
        for code, members in by_episode.items():
            opened = [(row, _opened(scan, row, payloads, vault)) for row in members]
            told = [(row, data) for row, data in opened if data is not None]
            again = told_again([(EVENT_TYPES[scan.v_type[row]], data) for row, data in told])
            for n, (row, data) in enumerate(told):
                if of_type["edit_applied"][row] and n not in again:
                    session = scan.generations["session"][int(scan.v_generation[row])].as_py()
                    yield _Edit(row, session, scan.episodes[code], _item(scan, row, data))
    finally:
        payloads.close()


def _opened(scan: Scan, row: int, payloads: Payloads, vault: Vault) -> dict[str, Any] | None:
    """An event's data; None where it cannot be read any more."""
    event = scan.events.slice(row, 1).select(_COLUMNS).to_pylist()[0]
    try:
        sealed = payloads.read(event["segment"], event["start"], event["size"])
        if not sealed:
            return None if sealed is None else codec.decode_data(event["data"].encode())
        plain = vault.unseal(event["user"], sealed, codec.event_aad(event["key_id"], event["id"]))
        return codec.decode_data(plain)
    except (UserForgottenError, IntegrityError, ValueError):
        return None


_COLUMNS = ["id", "key_id", "user", "data", "segment", "start", "size"]


def _item(scan: Scan, row: int, data: Mapping[str, Any]) -> said.Edit:
    texts: dict[str, Any] = {name: data.get(name) for name in ("before", "after", "diff")}
    if data.get(WHOLE):  # written anew: nobody tells what stood there
        texts["before"] = None
    return said.Edit(
        session="", id=str(row), at=int(scan.v_at[row]), place=_PLACE,
        path=str(data.get("path", "")), status="applied", **texts,
    )  # fmt: skip
