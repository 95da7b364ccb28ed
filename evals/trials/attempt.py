"""One trial, in a worker: a fresh sandbox, the agent, its diff, the grades; one record whatever happens.

Everything that can fail is attributed here, once, to a cause of `causes.TABLE`, and tried again as often as
the table says. What raises out of here is the user's to mend (a refused key, a damaged task) and ends the
run. Not here: which trials there are (`run.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from cursorbench import sandbox as sandboxes
from cursorbench.errors import DependencyDownError, SandboxError
from cursorbench.graders import correctness, efficiency, interaction, quality
from cursorbench.graders.efficiency import Price, Usage
from cursorbench.harness import atif, installed, outside
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.agent import run as run_agent
from cursorbench.harness.budget import Budget
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.episode import Episode
from cursorbench.harness.relay import Relay
from cursorbench.harness.sandboxed import SandboxPlace
from cursorbench.sandbox.protocol import Backend, Environment, Limits
from cursorbench.tasks import environment as environments
from cursorbench.tasks import folder
from cursorbench.tasks.task import Task
from evals.trials import causes
from evals.trials.record import MAX_DIFF, Record, put
from evals.trials.tried import Tried, of_episode

_LACKS = ("ModuleNotFoundError", "PackageNotFoundError")
_COVERED = "nothing that is installed for the machine's Python is in this task: give the agent a --agent-venv"


@dataclass(frozen=True)
class Setting:
    """What all trials of a run have in common.

    Attributes:
        cache: where environments are made once.
        out: the run's folder.
        command: of an outside agent; "" for our own. `agent` then only gives the budget.
        venv: the virtual environment with the outside agent's program, or that, where it is one file; None
            where the task's own has it.
        quality: whether lint and types are measured.
    """

    endpoint: Endpoint
    agent: AgentConfig
    cache: Path
    out: Path
    backend: str = "auto"
    command: str = ""
    venv: Path | None = None
    quality: bool = True
    prices: Mapping[str, Price] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One trial to be made: of the task in a folder, the `attempt`-th, kept as `key`."""

    setting: Setting
    task: Path
    attempt: int
    key: str
    cluster: str
    name: str


def attempt(job: Job) -> Record:
    """Make a trial, again where the table says so.

    Raises:
        UsageError: (exit 2) the engine refuses key or model.
        IntegrityError: (exit 12) the task is damaged.
    """
    began = time.monotonic()
    tries = 0
    while True:
        tries += 1
        found = _once(job)
        if tries > causes.TABLE[found.cause].retries:
            break
    return msgspec.structs.replace(found, tries=tries, seconds=time.monotonic() - began, at=time.time())


def _once(job: Job) -> Record:
    task = folder.read(job.task)
    try:
        environment = environments.open(task, job.setting.cache)
        limits = environments.limits(task)
    except DependencyDownError as error:
        return lost(job, "environment", error.message)
    try:
        backend = _backend(job.setting.backend)
        tried = _try(job, task, environment, limits, backend)
    except SandboxError as error:
        return lost(job, "sandbox_died", f"{error.message} {error.hint}")
    if tried.episode is not None:
        _keep_trajectory(job, tried.episode)
    if tried.cause and causes.infrastructure(tried.cause):
        return lost(job, tried.cause, tried.detail, tried)
    try:
        return graded(job, task, environment, limits, backend, tried)
    except SandboxError as error:
        return lost(job, "grader_died", f"{error.message} {error.hint}", tried)


def _keep_trajectory(job: Job, episode: Episode) -> None:
    """What happened, in ATIF, beside the trial's record."""
    command = job.setting.command
    found = atif.trajectory(
        episode,
        agent=installed.name_of(command) or "rtrl",
        version="" if command else version("rtrl"),
        model=job.setting.endpoint.model,
        session_id=job.key,
        trajectory_id=job.key,
    )
    put(job.setting.out / "trajectories" / job.key[:2] / f"{job.key}.json", msgspec.json.encode(found))


@cache
def _backend(name: str) -> Backend:
    return sandboxes.open_backend(name)


def _try(job: Job, task: Task, environment: Environment, limits: Limits, backend: Backend) -> Tried:
    """Let the agent work in a fresh sandbox. Raises SandboxError."""
    setting = job.setting
    budget = replace(setting.agent.budget, wall_s=min(setting.agent.budget.wall_s, task.timeout_s))
    attribution = Attribution(session=job.key[:32], no_train=True)
    if setting.command:
        return _try_outside(setting, task, environment, limits, backend, budget, attribution)
    with backend.start(environment, limits) as sandbox, Driver(setting.endpoint) as driver:
        place = SandboxPlace(sandbox, environment.workdir)
        config = replace(setting.agent, budget=budget)
        return of_episode(run_agent(config, place, task.instruction, driver, attribution), sandbox)


def _try_outside(
    setting: Setting,
    task: Task,
    environment: Environment,
    limits: Limits,
    backend: Backend,
    budget: Budget,
    attribution: Attribution,
) -> Tried:
    """Let an outside agent's command work in a fresh sandbox. Raises SandboxError."""
    # the agent's command is one, and everything that its model runs is part of it
    longer = replace(limits, wall_s=max(limits.wall_s, budget.wall_s), cpu_s=max(limits.cpu_s, budget.wall_s))
    with Relay(setting.endpoint, budget, attribution) as relay:
        agent = outside.install(relay, setting.venv) if setting.venv else outside.Agent()
        with backend.start(agent.bind(relay.bind(environment)), longer) as sandbox:
            done = outside.run(sandbox, relay, setting.command, task.instruction, agent)
            tried = of_episode(done.episode, sandbox)
    asked = bool(done.episode.turns)
    if tried.cause == "agent_failed" or (tried.cause == "no_answer" and not asked):
        cause = "agent_failed" if asked else "agent_unstarted"
        ended = "ended after its time" if done.late else f"status {done.status}"
        said = f"{ended}: {done.output[-500:].strip()}"
        if environment.covered and not setting.venv and any(word in done.output for word in _LACKS):
            said += f" ({_COVERED})"
        return replace(tried, cause=cause, detail=said)
    return tried


def graded(
    job: Job, task: Task, environment: Environment, limits: Limits, backend: Backend, tried: Tried
) -> Record:
    """Grade what an agent did, on each axis. Raises SandboxError."""
    setting = job.setting
    said = correctness.grade(task, environment, tried.diff, backend, limits)
    measured = (
        _quality(task, environment, limits, backend, tried.diff)
        if setting.quality and tried.diff.strip() and said.reason != "patch"
        else {}
    )
    did = "acted" if tried.cause == "too_large" else interaction.did(tried.diff, tried.final_text)
    cause = "solved" if said.passed else tried.cause or said.reason
    return Record(
        key=job.key,
        task=job.name,
        cluster=job.cluster,
        attempt=job.attempt,
        cause=cause,
        detail="" if said.passed else tried.detail or said.detail,
        passed=said.passed,
        stop=tried.stop,
        ambiguous=task.fields.ambiguous,
        did=did,
        right=interaction.right(did, task.fields.intent, ambiguous=task.fields.ambiguous),
        usage=tried.usage,
        cost=cost(setting, tried.usage),
        correctness=asdict(said),
        quality=measured,
        generations=tried.generations,
        diff=tried.diff[:MAX_DIFF],
        diff_cut=len(tried.diff) > MAX_DIFF,
    )


def cost(setting: Setting, usage: Usage) -> float | None:
    """Money by the run's price table; None where it has no price of the model."""
    price = efficiency.price_of(setting.endpoint.model, setting.prices)
    return None if price is None else efficiency.cost(usage, price)


def lacks_quality(setting: Setting, record: Record) -> bool:
    """Whether quality is asked for and was not when the trial was made."""
    wanted = setting.quality and not record.quality and not record.infrastructure
    return wanted and bool(record.diff.strip()) and record.correctness.get("reason") != "patch"


def measured(wanted: tuple[Job, Record]) -> Record:
    """A trial that was made without its quality, with it.

    Raises:
        DependencyDownError: (exit 13) no sandbox, or it died; no environment.
        IntegrityError: (exit 12) the task is damaged.
    """
    job, record = wanted
    task = folder.read(job.task)
    environment = environments.open(task, job.setting.cache)
    limits, backend = environments.limits(task), _backend(job.setting.backend)
    return msgspec.structs.replace(record, quality=_quality(task, environment, limits, backend, record.diff))


def _quality(
    task: Task, environment: Environment, limits: Limits, backend: Backend, diff: str
) -> dict[str, Any]:
    found = quality.measure(environment, diff, task.fields.lines_changed or 0, backend, limits)
    return asdict(found) | {"size_ratio": found.size_ratio}


def lost(job: Job, cause: str, detail: str, tried: Tried | None = None) -> Record:
    """A trial that infrastructure took: what is known of it, and no grade."""
    return Record(
        key=job.key,
        task=job.name,
        cluster=job.cluster,
        attempt=job.attempt,
        cause=cause,
        detail=detail.strip()[:1000],
        stop=tried.stop if tried else "",
        usage=tried.usage if tried else Usage(),
    )
