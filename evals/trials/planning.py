"""From what a person asks for to a plan: the suite read, the engine found, the digests taken.

Everything that can be wrong with a request is found here, before the first trial. Not here: making trials.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.graders.efficiency import read_prices
from cursorbench.graders.rubric import read_rubric
from cursorbench.harness import installed
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.budget import Budget
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.summary import SelfSummary
from cursorbench.sandbox import open_backend
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import Split, Task
from evals.trials import conditions
from evals.trials.attempt import Setting
from evals.trials.conditions import Conditions
from evals.trials.plan import Plan
from evals.trials.workers import Engine

ENVIRONMENTS = Path("~/.cache/rtrl/environments")
FIRST_ANSWER_S = 10.0  # for the engine to say which models it has


@dataclass(frozen=True)
class Asked:
    """What a person asks for; the flags of `rtrl bench run`.

    Attributes:
        model: "" for the first one served.
        command: of an outside agent, "" for our own.
        venv: with the outside agent's program, as `installed.home_of`; None to find that by the command.
        out: None for `trials/SUITE-MODEL`.
        names: of tasks; empty for all.
        summary_at: tokens of a prompt from which on the agent sums up; None for never.
        budget: `name=value` for fields of `harness.budget.Budget`.
        checkpoint: what the engine serves, which only the caller can know; needed for a cache.
    """

    suite: Path
    base_url: str
    model: str = ""
    key: str = ""
    command: str = ""
    venv: Path | None = None
    attempts: int = 1
    jobs: int = 2
    workers: Engine = "processes"
    out: Path | None = None
    names: Sequence[str] = ()
    split: Split | None = None
    budget: Sequence[str] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    summary_at: int | None = None
    cache: Path | None = None
    rerun_share: float = 0.1
    checkpoint: str = ""
    environments: Path = ENVIRONMENTS
    backend: str = "auto"
    prices: Path | None = None
    rubric: Path | None = None
    quality: bool = True
    seed: int = 0


def plan(asked: Asked) -> tuple[Suite, Plan]:
    """The suite and what is to be run of it.

    Raises:
        UsageError: (exit 2) an option makes no sense.
        InputMissingError, IntegrityError: (exit 5, 12) the suite or a file that is named.
        DependencyDownError: (exit 13) no engine, or no sandbox.
    """
    suite = Suite.open(asked.suite)
    tasks = _tasks(suite, asked)
    if asked.cache is not None and not asked.checkpoint:
        raise UsageError(
            "a cache of trials needs --checkpoint",
            hint="an engine's address does not tell which weights it serves",
        )
    agent = _agent(asked)
    model = asked.model or _first_model(asked)
    endpoint = Endpoint(asked.base_url, asked.key, model)
    weights = "" if asked.checkpoint else _weights(endpoint)
    served = conditions.engine(asked.base_url, model, asked.checkpoint or weights, asked.temperature)
    command, venv = _outside(asked)
    backend = open_backend(asked.backend)
    backend.probe()
    inside = conditions.sandbox(backend.name, backend.describe().get("image", ""))
    out = asked.out or Path("trials") / f"{suite.fields.name}-{_safe(model)}"
    setting = Setting(
        endpoint=endpoint,
        agent=agent,
        cache=asked.environments.expanduser().resolve(),
        out=out.resolve(),
        backend=backend.name,
        command=command,
        venv=venv,
        quality=asked.quality,
        prices=read_prices(asked.prices) if asked.prices else {},
    )
    return suite, Plan(
        tasks=tasks,
        attempts=asked.attempts,
        setting=setting,
        conditions=Conditions(conditions.harness(agent, command, venv), served, inside, conditions.graders()),
        jobs=asked.jobs,
        workers=asked.workers,
        cache=asked.cache.resolve() if asked.cache else None,
        rerun_share=asked.rerun_share,
        seed=asked.seed,
        rubric=read_rubric(asked.rubric) if asked.rubric else None,
        weights=weights,
    )


def _tasks(suite: Suite, asked: Asked) -> tuple[Task, ...]:
    tasks = suite.of_split(asked.split)
    if asked.names:
        named = {suite.task(name).name for name in asked.names}
        tasks = tuple(task for task in tasks if task.name in named)
    if not tasks:
        raise UsageError(f"no task of {suite.fields.name} is asked for", hint="--task, --split")
    return tasks


def _agent(asked: Asked) -> AgentConfig:
    config = AgentConfig(temperature=asked.temperature)
    budget = with_budget(config.budget, asked.budget)
    summary = SelfSummary(asked.summary_at) if asked.summary_at else None
    return replace(config, budget=budget, max_tokens=asked.max_tokens or config.max_tokens, summary=summary)


def with_budget(budget: Budget, changes: Sequence[str]) -> Budget:
    """A budget with `name=value` changes. Raises UsageError (exit 2)."""
    known = {one.name: one for one in fields(Budget)}
    for change in changes:
        name, equals, text = change.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        whole = name != "turns" or value.is_integer()  # a half one would be none, and no call be made
        if name not in known or not equals or not value > 0 or not whole:
            raise UsageError(
                f"--budget {change} is none",
                hint=f"one of {', '.join(known)} above 0, turns whole: turns=40",
            )
        number: Any = int(value) if name == "turns" else value
        budget = replace(budget, **{name: number})
    return budget


def _first_model(asked: Asked) -> str:
    with Driver(Endpoint(asked.base_url, asked.key, patience_s=FIRST_ANSWER_S)) as driver:
        return driver.model


def _weights(endpoint: Endpoint) -> str:
    with Driver(endpoint) as driver:
        return driver.weights()


def _outside(asked: Asked) -> tuple[str, Path | None]:
    """An outside agent's command as it is run inside, and what its program needs there (`installed.home_of`).

    None for that when the program has to be in the task's own environment.
    """
    if not asked.command:
        return "", None
    try:
        words = shlex.split(asked.command)
    except ValueError:
        words = []
    if not words:
        raise UsageError(
            f"the agent's command cannot be read: {asked.command!r}", hint="quote it as for a shell"
        )
    at = installed.program_at(words)
    beside = Path(sys.executable).parent / words[at]
    found = shutil.which(words[at]) or (str(beside) if beside.is_file() else "")
    home = asked.venv.resolve() if asked.venv else installed.home_of(Path(found)) if found else None
    if home is None:
        return asked.command, None
    _require_home(home, words[at], found)
    words[at] = _inside(Path(found), home) if found else words[at]
    return shlex.join(words), home


def _require_home(home: Path, program: str, found: str) -> None:
    """Raises InputMissingError, UsageError for what no program can come from."""
    if not installed.is_home(home):
        raise InputMissingError(
            f"--agent-venv {home} is no virtual environment, no {installed.MODULES} and no program",
            hint="make one with python -m venv, and install the agent there",
        )
    places = (f"bin/{program}", f".bin/{program}", program)
    if not found and not any((home / place).is_file() for place in places):
        raise UsageError(f"there is no program {program} in {home}", hint="the first word of --agent")


def _inside(program: Path, home: Path) -> str:
    """A program's name, or its path in its virtual environment: the same wherever that is."""
    for path in (program.absolute(), program.resolve()):
        if home.is_dir() and path.is_relative_to(home):
            within = path.relative_to(home)
            return within.name if within.parent == Path("bin") else str(within)
    elsewhere = Path(shutil.which(program.name) or program).resolve() != program.resolve()
    return home.name if program.resolve() == home and elsewhere else program.name


def _safe(model: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in model)
