"""CursorBench as a suite of the gate: a folder of tasks, tried by our agent in sandboxes, graded by tests.

Trials of a batch go in lock-step, one model call of each at a time, so that the engine answers many at once;
tools and tests run in threads beside. So one trial's time is also the others': in its budget counts the time
that its own tools take. What a trial came to is decided by the same code as in `rtrl bench run`
(`evals/trials/`); keeping and reusing attempts is the gate's. Clustered as the tasks say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cursorbench.errors import SandboxError, UsageError
from cursorbench.harness.agent import AgentConfig, begin
from cursorbench.harness.budget import Usage
from cursorbench.harness.driver import Endpoint
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.sandboxed import SandboxPlace
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.protocol import Backend, Environment, Limits, Sandbox
from cursorbench.tasks import environment as environments
from cursorbench.tasks.suite import Suite as TaskSuite
from cursorbench.tasks.task import Split, Task
from evals.cases import Attempt, Metric, SuiteSpec
from evals.suites.base import Advance, Answer, CompleteBatch, Subject, refused, require_some_taken
from evals.trials import attempt as trials
from evals.trials.attempt import Job, Setting
from evals.trials.record import Record
from evals.trials.tried import of_episode

METRICS = (
    Metric("solved", "higher", 0.05, "share", "trials whose tests pass", bounds=(0, 1)),
    Metric("invalid_calls", "lower", 1.0, "calls", "broken calls per trial", gated=False),
    Metric("model_calls", "lower", 5.0, "calls", "model calls per trial", gated=False),
    Metric("output_tokens", "lower", 2000.0, "tokens", "written per trial", gated=False),
    Metric("right", "higher", 0.05, "share", "asked or acted as they should", bounds=(0, 1), gated=False),
    Metric("asked", "lower", 0.1, "share", "trials that ended in a question", bounds=(0, 1), gated=False),
    Metric("flagged", "lower", 0.02, "share", "reached for the test runner", bounds=(0, 1), gated=False),
)


@dataclass
class _OwnTime:
    """A clock that stands while a trial waits for the others."""

    spent: float = 0.0
    since: float | None = None

    def __call__(self) -> float:
        return self.spent + (0.0 if self.since is None else time.monotonic() - self.since)

    @contextmanager
    def going(self) -> Iterator[None]:
        self.since = time.monotonic()
        try:
            yield
        finally:
            self.spent, self.since = self(), None


@dataclass
class _Trial:
    """One trial that is going on. `record` is set when it has ended."""

    task: Task
    number: int
    clock: _OwnTime = field(default_factory=_OwnTime)
    environment: Environment | None = None
    limits: Limits | None = None
    sandbox: Sandbox | None = None
    loop: AgentLoop | None = None
    record: Record | None = None

    @property
    def running(self) -> bool:
        return self.record is None and self.loop is not None and self.loop.stop is None


class CursorBenchSuite:
    """A folder of tasks.

    Args:
        path: of the suite.
        environments: cache of the tasks' environments.
        attempts: trials a task.
        temperature: of sampling; None for the engine's own, which is what users are served with.
        split: only tasks of this split.
        agent: how our agent works, but for the temperature.
        threads: sandboxes at work at once.
    """

    batch = 32

    def __init__(
        self,
        path: Path,
        environments: Path,
        attempts: int = 1,
        temperature: float | None = None,
        *,
        split: Split | None = None,
        agent: AgentConfig | None = None,
        threads: int = 4,
        name: str = "",
        backend: str = "auto",
    ) -> None:
        self.path = path
        self._attempts = attempts
        self._split: Split | None = split
        self._threads = threads
        self._name = name
        self._backend_name = backend
        config = replace(agent or AgentConfig(), temperature=temperature)
        self._setting = Setting(Endpoint(""), config, environments, Path(), quality=False)

    @property
    def spec(self) -> SuiteSpec:
        """Solved tasks are gated, the rest is reported."""
        return SuiteSpec(self.name, METRICS, self._attempts, "cluster of the task")

    @property
    def name(self) -> str:
        """`cursorbench:NAME` of the suite's own name, unless another was given."""
        return self._name or f"cursorbench:{self._suite.fields.name}"

    @property
    def digest(self) -> str:
        """Of the tasks: attempts under different digests are never compared."""
        return self._suite.digest

    @property
    def machine(self) -> list[str]:
        """What the tasks' environments take from this machine, of which `digest` does not know.

        Raises InputMissingError (exit 5) when a task's Python is not there.
        """
        kinds = {(task.environment.kind, task.environment.python) for task in self._tasks.values()}
        return sorted({environments.of_machine(*one) for one in kinds})

    def require_here(self) -> None:
        """Raise SandboxError (exit 13) when a task can never be tried on this machine."""
        for task in self._tasks.values():
            environments.require_here(task)

    def cases(self) -> Sequence[str]:
        """The tasks' names."""
        return list(self._tasks)

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Try the named tasks. Raises UsageError for a task that is not in the suite."""
        unknown = [case for case in cases if case not in self._tasks]
        if unknown:
            raise UsageError(f"{unknown[0]} is no task of {self.path}")
        found: list[Attempt] = []
        for number in range(first, first + self._attempts):
            for start in range(0, len(cases), self.batch):
                chosen = [_Trial(self._tasks[case], number) for case in cases[start : start + self.batch]]
                self._together(chosen, subject.complete_batch)
                found += [_attempt(one) for one in chosen]
                advance(len(chosen))
        return found

    @cached_property
    def _suite(self) -> TaskSuite:
        return TaskSuite.open(self.path)

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        tasks = {task.name: task for task in self._suite.of_split(self._split)}
        if not tasks:
            raise UsageError(f"{self.path} has no task of split {self._split}")
        return tasks

    @cached_property
    def _backend(self) -> Backend:
        backend = open_backend(self._backend_name)
        backend.probe()
        return backend

    def _together(self, chosen: Sequence[_Trial], complete_batch: CompleteBatch) -> None:
        """Trials in lock-step, from their sandboxes to their grades."""
        with ThreadPoolExecutor(self._threads) as pool, ExitStack() as open_:
            list(pool.map(partial(self._guarded, self._begin), chosen))
            for one in chosen:
                if one.sandbox is not None:
                    open_.callback(one.sandbox.kill)
            while running := [one for one in chosen if one.running]:
                asked = [
                    (one, request) for one in running if (request := _loop(one).next_request()) is not None
                ]
                answers = complete_batch([request for _, request in asked]) if asked else []
                if len(answers) != len(asked):
                    raise ValueError(f"{len(asked)} requests, {len(answers)} answers")
                for (one, request), answer in zip(asked, answers, strict=True):
                    if not _loop(one).turns and refused(answer):
                        require_some_taken(request, complete_batch)
                        break
                pairs = [(one, answer) for (one, _), answer in zip(asked, answers, strict=True)]
                list(pool.map(lambda pair: _receive(*pair), pairs))
            list(pool.map(partial(self._guarded, self._end), chosen))

    def _guarded(self, step: Callable[[_Trial], None], one: _Trial) -> None:
        """A step of a trial that has not ended; a sandbox that dies ends it, as infrastructure."""
        if one.record is not None:
            return
        try:
            step(one)
        except SandboxError as error:
            one.record = trials.lost(self._job(one), "sandbox_died", f"{error.message} {error.hint}")

    def _begin(self, one: _Trial) -> None:
        one.environment = environments.open(one.task, self._setting.cache)
        one.limits = environments.limits(one.task)
        one.sandbox = self._backend.start(one.environment, one.limits)
        place = SandboxPlace(one.sandbox, one.environment.workdir)
        agent = self._setting.agent
        budget = replace(agent.budget, wall_s=min(agent.budget.wall_s, one.task.timeout_s))
        one.loop = begin(replace(agent, budget=budget), place, one.task.instruction, clock=one.clock)

    def _end(self, one: _Trial) -> None:
        assert one.sandbox is not None
        assert one.environment is not None
        assert one.limits is not None
        tried = of_episode(_loop(one).episode(), one.sandbox)
        one.sandbox.kill()
        job = self._job(one)
        if tried.cause in ("sandbox_died", "engine_down", "engine_timeout"):
            one.record = trials.lost(job, tried.cause, tried.detail, tried)
        else:
            one.record = trials.graded(job, one.task, one.environment, one.limits, self._backend, tried)

    def _job(self, one: _Trial) -> Job:
        name, cluster = one.task.name, one.task.fields.cluster
        return Job(self._setting, one.task.folder, one.number, "", cluster, name)


def _loop(one: _Trial) -> AgentLoop:
    assert one.loop is not None
    return one.loop


def _receive(one: _Trial, answer: Answer | None) -> None:
    """Give a trial its answer: a message, None where the engine failed, or why it refused the prompt."""
    loop = _loop(one)
    if answer is None:
        loop.abort("no answer")
        return
    if refused(answer):
        loop.overflow()
        return
    prompt, output = answer.get("prompt_tokens"), answer.get("output_tokens")
    usage = Usage(prompt, output) if isinstance(prompt, int) and isinstance(output, int) else None
    with one.clock.going():
        loop.receive(answer, str(answer.get("finish_reason") or "stop"), usage=usage)


def _attempt(one: _Trial) -> Attempt:
    record = one.record
    assert record is not None
    known = (record.task, record.cluster, record.attempt)
    if record.infrastructure:
        return Attempt(*known, {}, failure=f"{record.cause}: {record.detail}"[:500])
    said = record.correctness
    told = 0.0 if record.ambiguous else 1.0  # where to ask is right, tests say nothing
    values = {
        "invalid_calls": float(record.usage.invalid_calls),
        "model_calls": float(record.usage.calls),
        "output_tokens": float(record.usage.output_tokens),
        "asked": float(record.did == "asked"),
        "flagged": float(bool(said.get("flags"))),
    }
    detail: dict[str, Any] = {
        "cause": record.cause,
        "stop": record.stop,
        "reason": said.get("reason", ""),
        "flags": list(said.get("flags", ())),
        "restored": list(said.get("restored", ())),
    }
    pairs = {name: (value, 1.0) for name, value in values.items()}
    pairs["solved"] = (told * bool(record.passed), told)
    pairs["right"] = (float(bool(record.right)), float(record.right is not None))
    return Attempt(*known, pairs, detail=detail)
