"""Faults of disks, databases and the clock: a store that is away, no room, others' locks, jumps."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from chaosing.arena import Arena, Fault, in_background
from chaosing.settled import served
from chaosing.world import World

AWAY_S = 8.0
HOUR, DAY = 3600, 86_400
FAILED = (10, 13)  # no store; a disk that does not give or take


@contextmanager
def _away(arena: Arena, *, mount_point: bool) -> Iterator[None]:
    """The store's folder is not there; with `mount_point` an empty one is in its place."""
    store = arena.world.path / "store"
    aside = store.with_name("store.away")
    store.rename(aside)
    if mount_point:
        store.mkdir()
    try:
        yield
    finally:
        if store.exists():
            left = [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()]
            if left:
                arena.problem(f"written where the store was not: {', '.join(sorted(left)[:5])}")
            shutil.rmtree(store)
        aside.rename(store)
        arena.gone()


def store_away(arena: Arena) -> None:
    world, before = arena.world, arena.world.live
    arena.expect(world.rtrl(*world.deploying(world.other())), (0,))
    time.sleep(6)  # the gateway looks at the registry
    with _away(arena, mount_point=False):
        arena.expect(world.rtrl("rollback", "--json"), (0,))
        time.sleep(AWAY_S)
    arena.wait(lambda: world.live == before, 15, "the record of a rollback that moved the users")


def store_unmounted(arena: Arena) -> None:
    with _away(arena, mount_point=True):
        arena.expect(arena.world.rtrl("rollback", "--json"), (0, *FAILED))
        time.sleep(AWAY_S)


def store_away_engine_killed(arena: Arena) -> None:
    pid = arena.serving().engine.pid
    with _away(arena, mount_point=True):
        os.kill(pid, signal.SIGKILL)
        time.sleep(AWAY_S)


def store_away_in_deploy(arena: Arena) -> None:
    world = arena.world
    deploying = world.begin(*world.deploying(world.other()))
    arena.wait(lambda: arena.changing() or not deploying.alive, 60, "the loading of weights")
    with _away(arena, mount_point=True):
        arena.expect(deploying.ended(60), (0, 10, 12, 13))
        time.sleep(3)


@contextmanager
def _full(arena: Arena) -> Iterator[None]:
    arena.world.disk.fill()
    try:
        yield
    finally:
        arena.world.disk.free()
        arena.gone()


def disk_full(arena: Arena) -> None:
    other = arena.world.other()
    with _full(arena):
        time.sleep(2)
        arena.expect(arena.world.deploy(other), (0, 13))
        time.sleep(AWAY_S)


def disk_full_engine_killed(arena: Arena) -> None:
    pid = arena.serving().engine.pid
    with _full(arena):
        time.sleep(1)
        os.kill(pid, signal.SIGKILL)
        time.sleep(AWAY_S)


def disk_full_gateway_killed(arena: Arena) -> None:
    pid = arena.serving().pid
    with _full(arena):
        time.sleep(1)
        os.kill(pid, signal.SIGKILL)
        time.sleep(AWAY_S)


def _jumped(arena: Arena, seconds: int) -> None:
    world = arena.world
    world.clock.jump(seconds)
    before = world.live
    arena.expect(world.deploy(world.other()), (0,))
    arena.expect(world.rtrl("rollback", "--json"), (0,))
    if world.live != before:
        arena.problem(f"{world.live} is live after deploy and rollback, not {before}")
    time.sleep(3)
    world.clock.jump(0)
    before = world.live
    arena.expect(world.deploy(world.other()), (0,))
    arena.expect(world.rtrl("rollback", "--json"), (0,))
    arena.gone()
    if world.live != before:
        arena.problem(f"{world.live} is live after the clock was right again, not {before}")


def clock_forward(arena: Arena) -> None:
    _jumped(arena, HOUR)


def clock_back(arena: Arena) -> None:
    _jumped(arena, -DAY)


@contextmanager
def _locked(path: Path, begin: str) -> Iterator[None]:
    """Somebody else's transaction on a database."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
        other.execute(begin)
        other.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
        other.execute("ROLLBACK")


def registry_read(arena: Arena) -> None:
    world = arena.world
    with _locked(world.path / "store" / "registry.db", "BEGIN"):
        arena.expect(world.deploy(world.other()), (0,))
        arena.expect(world.rtrl("rollback", "--json"), (0,))
    arena.gone()


def registry_written(arena: Arena) -> None:
    world = arena.world
    deploying = world.begin(*world.deploying(world.other()))
    with _locked(world.path / "store" / "registry.db", "BEGIN IMMEDIATE"):
        time.sleep(AWAY_S)
    arena.expect(deploying.ended(60), (0,))
    arena.expect(world.rtrl("rollback", "--json"), (0,))
    arena.gone()


def rollback_with_registry_written(arena: Arena) -> None:
    world = arena.world
    arena.expect(world.deploy(world.other()), (0,))
    found = served(world)
    rolling = world.begin("rollback", "--json")
    begun = time.monotonic()
    with _locked(world.path / "store" / "registry.db", "BEGIN IMMEDIATE"):
        if arena.wait(lambda: _other(world, found), 5, "traffic on the weights before"):
            arena.note(f"traffic back after {time.monotonic() - begun:.1f} s")
        time.sleep(AWAY_S)
    arena.gone()
    arena.expect(rolling.ended(60), (0,))


def _other(world: World, found: dict[str, Any] | None) -> bool:
    now = served(world)
    return None not in (now, found) and now["checkpoint"] != found["checkpoint"]  # type: ignore[index]


def _held(arena: Arena, path: Path, beside: Callable[[], None] = lambda: None) -> None:
    with _locked(path, "BEGIN IMMEDIATE"):
        thread = in_background(beside)
        time.sleep(AWAY_S)
    arena.gone()
    thread.join(30)


def spool_written(arena: Arena) -> None:
    _held(arena, arena.world.path / "spool" / "spool.db")


def keys_written(arena: Arena) -> None:
    _held(arena, next((arena.world.path / "keys").glob("*.db")))


FAULTS = (
    Fault(
        "store-away",
        f"the store's folder renamed for {AWAY_S:g} s",
        "answers go on; a rollback moves the users, and is on record afterwards",
        10,
        store_away,
    ),
    Fault(
        "store-unmounted",
        f"an empty folder in the store's place for {AWAY_S:g} s",
        "answers go on; a rollback moves the users or says 10 or 13; nothing is written there",
        10,
        store_unmounted,
    ),
    Fault(
        "store-unmounted-engine-killed",
        "the same, and SIGKILL to the engine",
        "it is started again when the store is back",
        40,
        store_away_engine_killed,
    ),
    Fault(
        "store-unmounted-in-deploy",
        "the same while a deploy loads weights",
        "the old weights or the new ones, and the registry agrees",
        20,
        store_away_in_deploy,
    ),
    Fault(
        "disk-full",
        f"no room on the workspace's disk for {AWAY_S:g} s",
        "503 rather than answers that cannot be recorded",
        15,
        disk_full,
    ),
    Fault(
        "disk-full-engine-killed",
        "no room, and SIGKILL to the engine",
        "it is started again",
        40,
        disk_full_engine_killed,
    ),
    Fault(
        "disk-full-gateway-killed",
        "no room, and SIGKILL to `rtrl serve`",
        "it is started again when there is room",
        25,
        disk_full_gateway_killed,
        "supervisor",
    ),
    Fault(
        "clock-forward",
        "the time of day an hour ahead, deploy and rollback, then back",
        "deploy and rollback know their order",
        10,
        clock_forward,
    ),
    Fault(
        "clock-back",
        "the time of day a day behind, deploy and rollback, then right again",
        "deploy and rollback know their order",
        10,
        clock_back,
    ),
    Fault(
        "registry-read",
        "a reader holds a snapshot of the registry during deploy and rollback",
        "neither waits for it",
        10,
        registry_read,
    ),
    Fault(
        "registry-written",
        f"another writer holds the registry for {AWAY_S:g} s during a deploy",
        "the deploy waits for it",
        10,
        registry_written,
    ),
    Fault(
        "rollback-with-registry-written",
        f"another writer holds the registry for {AWAY_S:g} s during a rollback",
        "traffic moves at once, the record follows",
        10,
        rollback_with_registry_written,
    ),
    Fault(
        "spool-written",
        f"another writer holds the spool's index for {AWAY_S:g} s",
        "answers go on, the index follows",
        10,
        spool_written,
    ),
    Fault(
        "keys-written",
        f"another writer holds the users' keys for {AWAY_S:g} s",
        "users that are known are answered",
        10,
        keys_written,
    ),
)
