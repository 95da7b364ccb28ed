"""One kill at a fault point: the command that dies there, the command after it, and the look afterwards."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from killsweeps import checks
from killsweeps.bases import Bases
from killsweeps.ledger import Ledger
from killsweeps.processes import TIMEOUT_S, Process, run
from killsweeps.scenarios import Scenario
from killsweeps.server import Crowd, DidNotStartError, Server

WORK_S = 25.0  # how long users work until a point of the gateway must have been passed
ANSWERS = 40  # in an undisturbed run


@dataclass(frozen=True)
class Struck:
    """What came of aiming at a point. `moment` is None when it was not reached."""

    moment: float | None
    problems: tuple[str, ...] = ()


def points_of(scenario: Scenario, bases: Bases, folder: Path) -> Counter[str]:
    """The points an undisturbed run passes, and how often."""
    workspace = folder / "discover" / scenario.name
    ledger = bases.copy(scenario.base, workspace)
    with tempfile.NamedTemporaryFile("r") as listed:
        env = {"RTRL_FAULT_LIST": listed.name}
        if scenario.serves:
            with _serving(workspace, ledger, "discover", env=env) as crowd:
                crowd.wait_for(ANSWERS)
        else:
            with _beside(scenario, workspace, ledger):
                run(workspace, *scenario.command(workspace, bases), env=env)
        passed = Counter(listed.read().split())
    wanted = re.compile(scenario.points)
    return Counter({name: n for name, n in passed.items() if wanted.fullmatch(name)})


def strike(scenario: Scenario, point: str, n: int, bases: Bases, workspace: Path) -> Struck:
    """Kill the command at the n-th passing of `point`, run the next command, look at everything."""
    ledger = bases.copy(scenario.base, workspace)
    env = {"RTRL_FAULT": f"{point}:{n}"}
    if scenario.serves:
        return _strike_server(workspace, env, ledger, f"{point}-{n}")
    with _beside(scenario, workspace, ledger) as crowd:
        struck = _strike_command(scenario, env, workspace, bases)
    if struck.moment is None:
        return struck
    refused = crowd.refused if crowd else []
    return Struck(struck.moment, (*struck.problems, *refused, *checks.everything(workspace, ledger)))


def _strike_command(scenario: Scenario, env: Mapping[str, str], workspace: Path, bases: Bases) -> Struck:
    arguments = scenario.command(workspace, bases)
    ended = Process(workspace, arguments, env).ended(TIMEOUT_S)
    if not ended.killed:
        problems = () if ended.code in scenario.good else (f"not killed: {ended}",)
        return Struck(ended.seconds if problems else None, problems)
    found = [f"left running: {name}" for name in ended.orphans]
    found += checks.stuck_locks(workspace, serving=scenario.online)
    if scenario.online:  # by itself, before any other command
        found += checks.served_is_live(workspace)
    again = run(workspace, *arguments)
    if again.code not in scenario.good:
        found.append(f"next command: {again}")
    if scenario.online:
        found += checks.served_is_live(workspace)
    return Struck(ended.seconds, tuple(found))


def _strike_server(workspace: Path, env: Mapping[str, str], ledger: Ledger, name: str) -> Struck:
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
            crowd.wait_for(5)
        except DidNotStartError as error:
            problems.append(f"the next `rtrl serve`: {error}")
    if server.alive and (stopped := server.stop()).code != 0:
        problems.append(str(stopped))
    if crowd.refused:
        problems += [*crowd.refused, *server.said]
    return Struck(ended.seconds, (*problems, *checks.everything(workspace, ledger)))


@contextlib.contextmanager
def _beside(scenario: Scenario, workspace: Path, ledger: Ledger) -> Iterator[Crowd | None]:
    """For an online scenario, a gateway with users for the length of the block."""
    if not scenario.online:
        yield None
        return
    with _serving(workspace, ledger, "beside") as crowd:
        yield crowd


@contextlib.contextmanager
def _serving(
    workspace: Path, ledger: Ledger, prefix: str, *, env: Mapping[str, str] | None = None
) -> Iterator[Crowd]:
    server = Server(workspace)
    server.start(env)
    try:
        with Crowd(server, ledger, users=4, seed=0, prefix=prefix) as crowd:
            yield crowd
    finally:
        server.stop()
