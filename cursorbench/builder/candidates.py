"""Commits that could become tasks: those that change source and tests together, by what git tells alone.

Everything here costs milliseconds a commit; what only running tells is in `validate.py`. Each filter is a
line of the table in docs/bench-build.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from cursorbench.builder import form, paths
from cursorbench.builder.patch import File, files
from cursorbench.history.branch import Branch
from cursorbench.history.repository import Repository, milliseconds

NO_SOURCE: Final = "no_source"
NO_TESTS: Final = "no_tests"
NO_CANDIDATE: Final = frozenset({"merge", "root", NO_SOURCE, NO_TESTS})
"""Reasons of commits that are no candidates at all: counted, not listed."""

_AUTOMATIC = re.compile(r"\[bot\]|\bbot\b|dependabot|renovate|pre-commit-ci|github-actions", re.IGNORECASE)
_REVERT = re.compile(
    r"^(revert\b|reapply\b|back ?out\b)|^This reverts commit [0-9a-f]{7,}", re.IGNORECASE | re.MULTILINE
)
_MISSING = re.compile(r"(?:could not fetch|unable to read) (?:\w+ )??([0-9a-f]{40,64})\b")
_NO_BEHAVIOUR = re.compile(r"^(style|chore|ci|build|docs?|release|bump)(\([^)]*\))?!?:", re.IGNORECASE)


@dataclass(frozen=True)
class Bounds:
    """What size of change makes a task. Lines are added plus deleted ones, renames recognised."""

    least_lines: int = 2
    most_lines: int = 1_500
    most_files: int = 30
    most_tests: int = 3_000


@dataclass(frozen=True)
class Candidate:
    """A commit with a change of source and of tests against its only parent.

    Attributes:
        at: its commit time, ISO 8601 with zone.
        solution: files of the change, tests apart; `tests`: the others.
    """

    commit: str
    base: str
    at: str
    message: str
    solution: tuple[File, ...]
    tests: tuple[File, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    @property
    def sources(self) -> tuple[File, ...]:
        """Files of the solution that are source."""
        return tuple(file for file in self.solution if paths.kind_of(file.path) == "source")

    @property
    def lines(self) -> int:
        """Lines of the solution, added plus deleted."""
        return sum(file.added + file.deleted for file in self.solution)


@dataclass(frozen=True)
class Rejected:
    """A commit that makes no task, and why: a fixed word, and what it was in this case."""

    commit: str
    subject: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Scan:
    """What to look at.

    Attributes:
        since: no commit older than this, ms; 0 for all.
        only: these commits alone; None for all of the branch.
    """

    bounds: Bounds = field(default_factory=Bounds)
    since: int = 0
    only: frozenset[str] | None = None


def scan(repository: Repository, branch: Branch, wanted: Scan) -> Iterator[Candidate | Rejected]:
    """Every commit of the branch, the newest first, as a candidate or with the reason why it is none."""
    for commit in sorted(branch.order, key=lambda oid: (-branch.times[oid], branch.order[oid])):
        if branch.times[commit] < wanted.since or (wanted.only is not None and commit not in wanted.only):
            continue
        yield judge(repository, branch, commit, wanted.bounds)


def judge(repository: Repository, branch: Branch, commit: str, bounds: Bounds) -> Candidate | Rejected:
    """One commit of the branch."""
    parents = branch.parents[commit]
    if len(parents) != 1:
        return Rejected(commit, "", "merge" if parents else "root")
    quick = [paths.kind_of(change.path) for change in branch.changed(commit)]
    if "source" not in quick:
        return Rejected(commit, "", NO_SOURCE)
    if "test" not in quick:
        return Rejected(commit, "", NO_TESTS)
    author, at, message = _about(repository, commit)
    try:
        found = files(repository, parents[0], commit)
    except OSError as error:
        if missing := _MISSING.search(str(error)):  # git counts lines of both sides
            subject = message.partition("\n")[0]
            return Rejected(commit, subject, "object_missing", f"{missing[1]}: a partial clone?")
        raise
    tests = tuple(file for file in found if paths.kind_of(file.path) == "test")
    solution = tuple(file for file in found if paths.kind_of(file.path) != "test")
    candidate = Candidate(commit, parents[0], at, message, solution, tests)
    reason, detail = _why_not(repository, candidate, author, bounds)
    return Rejected(commit, candidate.subject, reason, detail) if reason else candidate


def _about(repository: Repository, commit: str) -> tuple[str, str, str]:
    """(author, commit time with zone, message)."""
    shown = repository.git("show", "-s", "--format=%an%x00%ct%x00%ci%x00%B", commit)
    author, seconds, local, message = shown.split("\0", 3)
    zone = _zone(local.rsplit(" ", 1)[-1])
    at = (milliseconds(seconds) or 0) // 1000
    return author, datetime.fromtimestamp(at, zone).isoformat(), message.strip()


def _zone(text: str) -> timezone:
    if not re.fullmatch(r"[+-]\d{4}", text):
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[3:])
    return timezone((-1 if text[0] == "-" else 1) * timedelta(minutes=min(minutes, 14 * 60)))


def _why_not(repository: Repository, candidate: Candidate, author: str, bounds: Bounds) -> tuple[str, str]:
    """(reason, detail) against a candidate; ("", "") for none."""
    every = (*candidate.solution, *candidate.tests)
    lines = candidate.lines
    tests = sum(file.added + file.deleted for file in candidate.tests)
    live = [file for file in candidate.tests if file.new and not file.moved]
    declared = _NO_BEHAVIOUR.match(candidate.subject)
    checks: Mapping[str, object] = {
        "automatic": _AUTOMATIC.search(author) and author,
        "revert": _REVERT.search(candidate.message),
        "declares_no_behaviour": declared and declared[0],
        "link_or_submodule": next((file.path for file in every if file.special), ""),
        "not_utf8": next((file.path for file in candidate.tests if _is_raw(file.path)), ""),
        "vendored": next((f.path for f in every if paths.kind_of(f.path) == "vendored"), ""),
        "too_many_files": len(every) > bounds.most_files and f"{len(every)} files",
        "too_large": (lines > bounds.most_lines and f"{lines} lines")
        or (tests > bounds.most_tests and f"{tests} lines of tests"),
        "only_renames": all(file.moved for file in candidate.sources),
        "tests_only_removed": not live,
        "too_small": lines < bounds.least_lines and f"{lines} lines",
    }
    for reason, found in checks.items():
        if found:
            return reason, found if isinstance(found, str) else ""
    return _by_text(repository, candidate, live)


def _is_raw(path: str) -> bool:
    """Whether a name is no UTF-8: a task says in JSON which files its tests are in."""
    return any("\ud800" <= letter <= "\udfff" for letter in path)


def _by_text(repository: Repository, candidate: Candidate, live: list[File]) -> tuple[str, str]:
    """The filters that read files."""
    for file in candidate.sources:
        if paths.says_generated(repository.text(file.new or file.old)):
            return "generated", file.path
    if all(_same(repository, file) for file in candidate.sources):
        return "source_same_but_form", "layout, comments, docstrings or annotations alone"
    if not any(_tells(repository, file) for file in live):
        return "tests_same_but_form", "no test is new or asserts otherwise"
    return "", ""


def _same(repository: Repository, file: File) -> bool:
    if file.moved:
        return True
    both = file.old and file.new and file.path.endswith((".py", ".pyi"))
    return bool(both) and form.same_but_form(repository.text(file.old), repository.text(file.new))


def _tells(repository: Repository, file: File) -> bool:
    if not file.path.endswith(".py"):
        return True
    return form.changed_tests(repository.text(file.old), repository.text(file.new))
