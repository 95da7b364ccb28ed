"""Which commands are killed at fault points, from which workspace, and what is run afterwards.

Points are not listed here: a scenario is run once undisturbed and says which it passed, and how often.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from killsweeps import checks
from killsweeps.bases import OVERRIDE, Bases
from killsweeps.ledger import Ledger
from killsweeps.processes import Process, run
from killsweeps.server import Crowd, DidNotStartError, Server

INIT = ("init",)
SERVE = ("serve",)
WORK_S = 25.0  # how long users work until a point of the gateway must have been passed
ANSWERS = 40  # in an undisturbed run
FEW = ("--set", "train.min_episodes=100000")  # ends a cycle after distill: nothing to train on yet


@dataclass(frozen=True)
class Scenario:
    """One command to kill.

    Attributes:
        base: name of the workspace it starts from ("" for none).
        arguments: the command.
        points: pattern of the points aimed at; the same code is not aimed at in every scenario.
        good: exit statuses of the next command (the same again) that are right.
        hits: at most so many different n-th hits of each point.
    """

    name: str
    base: str
    arguments: tuple[str, ...]
    points: str = ".*"
    good: tuple[int, ...] = checks.GOOD
    hits: int = 3

    def command(self, workspace: Path, bases: Bases) -> tuple[str, ...]:
        """The arguments of `rtrl`."""
        return (*INIT, str(workspace), *bases.init) if self.arguments == INIT else self.arguments

    @property
    def serves(self) -> bool:
        return self.arguments == SERVE


SCENARIOS = (
    Scenario("init", "", INIT, good=(0, 2), hits=2),  # 2: it was done, there is a workspace already
    Scenario("gateway", "used", SERVE, r"(spool|vault|keys|serve)\..*"),
    Scenario("recover", "torn", SERVE, r"spool\.recover\..*|vault\..*"),
    Scenario("recover-reader", "torn", ("collect",), r"spool\.recover\..*"),
    Scenario("collect", "used", ("collect",)),
    Scenario("sweep", "half", ("collect",), r"(sweep|discard)\..*"),
    Scenario("sweep-verify", "half", ("verify", "--full"), r"(sweep|discard)\..*"),
    Scenario("distill", "collected", ("distill",), r"(publish|distill)\..*"),
    Scenario("train", "distilled", ("train",), r"train\..*|publish\.(rename|commit).*", hits=2),
    Scenario(
        "deploy",
        "trained",
        ("deploy", "--offline", "--input", "checkpoint@latest", *OVERRIDE),
        r"(deployment|alias|switch|deploy|run)\..*",
    ),
    Scenario(
        "rollback",
        "deployed",
        ("rollback", "--offline"),
        r"(deployment|alias|switch|rollback)\..*",
        good=(0, 5),  # 5: it was done, and there is nothing before that
    ),
    Scenario("gc", "deployed", ("gc", "--yes", "--keep-days", "0"), r"(gc|sweep|discard)\..*"),
    Scenario("cycle", "used", ("cycle", *FEW), r"cycle\..*"),
    Scenario("backup", "used", ("db", "backup"), r"db\..*"),
)


def by_name(name: str) -> Scenario:
    """The scenario of that name. Raises KeyError."""
    return {scenario.name: scenario for scenario in SCENARIOS}[name]


def points_of(scenario: Scenario, bases: Bases, folder: Path) -> Counter[str]:
    """The points an undisturbed run passes, and how often."""
    workspace = folder / "discover" / scenario.name
    ledger = bases.copy(scenario.base, workspace)
    with tempfile.NamedTemporaryFile("r") as listed:
        env = {"RTRL_FAULT_LIST": listed.name}
        if scenario.serves:
            server = Server(workspace)
            server.start(env)
            with Crowd(server, ledger, users=4, seed=0, prefix="discover") as crowd:
                crowd.wait_for(ANSWERS)
            server.stop()
        else:
            run(workspace, *scenario.command(workspace, bases), env=env)
        passed = Counter(listed.read().split())
    wanted = re.compile(scenario.points)
    return Counter({name: n for name, n in passed.items() if wanted.fullmatch(name)})


@dataclass(frozen=True)
class Struck:
    """What came of aiming at a point. `moment` is None when it was not reached."""

    moment: float | None
    problems: tuple[str, ...] = ()


def strike(scenario: Scenario, point: str, n: int, bases: Bases, workspace: Path) -> Struck:
    """Kill the command at the n-th passing of `point`, run the next command, look at everything."""
    ledger = bases.copy(scenario.base, workspace)
    env = {"RTRL_FAULT": f"{point}:{n}"}
    if scenario.serves:
        return _strike_server(workspace, env, ledger, f"{point}-{n}")
    arguments = scenario.command(workspace, bases)
    ended = Process(workspace, arguments, env).ended(300)
    if not ended.killed:
        return (
            Struck(None) if ended.code in scenario.good else Struck(ended.seconds, (f"not killed: {ended}",))
        )
    problems = [f"left running: {name}" for name in ended.orphans]
    problems += checks.stuck_locks(workspace)
    again = run(workspace, *arguments)
    if again.code not in scenario.good:
        problems.append(f"next command: {again}")
    problems += checks.everything(workspace, ledger)
    return Struck(ended.seconds, tuple(problems))


def _strike_server(workspace: Path, env: dict[str, str], ledger: Ledger, name: str) -> Struck:
    server = Server(workspace)
    with contextlib.suppress(DidNotStartError):  # killed while it started
        server.start(env)
    with Crowd(server, ledger, users=4, seed=0, prefix=name) as crowd:
        crowd.wait_for(1 << 30, timeout=WORK_S)
        if server.alive:
            server.stop()
            return Struck(None)
        ended = server.ended()
        if not ended.killed:
            return Struck(ended.seconds, (f"not killed: {ended}",))
        problems = [f"left running: {orphan}" for orphan in ended.orphans]
        problems += checks.stuck_locks(workspace)
        try:
            server.start()
            crowd.wait_for(len(ledger.generations) and 5)
        except DidNotStartError as error:
            problems.append(f"the next `rtrl serve`: {error}")
    problems += crowd.refused
    if server.alive and (stopped := server.stop()).code != 143:
        problems.append(str(stopped))
    return Struck(ended.seconds, (*problems, *checks.everything(workspace, ledger)))
