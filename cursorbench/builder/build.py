"""`rtrl bench build`: a suite from a repository's history, and from sessions where there are some.

    build(settings, progress) -> Built

Candidates come from `candidates.scan`, the newest first; each is judged by itself (`judge.py`), several at a
time, and its verdict kept (`state.py`): a build that was stopped goes on, and one that is repeated makes what
is new. Every candidate that makes no task is in `rejects.json` with its reason. Not for: the command line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import msgspec

from cursorbench.builder import compiled as extensions
from cursorbench.builder import elsewhere, outdated, overlooked
from cursorbench.builder import told as logs
from cursorbench.builder.candidates import Candidate, Rejected
from cursorbench.builder.dates import Clock, compiled
from cursorbench.builder.draft import prepare
from cursorbench.builder.fields import slug, task_name
from cursorbench.builder.instruction import Issues, of_commit, read_issues
from cursorbench.builder.judge import Judge
from cursorbench.builder.requests import Request, Traced, trace
from cursorbench.builder.scanned import scanned
from cursorbench.builder.settings import Settings
from cursorbench.builder.state import State, Verdict, load, write_json
from cursorbench.builder.unfit import Unfit
from cursorbench.errors import DependencyDownError, RtrlError
from cursorbench.history.repository import Repository
from cursorbench.redaction import redact
from cursorbench.sandbox import open_backend
from cursorbench.tasks.suite import Suite


class Progress(Protocol):
    """What tells a person how far it is."""

    def start(self, what: str, total: int | None = None) -> None: ...

    def advance(self, n: int = 1, note: str = "") -> None: ...

    def message(self, text: str) -> None: ...


@dataclass(frozen=True)
class Built:
    """What a build came to.

    Attributes:
        verdicts: of the candidates, in their order.
        filtered: candidates that git alone rejected.
        passed_over: commits that are no candidates, by reason.
        traced: commits traced to a session, with words, without; None without sessions.
        unread: what of the logs could not be read, by reason.
        again: verdicts that stood already.
        removed: tasks of earlier builds that this one would not make.
    """

    suite: Suite
    verdicts: tuple[Verdict, ...]
    filtered: tuple[Rejected, ...]
    passed_over: Mapping[str, int]
    traced: tuple[int, int] | None = None
    unread: Mapping[str, int] = field(default_factory=dict)
    again: int = 0
    removed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[Verdict, ...]:
        """Those that made a task."""
        return tuple(one for one in self.verdicts if one.outcome == "kept")

    def rejects(self) -> list[dict[str, str]]:
        """Every candidate that makes no task, the newest first."""
        rows = [(one.commit, one.reason, one.detail, one.subject) for one in self.filtered]
        rows += [
            (one.commit, one.reason, one.detail, one.subject)
            for one in self.verdicts
            if one.outcome != "kept"
        ]
        keys = ("commit", "reason", "detail", "subject")
        return [{key: redact(text).text for key, text in zip(keys, row, strict=True)} for row in rows]

    def counts(self) -> dict[str, Any]:
        """For people and `--json`."""
        reasons = Counter(one["reason"] for one in self.rejects())
        return {
            "tasks": len(self.tasks),
            "candidates": len(self.verdicts),
            "filtered": len(self.filtered),
            "rejected": dict(reasons.most_common()),
            "passed_over": dict(self.passed_over),
            "unfinished": sum(one.outcome == "unfinished" for one in self.verdicts),
            "again": self.again,
            **({"removed": len(self.removed)} if self.removed else {}),
            **(
                {}
                if self.traced is None
                else {"traced": self.traced[0], "traced_without_words": self.traced[1]}
            ),
            **({"unread": dict(self.unread)} if self.unread else {}),
        }


def build(settings: Settings, progress: Progress) -> Built:
    """Build a suite, or go on with one.

    Raises:
        UsageError, InputMissingError: (exit 2, 5) settings or sources that cannot be.
        SandboxError, DependencyDownError: (exit 13) no sandbox, or every candidate failed for infrastructure.
        BusyError: (exit 11) another process builds this suite.
    """
    settings = settings.checked()
    with Repository(settings.repo) as repository:
        head = repository.commit(settings.head)
        issues = read_issues(settings.issues) if settings.issues else {}
        backend = open_backend(settings.backend)
        suite = _suite(settings)
        state = State(suite.path)
        with state.held():
            traced, unread = _traced(repository, head, settings, progress)
            progress.start("reading the history")
            found = scanned(repository, head, settings, traced)
            clock = compiled(settings.cache.expanduser())
            work = _Work(settings, repository, suite, state, issues, traced, progress, clock, Lock())
            judge = Judge(settings, backend, state.drafts, suite.folder, clock)
            verdicts, again = work.all(judge, found.candidates)
            removed = outdated.clear(suite, state, found, settings.repository_name())
            for name in removed:
                progress.message(f"{name} is removed: a build as this one would not make it")
            built = Built(
                suite=suite,
                verdicts=verdicts,
                filtered=found.filtered,
                passed_over=found.passed_over,
                traced=(len(traced.requests), len(traced.silent)) if traced else None,
                unread=unread,
                again=again,
                removed=removed,
                warnings=(*repository.warnings, *clock.warnings, *_told(repository, head)),
            )
            write_json(suite.path / "rejects.json", built.rejects())
    return built


def _told(repository: Repository, head: str) -> list[str]:
    """What of a project no task will have."""
    tellers = (extensions, overlooked, elsewhere)
    return [said for said in (one.told(repository, head) for one in tellers) if said]


@dataclass
class _Work:
    """Candidates to verdicts. The repository is read by one thread at a time."""

    settings: Settings
    repository: Repository
    suite: Suite
    state: State
    issues: Issues
    traced: Traced | None
    progress: Progress
    clock: Clock
    reading: Lock
    failed: RtrlError | None = None

    def all(self, judge: Judge, candidates: Sequence[Candidate]) -> tuple[tuple[Verdict, ...], int]:
        """Every candidate's verdict, in their order, and how many stood already."""
        self.progress.start("candidates", len(candidates))
        found: dict[str, Verdict] = {}
        for one in candidates:
            known = self.state.verdict(one.commit, self._key(one))
            if known and (known.outcome != "kept" or self.suite.folder(known.task).is_dir()):
                found[one.commit] = known
        again = len(found)
        if again:
            self.progress.advance(again)
            self.progress.message(f"{again} of {len(candidates)} candidates were judged before")
        with ThreadPoolExecutor(max_workers=self.settings.jobs) as pool:
            running = [pool.submit(self._one, judge, one) for one in candidates if one.commit not in found]
            try:
                for done in as_completed(running):
                    verdict = done.result()
                    found[verdict.commit] = verdict
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if self.failed and all(one.outcome == "unfinished" for one in found.values()):
            raise self.failed
        return tuple(found[one.commit] for one in candidates), again

    def _one(self, judge: Judge, candidate: Candidate) -> Verdict:
        began = time.monotonic()
        blank = Verdict(self._key(candidate), candidate.commit, redact(candidate.subject).text, "rejected")
        name = task_name(self.settings.repository_name(), candidate.commit)
        # made under other settings, one of them its name, or half known
        old = {name, self.state.task_of(candidate.commit)}

        def clear() -> None:
            for one in old:
                outdated.remove(self.suite, self.state, one)

        try:
            request = self._request(candidate)
            with self.reading:
                draft = prepare(
                    self.repository, candidate, request, self.settings, self.issues,
                    self.suite.fields.canary, self.state.locks,
                )  # fmt: skip
            short = candidate.commit[:10]
            facts = judge.make(draft, lambda what: self.progress.advance(0, f"{short}: {what}"), clear)
            verdict = msgspec.structs.replace(blank, outcome="kept", task=draft.name, facts=facts)
        except Unfit as error:
            clear()
            detail = redact(error.detail).text
            verdict = msgspec.structs.replace(blank, reason=error.reason, detail=detail)
        except DependencyDownError as error:
            self.failed = error
            detail = f"{error.message} {error.hint}"
            verdict = msgspec.structs.replace(
                blank, outcome="unfinished", reason="infrastructure", detail=detail
            )
        verdict = msgspec.structs.replace(
            verdict, seconds=round(time.monotonic() - began, 1), load=round(load(), 1)
        )
        if verdict.outcome != "unfinished" or not self._stands(candidate.commit):
            self.state.put(verdict)
        told = f"{verdict.commit[:10]} {verdict.task or verdict.reason}"
        self.progress.message(
            f"{told}{': ' + verdict.detail[:100] if verdict.detail else ''} ({verdict.seconds:.0f} s)"
        )
        self.progress.advance(1, told)
        return verdict

    def _stands(self, commit: str) -> bool:
        """Whether an earlier build's task of it is in the suite: infrastructure is no reason to lose that."""
        name = self.state.task_of(commit)
        return bool(name) and self.suite.folder(name).is_dir()

    def _request(self, candidate: Candidate) -> Request | None:
        if self.traced is None:
            return None
        if candidate.commit in self.traced.silent:
            raise Unfit(
                self.traced.silent[candidate.commit], "its session has no words of a person before it"
            )
        return self.traced.requests.get(candidate.commit)

    def _key(self, candidate: Candidate) -> str:
        request = self.traced.requests.get(candidate.commit) if self.traced else None
        said = request or of_commit(candidate.message, self.issues)
        return self.settings.key(said.text if said else "", date_moves=not self.clock.why_not)


def _suite(settings: Settings) -> Suite:
    """The suite to build: a new one, or one that was begun."""
    tasks = settings.out / "tasks"
    begun = (settings.out / ".build").is_dir() or not any(tasks.glob("*"))
    if (settings.out / "suite.toml").is_file() and begun:
        return Suite.begun(settings.out)
    name = settings.repository_name()
    return Suite.create(settings.out, slug(name) or "suite", description=f"Tasks from the history of {name}")


def _traced(
    repository: Repository, head: str, settings: Settings, progress: Progress
) -> tuple[Traced | None, Mapping[str, int]]:
    if not settings.sessions:
        return None, {}
    progress.start("reading sessions")
    said = logs.told(logs.items_of(settings.sessions))
    progress.start(f"tracing {len(said.changes)} edits of {len(said.sessions)} sessions to commits")
    return trace(repository, head, said), said.unread
