"""A history gone through for a build: its candidates, and which commits it makes no task of, whatever is run.

Not for: what a commit's own change rejects it for (`candidates.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cursorbench.builder.candidates import NO_CANDIDATE, Candidate, Rejected, Scan, scan
from cursorbench.builder.requests import Traced
from cursorbench.builder.settings import Settings
from cursorbench.history.branch import Branch, branch_of
from cursorbench.history.repository import Repository
from cursorbench.history.reverts import reverted


@dataclass(frozen=True)
class Scanned:
    """What git alone says of a history.

    Attributes:
        candidates: up to the limit, the newest first.
        filtered: candidates that git alone rejected, of the commits looked at.
        passed_over: commits that are no candidates, by reason.
        rejected: commits that make no task; reverted ones also where nobody looked.
        untraced: commits that no session is traced to, where only traced ones are wanted.
    """

    branch: Branch
    candidates: tuple[Candidate, ...]
    filtered: tuple[Rejected, ...]
    passed_over: Mapping[str, int]
    rejected: frozenset[str]
    untraced: frozenset[str]


def scanned(repository: Repository, head: str, settings: Settings, traced: Traced | None) -> Scanned:
    """Go through the history of a head, the newest commit first."""
    branch = branch_of(repository, head)
    only = None
    if traced is not None and not settings.untraced:
        only = frozenset({*traced.requests, *traced.silent})
    gone = reverted(repository, head)
    candidates: list[Candidate] = []
    filtered: list[Rejected] = []
    passed: dict[str, str] = {}
    for one in scan(repository, branch, Scan(settings.bounds, settings.since, only)):
        if isinstance(one, Rejected):
            if one.reason in NO_CANDIDATE:
                passed[one.commit] = one.reason
            else:
                filtered.append(one)
        elif one.commit in gone:
            filtered.append(Rejected(one.commit, one.subject, "reverted_later"))
        else:
            candidates.append(one)
            if settings.limit is not None and len(candidates) >= settings.limit:
                break
    return Scanned(
        branch,
        tuple(candidates),
        tuple(filtered),
        dict(Counter(passed.values())),
        frozenset({*gone, *passed, *(one.commit for one in filtered)}),
        frozenset() if only is None else frozenset(branch.order) - only,
    )
