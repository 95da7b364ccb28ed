"""What stands of the lines that git-ai says an agent wrote: its attribution, followed by the same rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from persisting.told import standing

from cursorbench.history.branch import branch_of
from cursorbench.history.changes import Change
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.sessions import git_ai
from cursorbench.sessions.items import Attribution, Read
from cursorbench.sessions.seen import Seen


def attributed(repository: Repository, sample: str) -> dict[str, Any]:
    """The figures of the commits whose SHA begins with `sample`, as good as drawn; clusters are commits."""
    branch = branch_of(repository, "HEAD")
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    for item in _notes(repository, sample):
        if isinstance(item, Attribution) and item.author == "ai" and branch.named(item.commit):
            lines[branch.named(item.commit), item.path] |= set(range(item.start, item.end + 1))
    changes, commits = [], {}
    for (commit, path), numbers in sorted(lines.items()):
        text = repository.text(repository.find(repository.root(commit), path)).splitlines()
        theirs = "\n".join(line for n, line in enumerate(text, 1) if n in numbers)
        key = f"{commit}/{path}"
        commits[key] = commit
        changes.append(Change(key, path, "", theirs, None, None, (commit,)))
    survivals = list(follow(repository, changes))
    return {"commits": len(set(commits.values())), "standing": standing(survivals, commits)}


def _notes(repository: Repository, sample: str) -> Iterator[Read]:
    seen = Seen()
    for line in repository.git("notes", "--ref", "ai", "list").splitlines():
        blob, _, commit = line.partition(" ")
        if commit.startswith(sample):
            yield from git_ai.note(repository.text(blob).encode(), commit, commit, seen)
