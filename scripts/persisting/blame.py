"""An independent look at what stands: `git blame` of the files of today."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from cursorbench.history.branch import branch_of
from cursorbench.history.changes import HEAD, Change, Survival, recognisable, units_of
from cursorbench.history.repository import Repository


def blame(repository: Repository, followed: Iterable[tuple[Change, Survival]]) -> dict[str, Any]:
    """Added lines of each commit and file that stand at the head, by us and by blame (-w -M -C).

    `agreement` is 1 - sum |ours - blame's| / lines, over commits and files.
    """
    branch = branch_of(repository, "HEAD")
    added: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    ours: Counter[tuple[str, str]] = Counter()
    for change, one in followed:
        if HEAD in one.kept and one.kept[HEAD].added and not one.superseded:
            added[one.commit, one.path] += units_of(change).added
            ours[one.commit, one.path] += one.kept[HEAD].added_kept
    files: dict[str, dict[str, Counter[str]]] = {}
    lines = theirs = apart = 0
    for (commit, path), wanted in added.items():
        now = branch.path_at(branch.head, path)
        if now not in files:
            files[now] = _blamed(repository, branch.head, now) if now else {}
        kept = (wanted & files[now].get(commit, Counter())).total()
        lines, theirs = lines + wanted.total(), theirs + kept
        apart += abs(kept - ours[commit, path])
    return {
        "commits_and_files": len(added),
        "lines": lines,
        "ours": ours.total(),
        "blame": theirs,
        "agreement": 1 - apart / lines if lines else None,
    }


def _blamed(repository: Repository, head: str, path: str) -> dict[str, Counter[str]]:
    """The recognisable lines of a file by the commit that blame names."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    commit = ""
    for line in repository.git("blame", "-w", "-M", "-C", "--line-porcelain", head, "--", path).split("\n"):
        if line.startswith("\t"):
            found[commit] += recognisable(line)
        elif len(word := line.partition(" ")[0]) in (40, 64) and not word.strip("0123456789abcdef"):
            commit = word
    return found
