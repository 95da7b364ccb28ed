"""SWE-bench rows as tasks: each is rebuilt as a commit on its base, then judged as the builder judges any.

    import_rows(settings, progress) -> Exchanged

A row names commit, patches and test ids, but no environment; what it says is proven here or the row is
refused: the ids of FAIL_TO_PASS have to fail on the base and pass with the patch. Ids that waver, and those
of PASS_TO_PASS that do not hold here, are left out and counted. Not here: the row's form (`rows.py`),
validation (`cursorbench/builder/`).
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from cursorbench.builder.build import Progress
from cursorbench.builder.dates import compiled
from cursorbench.builder.draft import Draft, prepare
from cursorbench.builder.judge import Judge
from cursorbench.builder.settings import Settings, filled
from cursorbench.builder.state import State, Verdict, write_json
from cursorbench.builder.unfit import Unfit
from cursorbench.errors import DependencyDownError, RtrlError
from cursorbench.exchange.ids import narrowing, targets
from cursorbench.exchange.rebuilt import ISSUE, candidate_of, clone_of, rebuilt
from cursorbench.exchange.refused import Exchanged, Refused
from cursorbench.exchange.rows import BadRow, Row, read
from cursorbench.history.repository import Repository
from cursorbench.redaction import redact
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.protocol import Backend
from cursorbench.tasks.settings import is_folder_name
from cursorbench.tasks.suite import Suite

RULES = 2  # raised when a rule changes that verdicts on rows hang on


@dataclass(frozen=True)
class RowSettings:
    """An import.

    Attributes:
        rows: the file; repos: the folder in which clones are looked for (`clone_of`).
        build: how environments are made and tests are run; its `out` is the suite. `repo` and `name` come
            from each row.
    """

    rows: Path
    repos: Path
    build: Settings


def import_rows(settings: RowSettings, progress: Progress) -> Exchanged:
    """Make tasks of rows, or go on with it.

    Raises:
        UsageError, InputMissingError: (exit 2, 5) settings or files that cannot be.
        SandboxError, DependencyDownError: (exit 13) no sandbox, or every row failed for infrastructure.
        BusyError: (exit 11) another process writes this suite.
    """
    build = settings.build.checked()
    total = sum(1 for _ in read(settings.rows))  # not held: a small file may have many
    backend = open_backend(build.backend)
    suite = begun(build.out, settings.rows.name)
    state = State(suite.path)
    with state.held():
        work = _Work(settings, build, suite, state, backend)
        if work.clock.warnings:
            progress.message(work.clock.warnings[0])
        progress.start("rows", total)
        names: set[str] = set()
        for row in read(settings.rows):
            work.one(row, names)
            progress.advance(1, getattr(row, "instance_id", ""))
        write_json(suite.path / "rejects.json", [vars(one) for one in work.refused])
    if work.failed and not work.made:
        raise work.failed
    return Exchanged(suite.path, tuple(work.made), tuple(work.refused), work.again, work.notes)


def begun(out: Path, source: str) -> Suite:
    """The suite at `out`: a new one called as its folder, or one that an import or a build has begun."""
    if (out / "suite.toml").is_file():
        return Suite.begun(out)
    return Suite.create(out, out.resolve().name, description=f"Imported from {source}")


class _Work:
    """Rows to tasks, one after the other."""

    def __init__(
        self, settings: RowSettings, build: Settings, suite: Suite, state: State, backend: Backend
    ) -> None:
        self.settings, self.build, self.suite = settings, build, suite
        self.state, self.backend = state, backend
        self.clock = compiled(build.cache.expanduser())
        self.made: list[str] = []
        self.refused: list[Refused] = []
        self.notes: dict[str, str] = {}
        self.again = 0
        self.failed: RtrlError | None = None

    def one(self, row: Row | BadRow, names: set[str]) -> None:
        """Take or refuse a row."""
        if isinstance(row, BadRow):
            self.refused.append(Refused(row.name or f"line {row.place}", "bad_row", row.detail))
        elif not is_folder_name(row.instance_id):
            self.refused.append(Refused(row.instance_id, "bad_row", "instance_id cannot be a folder's name"))
        elif row.instance_id in names:
            self.refused.append(Refused(row.instance_id, "twice", "a row before has the same instance_id"))
        else:
            names.add(row.instance_id)
            self._settle(row, self._verdict(row))

    def _settle(self, row: Row, verdict: Verdict) -> None:
        if verdict.outcome == "kept":
            self.made.append(verdict.task)
            if note := str(verdict.facts.get("swe_bench", {}).get("note", "")):
                self.notes[verdict.task] = note
        else:
            self.refused.append(Refused(row.instance_id, verdict.reason, verdict.detail))

    def _verdict(self, row: Row) -> Verdict:
        key = self.build.key(f"{RULES} {row!r}", date_moves=not self.clock.why_not)
        name = hashlib.sha256(row.instance_id.encode()).hexdigest()[:40]
        known = self.state.verdict(name, key)
        if known and (known.outcome != "kept" or self.suite.folder(known.task).is_dir()):
            self.again += known.outcome == "kept"
            return known
        blank = Verdict(key, name, row.instance_id, "rejected")
        try:
            facts = self._make(row)
            verdict = msgspec.structs.replace(blank, outcome="kept", task=row.instance_id, facts=facts)
        except Unfit as error:
            detail = redact(error.detail).text
            verdict = msgspec.structs.replace(blank, reason=error.reason, detail=detail)
        except DependencyDownError as error:
            self.failed = error
            verdict = msgspec.structs.replace(
                blank, outcome="unfinished", reason="infrastructure", detail=error.message
            )
        self.state.put(verdict)
        return verdict

    def _make(self, row: Row) -> dict[str, object]:
        clone = clone_of(self.settings.repos, row.repo)
        if not row.fail_to_pass:
            raise Unfit("no_fail_to_pass", "the row names no test that tells")
        scratch = (self.state.drafts / f"{row.instance_id}.repo").absolute()  # git runs inside it
        shutil.rmtree(self.suite.folder(row.instance_id), ignore_errors=True)
        try:
            commit = rebuilt(clone, row, scratch)
            build = replace(self.build, repo=scratch, name=row.repo)
            with Repository(scratch) as repository:
                draft = self._draft(repository, commit, row, build)
            judge = Judge(
                build,
                self.backend,
                self.state.drafts,
                self.suite.folder,
                self.clock,
                narrowing(row, draft.facts["swe_bench"]),
            )
            return judge.make(draft, lambda what: None)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _draft(self, repository: Repository, commit: str, row: Row, build: Settings) -> Draft:
        candidate = candidate_of(repository, commit, row)
        draft = prepare(
            repository, candidate, None, build, {ISSUE: row.problem_statement},
            self.suite.fields.canary, self.state.locks,
        )  # fmt: skip
        draft.facts["swe_bench"] = {
            "version": row.version,
            "hints_text": redact(row.hints_text).text,
            "environment_setup_commit": row.environment_setup_commit,
        }
        return replace(
            draft,
            name=row.instance_id,
            fields=replace(draft.fields, instance_id=row.instance_id),
            command=filled(build.command, targets(row, draft.test_files)),
        )
