"""A run before it is made: which tasks, how often, under which conditions, and the trials that follow.

Not here: what a person asks for (`planning.py`), making trials (`run.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cursorbench.graders import correctness
from cursorbench.graders.rubric import Rubric
from cursorbench.harness.driver import Driver
from cursorbench.tasks import suite as suites
from cursorbench.tasks.environment import of_machine
from cursorbench.tasks.task import Task
from evals.trials.attempt import Job, Setting
from evals.trials.conditions import Conditions
from evals.trials.record import key
from evals.trials.workers import Engine


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        tasks: of a suite.
        attempts: trials a task.
        jobs: at once.
        cache: folder of trials made before; None for none.
        rerun_share: of the trials from there, made again as a check.
        seed: which.
        weights: what rtrl's gateway called those it served; "" where nobody tells.
    """

    tasks: tuple[Task, ...]
    attempts: int
    setting: Setting
    conditions: Conditions
    jobs: int = 1
    workers: Engine = "processes"
    cache: Path | None = None
    rerun_share: float = 0.1
    seed: int = 0
    rubric: Rubric | None = None
    weights: str = ""


def deployed_meanwhile(plan: Plan) -> list[str]:
    """What is to be said of other weights than those the trials began with."""
    if not plan.weights:
        return []
    with Driver(plan.setting.endpoint) as driver:
        now = driver.weights()
    if now in ("", plan.weights):
        return []
    return [f"other weights are served now ({now}) than at the beginning ({plan.weights}): run it again"]


def limit_s(task: Task, setting: Setting) -> float:
    """Seconds after which a trial's worker is taken for hung: all that it may wait for, twice.

    Among it is all that a model can make its tests take: a trial that is taken for hung has no grade.
    """
    agent = min(setting.agent.budget.wall_s, task.timeout_s) + setting.endpoint.patience_s
    tests = correctness.MOST_RUNS * task.verifier_timeout_s
    return 2 * (agent + tests + task.environment.build_timeout_s + 600)


def task_digests(tasks: Sequence[Task]) -> dict[str, str]:
    """What tells of each task in a trial's name: its content, and what of the machine its tests see."""
    return {
        task.name: f"{suites.digest(task)} {of_machine(task.environment.kind, task.environment.python)}"
        for task in tasks
    }


def jobs_of(plan: Plan) -> list[Job]:
    """All trials, first attempts first: a run that is cut short has tried every task."""
    digests = task_digests(plan.tasks)
    return [
        Job(
            plan.setting,
            task.folder,
            number,
            key(plan.conditions.digest, digests[task.name], number),
            task.fields.cluster,
            task.name,
        )
        for number in range(plan.attempts)
        for task in plan.tasks
    ]
