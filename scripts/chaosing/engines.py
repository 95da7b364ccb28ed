"""Faults of engines and of the gateway's process: killed, hung, ended."""

from __future__ import annotations

import os
import signal
import time

from killsweeps.processes import Process

from chaosing.arena import Arena, Fault
from chaosing.settled import served
from stages.target.canary import canary_of

DOWN = (12, 13)  # a dependency is down; not what was to be served
SHARE = "0.4"
HANG_S = 5.0


def engine_killed(arena: Arena) -> None:
    os.kill(arena.serving().engine.pid, signal.SIGKILL)


def engine_hung(arena: Arena) -> None:
    os.kill(arena.serving().engine.pid, signal.SIGSTOP)


def engine_killed_in_deploy(arena: Arena) -> None:
    _signalled_in_deploy(arena, signal.SIGKILL, 120)


def engine_hung_in_deploy(arena: Arena) -> None:
    _signalled_in_deploy(arena, signal.SIGSTOP, 300)


def _signalled_in_deploy(arena: Arena, number: signal.Signals, seconds: float) -> None:
    """The deploy has to end within so long, and to leave the registry alone when it fails."""
    live, pid = arena.world.live, arena.serving().engine.pid
    deploying = _loading(arena)
    os.kill(pid, number)
    arena.gone()
    ended = arena.expect(deploying.ended(seconds), (*DOWN, *(0,) * (arena.world.replicas > 1)))
    if ended.code and arena.world.live != live:
        arena.problem("the registry moved although the deploy failed")


def rollback_with_engine_hung(arena: Arena) -> None:
    world = arena.world
    before = world.live
    arena.expect(world.deploy(world.other()), (0,))
    os.kill(arena.serving().engine.pid, signal.SIGSTOP)
    begun = time.monotonic()
    arena.gone()
    arena.expect(world.rtrl("rollback", "--json"), (0,))
    arena.note(f"in {time.monotonic() - begun:.1f} s")
    if world.live != before:
        arena.problem(f"{world.live} is live after the rollback, not {before}")


def gateway_killed(arena: Arena) -> None:
    os.kill(arena.serving().pid, signal.SIGKILL)
    _restarted(arena, -signal.SIGKILL)


def gateway_hung(arena: Arena) -> None:
    pid = arena.serving().pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(HANG_S)
    os.kill(pid, signal.SIGCONT)
    arena.gone()


def gateway_killed_in_deploy(arena: Arena) -> None:
    live, pid = arena.world.live, arena.serving().pid
    deploying = _loading(arena)
    os.kill(pid, signal.SIGKILL)
    arena.gone()
    arena.expect(deploying.ended(60), (13,))
    if arena.world.live != live:
        arena.problem("the registry moved although the deploy failed")


def gateway_killed_in_rollback(arena: Arena) -> None:
    world = arena.world
    before = world.live
    arena.expect(world.deploy(world.other()), (0,))
    pid = arena.serving().pid
    rolling = world.begin("rollback", "--json")
    arena.wait(lambda: arena.changing() or not rolling.alive, 60, "the loading of weights")
    os.kill(pid, signal.SIGKILL)
    arena.gone()
    ended = arena.expect(rolling.ended(60), (0, 13))
    if ended.code == 0 and world.live != before:
        arena.problem(f"{world.live} is live after the rollback, not {before}")


def gateway_drained(arena: Arena) -> None:
    before = len(arena.world.keeper.ended)
    begin = time.monotonic()
    os.kill(arena.serving().pid, signal.SIGTERM)
    arena.wait(lambda: len(arena.world.keeper.ended) > before, 40, "the end of rtrl serve")
    ended = time.monotonic()
    arena.gone()
    arena.expect(arena.world.keeper.ended[-1], (0,), "serve")
    in_flight = [r for r in arena.book.between(begin - 30, begin) if r.ended > begin]
    broken = [record for record in in_flight if record.outcome in ("cut", "told")]
    arena.note(f"{len(in_flight)} in flight, drained in {ended - begin:.1f} s")
    if broken:
        arena.problem(f"{len(broken)} answers that had begun before SIGTERM were broken off")


def gateway_killed_in_canary(arena: Arena) -> None:
    if (canary := open_canary(arena)) is None:
        return
    time.sleep(2)
    arena.sticky_until()
    os.kill(arena.serving().pid, signal.SIGKILL)
    _restarted(arena, -signal.SIGKILL)
    if arena.calm(30) is not None:
        arena.sticky_from(canary)
        time.sleep(2)
        arena.sticky_until()
        arena.note(f"the canary again after {time.monotonic() - arena.seen[-1].gone - 2:.1f} s")
    arena.expect(arena.world.rtrl("rollback", "--json"), (0,))
    arena.gone()


def canary_engine_killed(arena: Arena) -> None:
    _canary_engine(arena, signal.SIGKILL)


def canary_engine_hung(arena: Arena) -> None:
    _canary_engine(arena, signal.SIGSTOP)


def _canary_engine(arena: Arena, number: signal.Signals) -> None:
    if (canary := open_canary(arena)) is None:
        return
    time.sleep(1)
    arena.sticky_until()
    endpoint = arena.serving()
    assert endpoint.canary is not None
    os.kill(endpoint.canary.pid, number)
    arena.gone()
    ended = ("rolled_back",)
    if arena.wait(lambda: arena.world.store.deployments.get(canary).state in ended, 180, "its roll-back"):
        arena.note("rolled back by itself")


def open_canary(arena: Arena, *more: str) -> str | None:
    """A canary for a part of the users, open and well; its deployment. None when that failed."""
    ended = arena.expect(arena.world.deploy(arena.world.other(), "--canary", SHARE, *more), (0,), "canary")
    canary = canary_of(arena.world.store, "auto")
    if ended.code or canary is None or arena.calm(20) is None:
        return None
    arena.sticky_from(canary.id)
    return canary.id


def _loading(arena: Arena) -> Process:
    """A deploy that has begun to load weights into the engine."""
    world = arena.world
    deploying = world.begin(*world.deploying(world.other()))
    arena.wait(lambda: arena.changing() or not deploying.alive, 60, "the loading of weights")
    return deploying


def _restarted(arena: Arena, code: int) -> None:
    """The gateway ended with `code`, took its engine with it, and was started again."""
    keeper = arena.world.keeper
    arena.gone()
    before = len(keeper.ended)
    arena.wait(lambda: len(keeper.ended) > before or _runs(arena), 20, "the end of rtrl serve")
    arena.wait(lambda: served(arena.world) is not None, 60, "rtrl serve again")
    last = keeper.ended[-1]
    if last.code != code:
        arena.problem(f"rtrl serve ended with {last.code}")
    for orphan in last.orphans:
        arena.problem(f"rtrl serve left {orphan} running")


def _runs(arena: Arena) -> bool:
    return arena.world.endpoint is not None


FAULTS = (
    Fault(
        "engine-killed",
        "SIGKILL to the engine",
        "503 until it is started again, on the same weights",
        20,
        engine_killed,
    ),
    Fault(
        "engine-hung",
        "SIGSTOP to the engine",
        "noticed, killed and started again; no answer is mixed",
        45,
        engine_hung,
    ),
    Fault(
        "engine-killed-in-deploy",
        "SIGKILL to the engine while it loads new weights",
        "the deploy fails (12, 13), the old weights are served",
        20,
        engine_killed_in_deploy,
    ),
    Fault(
        "engine-hung-in-deploy",
        "SIGSTOP to the engine while it loads new weights",
        "the deploy fails (12, 13), the old weights are served",
        60,
        engine_hung_in_deploy,
    ),
    Fault(
        "rollback-with-engine-hung",
        "`rtrl rollback` of an engine that hangs (SIGSTOP)",
        "the engine is started again, on the weights before",
        45,
        rollback_with_engine_hung,
    ),
    Fault(
        "gateway-killed",
        "SIGKILL to `rtrl serve`",
        "the engine goes with it; everything answered is recorded",
        25,
        gateway_killed,
        "supervisor",
    ),
    Fault("gateway-hung", f"SIGSTOP to `rtrl serve` for {HANG_S:g} s", "it goes on", 10, gateway_hung),
    Fault(
        "gateway-killed-in-deploy",
        "SIGKILL to `rtrl serve` while a deploy loads weights",
        "the deploy fails (13), the old weights are served",
        25,
        gateway_killed_in_deploy,
        "supervisor",
    ),
    Fault(
        "gateway-killed-in-rollback",
        "SIGKILL to `rtrl serve` while a rollback loads weights",
        "the rollback is done, or fails (13) and nothing has changed",
        25,
        gateway_killed_in_rollback,
        "supervisor",
    ),
    Fault(
        "gateway-drained",
        "SIGTERM to `rtrl serve` while answers are streamed",
        "they are finished; exit 0",
        25,
        gateway_drained,
        "supervisor",
    ),
    Fault(
        "gateway-killed-in-canary",
        "SIGKILL to `rtrl serve` while a canary is open",
        "the canary again, for the same users",
        25,
        gateway_killed_in_canary,
        "supervisor",
    ),
    Fault(
        "canary-engine-killed",
        "SIGKILL to the canary's engine",
        "everybody is answered by the live one; rolled back",
        25,
        canary_engine_killed,
    ),
    Fault(
        "canary-engine-hung",
        "SIGSTOP to the canary's engine",
        "everybody is answered by the live one; rolled back",
        60,
        canary_engine_hung,
    ),
)
