"""What a repository has beside the followed history: commits elsewhere, and what was fetched and not taken.

Not for: the followed history itself (`branch.py`).
"""

from __future__ import annotations

from contextlib import suppress

from cursorbench.history.repository import Repository

BRANCHES = "refs/heads", "refs/remotes", "refs/tags"


def elsewhere(repository: Repository, commit: str) -> str:
    """A branch, a tag or a worktree that has a commit which the followed history has not; "" for none."""
    return _having(repository, commit, *BRANCHES) or _in_a_worktree(repository, commit)


def put_by(repository: Repository, commit: str) -> bool:
    """Whether a ref that is no branch has a commit: a pull request of a mirror, a stash, what jj keeps."""
    return bool(_having(repository, commit))


def _having(repository: Repository, commit: str, *among: str) -> str:
    having = "for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname:short)"
    return repository.git(*having, *among).strip()


def _in_a_worktree(repository: Repository, commit: str) -> str:
    """Agents' worktrees are often on no branch (a detached HEAD), which git's list of branches leaves out."""
    heads = []
    for tree in repository.git("worktree", "list", "--porcelain").split("\n\n"):
        told = dict(line.partition(" ")[::2] for line in tree.splitlines())
        if "prunable" not in told and told.get("HEAD", "").strip("0"):
            heads.append(f"^{told['HEAD']}")
    with suppress(OSError):  # a worktree of a damaged repository
        if heads and not repository.git("rev-list", "--max-count=1", commit, *heads).strip():
            return "a worktree"
    return ""


def behind(repository: Repository) -> int:
    """How many commits the branch that HEAD's follows has, as last fetched, and HEAD has not."""
    with suppress(OSError):  # git fails where HEAD is on no branch, or its branch follows none
        return int(repository.git("rev-list", "--count", "HEAD..@{upstream}"))
    return 0
