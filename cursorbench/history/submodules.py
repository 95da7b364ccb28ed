"""Which paths lead into a submodule of the followed repository: its files are in that one's history.

A log's path may do so by its name alone: `docs` is a submodule, and `part/docs` a folder of the repository
itself. And a folder may have been a submodule before, or be one since. Not for: what a submodule has.
"""

from __future__ import annotations

from collections.abc import Iterable

from cursorbench.history.branch import Branch
from cursorbench.history.changes import forms
from cursorbench.history.repository import Repository


def leads_into(branch: Branch, told: str, commits: Iterable[str]) -> bool:
    """Whether the file that a log names is a submodule's.

    Args:
        commits: whose trees tell it, the first that has the file's folder; "" for none. Where none has it, it
            is any submodule that there ever was.
    """
    told = told.replace("\\", "/").strip("/")
    if not any(f"/{path}/" in f"/{told}" for path in branch.submodules()):
        return False
    for commit in commits:
        for name in (form.split("/", n)[-1] for form in forms(told) for n in range(told.count("/"))):
            if (found := in_submodule(branch.repository, commit, name)) is not None:
                return found
    return True


def in_submodule(repository: Repository, commit: str, path: str) -> bool | None:
    """Whether a path leads into a submodule of a commit; None where that has not the file's folder at all."""
    oid = repository.root(commit)
    for folder in path.split("/")[:-1]:
        entries = (e for e in repository.tree(oid) if e.name == folder and e.mode in ("40000", "160000"))
        if (entry := next(entries, None)) is None:
            return None
        if entry.mode == "160000":
            return True
        oid = entry.oid
    return False
