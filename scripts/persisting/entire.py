"""How far content agrees with Entire, whose trailers name a session's commit and whose counts its share."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from persisting.told import Told, items_of, standing, told

from cursorbench.history.branch import branch_of
from cursorbench.history.changes import Change, Survival, bare, recognisable, units_of
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from evals.stats.intervals import proportion


def entire(log: Path, repository: Repository) -> dict[str, Any]:
    """Agreement with the checkpoints' trailers and counts."""
    found = told(items_of(log))
    changes = [msgspec.structs.replace(one, commits=()) for one in found.changes]
    survivals = list(follow(repository, changes))
    checkpoints, sessions = _trailers(repository), _sessions(repository)
    verdicts: Counter[str] = Counter()
    for one in survivals:
        if not one.commit:
            verdicts["no commit found"] += 1
        elif not (of := checkpoints.get(one.commit)):
            verdicts["a commit without a checkpoint"] += 1
        else:
            mine = any(found.session[one.key] in sessions.get(name, ()) for name in of)
            verdicts["the session's commit" if mine else "another session's commit"] += 1
    rows = list(_shares(found, changes, survivals, checkpoints, repository))
    agree, other = verdicts["the session's commit"], verdicts["another session's commit"]
    ends = proportion(agree, agree + other) if agree + other else (None, None)
    return {
        "sessions": len(set(found.session.values())),
        "changes": len(changes),
        "verdicts": verdicts,
        "agreement": agree / (agree + other) if agree + other else None,
        "interval": ends,
        "others": standing(survivals, found.session),
        "shares": rows,
        "mean_absolute_difference": sum(abs(r["ours"] - r["entire"]) for r in rows) / len(rows)
        if rows
        else None,
    }


def _trailers(repository: Repository) -> dict[str, list[str]]:
    """The checkpoints that each commit of the branch names."""
    form = "--format=%H%n%(trailers:key=Entire-Checkpoint,valueonly)"
    entries = (entry.split() for entry in repository.tokens("log", "-z", form, "HEAD"))
    return {commit: names for commit, *names in (entry for entry in entries if entry) if names}


def _sessions(repository: Repository) -> dict[str, set[str]]:
    """The sessions of each checkpoint, as the branch of checkpoints has them."""
    found: dict[str, set[str]] = defaultdict(set)
    listed = repository.git("ls-tree", "-r", "-z", "entire/checkpoints/v1").split("\0")
    for about, _, path in (entry.partition("\t") for entry in listed):
        parts = path.split("/")
        if parts[-1] == "metadata.json" and len(parts) == 4:
            session = json.loads(repository.text(about.split(" ")[2])).get("session_id") or ""
            found["".join(parts[:2])].add(re.sub(r"^\d{4}-\d\d-\d\d-(?=.)", "", session))
    return found


def _shares(
    found: Told,
    changes: Sequence[Change],
    survivals: Sequence[Survival],
    checkpoints: dict[str, list[str]],
    repository: Repository,
) -> Iterator[dict[str, Any]]:
    """Of each checkpoint's session and commit: the agent's share of the added lines, ours and Entire's.

    Of several commits that name a checkpoint it is the one whose number of lines is nearest to Entire's.
    """
    branch = branch_of(repository, "HEAD")
    by_commit: dict[tuple[str, str], dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for change, one in zip(changes, survivals, strict=True):
        by_commit[found.session[one.key], one.commit][one.path] += units_of(change).added
    for (session, checkpoint), counts in sorted(found.shares.items()):
        committed = int(counts.get("total_committed", 0))
        rows = []
        for commit in (sha for sha, names in checkpoints.items() if checkpoint in names):
            every = total = agent = 0
            for file in branch.changed(commit):
                old, new = (repository.text(blob) for blob in (file.old, file.new))
                every += (Counter(bare(new)) - Counter(bare(old))).total()
                added = recognisable(new) - recognisable(old)
                total += added.total()
                agent += (added & by_commit[session, commit][file.path]).total()
            if total:
                share = {"ours": agent / total, "entire": counts.get("agent_lines", 0.0) / max(1, committed)}
                row = {"checkpoint": checkpoint, "commit": commit[:10], "added": every}
                rows.append((abs(every - committed), row | {"committed": committed} | share))
        if rows and committed and session in found.session.values():
            yield min(rows, key=lambda row: row[0])[1]
