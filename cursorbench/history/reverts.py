"""Commits that another commit takes back: "This reverts commit SHA", as `git revert` writes it, "Reverts
OWNER/NAME#12", as GitHub describes the pull request that takes back another, and "This reverts merge request
!12", as GitLab does, and "This reverts pull request #12.", as Bitbucket does.

A merge that is taken back (`git revert -m 1`) takes back what it brought.

Not for: what stands of a change afterwards (`standing.py`), which says the same of every way to undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cursorbench.history.branch import Branch, branch_of
from cursorbench.history.repository import Repository

_REVERTS = re.compile(r"^\W{0,3}(?:This reverts|Reverts) commit ([0-9a-f]{7,64})\b", re.MULTILINE)
_REVERTS_REQUEST = re.compile(
    r"^(?:Reverts [\w./-]*(#\d+)|This reverts (?:merge request [\w./-]*(!\d+)|pull request (#\d+)\.?))\s*$",
    re.MULTILINE,
)
_REQUEST = re.compile(  # subjects that GitHub and Bitbucket write
    r".*\((?:pull request )?(#\d+)\)|Merge pull request (#\d+) from .*"
)
_MERGE_REQUEST = re.compile(r"^See merge request [\w./-]*(!\d+)\s*$", re.MULTILINE)  # GitLab, of its merges


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
    for commit, taken in _taken_back(repository, branch):
        if taken != commit:
            by.setdefault(taken, []).append(commit)
    gone = _gone(by)
    found: dict[str, int] = {}
    for taken in gone:
        times = [branch.times[one] for one in by[taken] if one not in gone]
        if later := [time for time in times if time >= branch.times[taken]]:
            found[taken] = min(later)
    for merge, time in [(one, time) for one, time in found.items() if len(branch.parents[one]) > 1]:
        for brought in repository.git("rev-list", merge, f"^{branch.parent(merge)}").split():
            found[brought] = min(time, found.get(brought, time))
    return found


def _taken_back(repository: Repository, branch: Branch) -> Iterator[tuple[str, str]]:
    """(commit, the one that its message says it takes back)."""
    requests: dict[str, str] | None = None
    for entry in repository.tokens("log", "-z", "--format=%H%n%B", "--grep=everts ", branch.head):
        commit, _, message = entry.lstrip("\n").partition("\n")
        named = [taken for name in _REVERTS.findall(message) if (taken := branch.named(name))]
        if not named and (numbers := _REVERTS_REQUEST.findall(message)):
            requests = _requests(repository, branch) if requests is None else requests
            named = [requests[one] for one in map("".join, numbers) if one in requests]
        for taken in named:
            yield commit, taken


def _requests(repository: Repository, branch: Branch) -> dict[str, str]:
    """The commit that each pull or merge request became, by its number: the oldest whose message has it."""
    found: dict[str, str] = {}
    for entry in repository.tokens("log", "-z", "--topo-order", "--format=%H%n%s%n%b", branch.head):
        commit, subject, body = (*entry.strip("\n").split("\n", 2), "", "")[:3]
        if told := _REQUEST.fullmatch(subject):
            found[told[1] or told[2]] = commit
        for number in _MERGE_REQUEST.findall(body):
            found[number] = commit
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
