"""Commits that another commit takes back, as `git revert` writes it: "This reverts commit SHA".

Not for: what stands of a change afterwards (`standing.py`), which says the same of every way to undo.
"""

from __future__ import annotations

import re

from cursorbench.history.branch import branch_of
from cursorbench.history.repository import Repository

_REVERTS = re.compile(r"^\W{0,3}(?:This reverts|Reverts) commit ([0-9a-f]{7,64})\b", re.MULTILINE)


def reverted(repository: Repository, head: str = "HEAD") -> dict[str, int]:
    """Commit time (ms) of the first revert of each commit in a head's history.

    A revert that was itself taken back is none: the change is there again, and nobody means it badly.

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
    found: dict[str, int] = {}
    for taken, reverts in by.items():
        times = [branch.times[one] for one in reverts if one not in by]
        if later := [time for time in times if time >= branch.times[taken]]:
            found[taken] = min(later)
    return found
