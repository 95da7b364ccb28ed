"""One candidate from draft to task, or to the reason why it makes none.

Everything that a run decides: the cut repository, the environment, validation, the grader's own verdict on
doing nothing and on the kept change. Not for: many candidates (`build.py`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cursorbench.builder import runner
from cursorbench.builder.cut import FutureLeftError, assert_cut, cut
from cursorbench.builder.dates import Clock
from cursorbench.builder.draft import Draft
from cursorbench.builder.installed import assert_absent, imported_from
from cursorbench.builder.lock import as_of
from cursorbench.builder.project import Project
from cursorbench.builder.runs import Bench
from cursorbench.builder.settings import Settings
from cursorbench.builder.state import write_json
from cursorbench.builder.unfit import Unfit
from cursorbench.builder.validate import Stable, Validation, validate
from cursorbench.errors import InputMissingError, UsageError
from cursorbench.graders import correctness
from cursorbench.sandbox.protocol import Backend, Environment
from cursorbench.tasks import bundle as bundles
from cursorbench.tasks import environment as environments
from cursorbench.tasks import folder as folders
from cursorbench.tasks.task import ExpectedTests, Task
from cursorbench.tasks.venv import NotBuiltError, known_by

GRADED = 3  # times at most, each with fewer ids


@dataclass(frozen=True)
class Judge:
    """What all candidates of a build share.

    Attributes:
        drafts: a folder for what is half made; on the file system of the suite.
        place: where a finished task of a name goes.
        clock: what moves the date of validation's runs.
        narrow: takes of the ids that were found those that are meant; raises Unfit.
        broken: locks with a package that does not build, and which; it takes minutes to find out.
    """

    settings: Settings
    backend: Backend
    drafts: Path
    place: Callable[[str], Path]
    clock: Clock
    narrow: Callable[[Stable], Stable] = lambda found: found
    broken: dict[str, str] = field(default_factory=dict)

    def make(
        self, draft: Draft, said: Callable[[str], None], replacing: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Write the task of a draft. Returns what provenance says of it.

        `replacing` is called when all is known and written, right before the task is put in its place.

        Raises:
            Unfit: it makes none.
            SandboxError, DependencyDownError: infrastructure; nothing is known of the candidate.
        """
        began = time.monotonic()
        bundle = self.drafts / f"{draft.name}.bundle"
        try:
            try:
                base = draft.candidate.base
                made = cut(self.settings.repo, base, bundle, draft.forbidden, added=draft.added)
            except FutureLeftError as error:
                raise Unfit("future_left", error.message) from error
            except InputMissingError as error:
                raise Unfit("objects_missing", error.message) from error
            draft, task, environment = self._draft(draft, bundle, made.tree)
            checked = self._checked(draft, task, environment, made.tree)
            found = self._validated(draft, environment, task, said)
            found = replace(found, tests=self.narrow(found.tests))
            draft.facts["repository"] = {
                "depth": made.depth,
                "objects_walked": made.objects,
                "commits": made.commits,
                "kept_objects_found": 0,
            }
            draft.facts["environment"] = checked
            final, found = self._graded(draft, environment, bundle, found, made.tree)
            draft.facts["validation"] = _told(found, time.monotonic() - began)
            write_json(final.folder / "provenance.json", draft.facts)
            target = self.place(draft.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            replacing()
            final.folder.rename(target)
            return draft.facts
        finally:
            for path in (bundle, bundles.beside(bundle)):
                path.unlink(missing_ok=True)

    def _draft(self, draft: Draft, bundle: Path, tree: str) -> tuple[Draft, Task, Environment]:
        """The task without test ids that count, and its environment opened, in which pytest runs."""
        task, environment = self._opened(draft, bundle, tree)
        if self._runs(draft, environment):
            return draft, task, environment
        old, under = runner.version(draft.lock), f"does not run under Python {draft.python}"
        shutil.rmtree(task.folder)
        lock = runner.lock_of(
            self.settings, draft.python, draft.candidate.at, draft.project, draft.locks, newer=True
        )
        draft = replace(draft, lock=lock)
        task, environment = self._opened(draft, bundle, tree)
        new = runner.version(lock)
        if not self._runs(draft, environment):
            raise Unfit("old_runner", f"pytest {new} {under}: an older --python would do")
        draft.facts["runner"] = f"pytest {new}: {old} {under}"
        return draft, task, environment

    def _runs(self, draft: Draft, environment: Environment) -> bool:
        """Whether pytest does; it is not asked where it came after its interpreter."""
        if self.settings.test_command or not (draft.lock and runner.version(draft.lock)):
            return True
        own = self.settings.lock is None
        came = as_of(datetime.fromisoformat(draft.candidate.at))
        return (own and came >= known_by(draft.python)) or runner.runs(self.backend, environment)

    def _opened(self, draft: Draft, bundle: Path, tree: str) -> tuple[Task, Environment]:
        tests = ExpectedTests(draft.command, ("to be found",), (), (), draft.removed)
        task = draft.task(
            self.drafts / f"{draft.name}.draft", tests, tree, self.settings, self.settings.timeout_s
        )
        task = _write(task, draft, bundle)
        try:
            if draft.lock in self.broken:
                raise Unfit("not_built", self.broken[draft.lock])
            return task, environments.open(task, self.settings.cache.expanduser())
        except NotBuiltError as error:
            self.broken[draft.lock] = f"under Python {draft.python}: {error.said}"
            raise Unfit("not_built", self.broken[draft.lock]) from error

    def _checked(self, draft: Draft, task: Task, environment: Environment, tree: str) -> dict[str, Any]:
        """That neither the working tree nor what is installed holds the future."""
        try:
            assert_cut(environment.root, tree, draft.forbidden)
            found: dict[str, Any] = {"kind": task.environment.kind, "project_installed": False}
            if task.environment.kind == "python":
                found["distributions"] = sum(
                    assert_absent(path, draft.project)
                    for place, path in environment.mounts.items()
                    if place == "/venv"
                )
                _import(self.backend, environment, draft.project)
            return found
        except FutureLeftError as error:
            raise Unfit("future_left", error.message) from error

    def _validated(
        self, draft: Draft, environment: Environment, task: Task, said: Callable[[str], None]
    ) -> Validation:
        bench = Bench(
            self.backend, environment, environments.limits(task), draft.command, draft.test_files,
            draft.removed, self.settings.timeout_s, self.clock,
        )  # fmt: skip
        return validate(bench, draft.solution, draft.without, draft.candidate.commit[:12], said)

    def _final(self, draft: Draft, bundle: Path, found: Validation, tree: str) -> Task:
        tests = ExpectedTests(
            draft.command, found.tests.fail_to_pass, found.tests.pass_to_pass, (), draft.removed
        )
        task = draft.task(self.drafts / draft.name, tests, tree, self.settings, found.slowest_s)
        return _write(task, draft, bundle)

    def _graded(
        self, draft: Draft, environment: Environment, bundle: Path, found: Validation, tree: str
    ) -> tuple[Task, Validation]:
        """The grader that will judge models, on a model that does nothing and on one that does it all.

        What it sees fail of the kept change counts as unstable and is left out: its runs are runs too.
        """
        for _ in range(GRADED):
            task = self._final(draft, bundle, found, tree)
            limits = environments.limits(task)
            kept = correctness.grade(task, environment, draft.solution, self.backend, limits)
            if kept.passed:
                if correctness.grade(task, environment, "", self.backend, limits).passed:
                    raise Unfit("nop_passes", "doing nothing is graded as solved")
                return task, found
            found = replace(found, tests=found.tests.without({*kept.failed, *kept.missing}))
            if not (kept.failed or kept.missing) or not found.tests.fail_to_pass:
                break
            shutil.rmtree(task.folder)
        raise Unfit("solution_not_graded", f"{kept.reason}: {kept.detail}"[:300])


def _write(task: Task, draft: Draft, bundle: Path) -> Task:
    try:
        return folders.write(task, draft.contents(bundle))
    except UsageError as error:
        raise Unfit("not_a_task", error.message) from error


def _import(backend: Backend, environment: Environment, project: Project) -> None:
    with backend.start(environment) as box:
        imported_from(box, project.modules, environment.workdir)


def _told(found: Validation, seconds: float) -> dict[str, Any]:
    tests = found.tests
    return {
        "runs": dict(found.runs),
        "fail_to_pass": len(tests.fail_to_pass),
        "pass_to_pass": len(tests.pass_to_pass),
        "unstable": list(tests.unstable),
        "date": found.date,
        "date_dependent": list(tests.date_dependent),
        "broken": len(tests.broken),
        "skipped_on_base": len(tests.skipped),
        "without": dict(found.needed),
        "slowest_s": round(found.slowest_s, 2),
        "seconds": round(seconds, 1),
    }
