"""Faults of commands that change what is served: killed in each of their steps, or two of them at once."""

from __future__ import annotations

import functools
import tempfile
import time
from collections import Counter

from killsweeps.kills import say
from killsweeps.processes import Ended

from chaosing.arena import Arena, Fault
from chaosing.engines import SHARE, open_canary
from chaosing.world import World
from stages.target.canary import canary_of

ENDED = (0, 11)  # done; somebody else is at it


def two_deploys(arena: Arena) -> None:
    world = arena.world
    names = [name for name in ("second", "third", "base") if name != world.live]
    both = [world.begin(*world.deploying(name)) for name in names]
    ended = [arena.expect(process.ended(120), ENDED) for process in both]
    arena.gone()
    if not any(each.code == 0 for each in ended):
        arena.problem("neither of two deploys was done")


def rollback_in_deploy(arena: Arena) -> None:
    world = arena.world
    before = world.live
    deploying = world.begin(*world.deploying(world.other()))
    arena.wait(lambda: arena.changing() or not deploying.alive, 60, "the loading of weights")
    rolled = arena.expect(world.rtrl("rollback", "--json"), (0, 11))
    deployed = arena.expect(deploying.ended(120), ENDED)  # 11: an engine of several still waited for answers
    arena.gone()
    if rolled.code == deployed.code == 0 and world.live != before:
        arena.problem(f"{world.live} is live after the rollback, not {before}")


def rollback_in_canary_opening(arena: Arena) -> None:
    world = arena.world
    before = world.live
    deploying = world.begin(*world.deploying(world.other(), "--canary", SHARE))
    time.sleep(1.5)
    arena.expect(world.rtrl("rollback", "--json", "--lock-timeout", "30"), (0, 5))
    arena.expect(deploying.ended(120), (0, 11))
    if canary_of(world.store, "auto") is not None:
        arena.expect(world.rtrl("rollback", "--json"), (0,), "rollback of the canary")
    arena.gone()
    arena.note(f"{before} was live, {world.live} is")


COMMANDS = ("deploy", "rollback", "canary", "promote", "canary-rollback")


def steps(world: World) -> list[tuple[str, str]]:
    """(command, fault point) of an undisturbed deploy, rollback and canary, in order; does each once."""
    found = []
    for command in COMMANDS:
        with tempfile.NamedTemporaryFile("r") as listed:
            ended = _do(world, command, {"RTRL_FAULT_LIST": listed.name})
            passed = Counter(listed.read().split())
        if ended.code:
            say(f"{command} undisturbed: {ended}")
        for point, times in passed.items():
            found += [(command, f"{point}:{n}") for n in sorted({1, times})]
    if canary_of(world.store, "auto") is not None:
        world.rtrl("rollback")
    return found


def _do(world: World, command: str, env: dict[str, str]) -> Ended:
    if command == "deploy":
        return world.deploy(world.other(), env=env)
    if command == "canary":
        return world.deploy(world.other(), "--canary", SHARE, env=env)
    if command in ("promote", "canary-rollback") and canary_of(world.store, "auto") is None:
        world.deploy(world.other(), "--canary", SHARE)
    if command == "promote":
        return world.rtrl("deploy", "--promote", "--override", "--reason", "chaos", "--json", env=env)
    return world.rtrl("rollback", "--json", env=env)


def killed(command: str, point: str, arena: Arena) -> None:
    """The command dies at a fault point; afterwards the same command works."""
    world = arena.world
    if command in ("promote", "canary-rollback") and open_canary(arena) is None:
        return
    if command == "rollback":
        arena.expect(world.deploy(world.other()), (0,))
    arena.sticky_until()
    ended = _do(world, command, {"RTRL_FAULT": point})
    arena.gone()
    if not ended.killed:
        arena.note(f"not reached: exit {ended.code}")
        if ended.code not in (0, 5):
            arena.problem(str(ended))
    for orphan in ended.orphans:
        arena.problem(f"left {orphan} running")
    arena.calm(20)
    if canary_of(world.store, "auto") is not None:
        arena.expect(world.rtrl("rollback", "--json"), (0,), "rollback of the canary")


def kills(world: World) -> list[Fault]:
    """One fault for each step."""
    return [
        Fault(
            f"{command}-killed at {point.removesuffix(':1')}",
            f"SIGKILL to the command at {point}",
            "the old world or the new one, by the running gateway",
            25,
            functools.partial(killed, command, point),
        )
        for command, point in steps(world)
    ]


FAULTS = (
    Fault(
        "two-deploys",
        "two `rtrl deploy` of different checkpoints at once",
        "one after the other, or 11",
        10,
        two_deploys,
    ),
    Fault(
        "rollback-in-deploy",
        "`rtrl rollback` while a deploy loads weights",
        "it waits its turn, then undoes it; or the deploy gives way (11)",
        10,
        rollback_in_deploy,
    ),
    Fault(
        "rollback-in-canary-opening",
        "`rtrl rollback` while a canary's engine starts",
        "it waits its turn",
        15,
        rollback_in_canary_opening,
    ),
)
