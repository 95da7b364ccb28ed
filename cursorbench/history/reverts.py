"""Commits that another commit takes back, as `git revert` writes it: "This reverts commit SHA".

Not for: what stands of a change afterwards (`standing.py`), which says the same of every way to undo.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cursorbench.history.branch import branch_of
from cursorbench.history.repository import Repository

_REVERTS = re.compile(r"^\W{0,3}(?:This reverts|Reverts) commit ([0-9a-f]{7,64})\b", re.MULTILINE)


def reverted(repository: Repository, head: str = "HEAD") -> dict[str, int]:
    """Commit time (ms) of the first revert of each commit in a head's history.

    A revert that is itself taken back now is none: the change is there again, and nobody means it badly. A
    revert of a revert may be taken back as well, and so on: a commit counts as reverted while one of its
    reverts stands, and a revert stands while none of its own does.

    Raises:
        InputMissingError: (exit 5) the repository has no commit `head`.
        IntegrityError: (exit 12) git cannot read its history.
    """
    branch = branch_of(repository, head)
    by: dict[str, list[str]] = {}
    for entry in repository.tokens("log", "-z", "--format=%H%n%B", "--grep=everts commit ", branch.head):
        commit, _, message = entry.lstrip("\n").partition("\n")
        for name in _REVERTS.findall(message):
            if (taken := branch.named(name)) and taken != commit:
                by.setdefault(taken, []).append(commit)
    gone = _gone(by)
    found: dict[str, int] = {}
    for taken in gone:
        times = [branch.times[one] for one in by[taken] if one not in gone]
        if later := [time for time in times if time >= branch.times[taken]]:
            found[taken] = min(later)
    return found


def _gone(by: Mapping[str, Sequence[str]]) -> set[str]:
    """Which commits are reverted in the end, by the reverts of each. Without recursion: chains may be long.

    Each is decided after all of its reverts. Messages that name each other in a circle decide nothing: a
    commit that is still being decided counts as standing.
    """
    gone: set[str] = set()
    seen: set[str] = set()
    for start in by:
        path = [] if start in seen else [(start, iter(by[start]))]
        seen.add(start)
        while path:
            commit, reverts = path[-1]
            for one in reverts:
                if one in by and one not in seen:
                    seen.add(one)
                    path.append((one, iter(by[one])))
                    break
            else:
                path.pop()
                if any(one not in gone for one in by[commit]):
                    gone.add(commit)
    return gone
