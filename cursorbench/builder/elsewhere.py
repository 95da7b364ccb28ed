"""What of a repository's files its objects do not have: other repositories within it, files of Git LFS.

A task's repository is a bundle of its own history. In its tree a submodule is an empty folder, and a file of
LFS the three lines that point to it. Not for: commits that change one (`candidates.py`).
"""

from __future__ import annotations

from cursorbench.history.repository import Repository

_SUBMODULE = "160000 "  # mode in a tree
_NAMED = 3


def told(repository: Repository, commit: str) -> str:
    """What is to be said of these; the first submodules are named. "" where there are none."""
    rows = repository.git("ls-tree", "-r", "-z", commit).split("\0")
    within = [row.partition("\t")[2] for row in rows if row.startswith(_SUBMODULE)]
    attributes = repository.text(repository.find(repository.root(commit), ".gitattributes"))
    what = []
    if within:
        what.append(f"submodules ({', '.join([*within[:_NAMED], *(['...'] if within[_NAMED:] else [])])})")
    if "filter=lfs" in attributes:
        what.append("what Git LFS keeps")
    if not what:
        return ""
    return f"not in tasks: {' and '.join(what)}; a commit whose tests need them makes no task"
