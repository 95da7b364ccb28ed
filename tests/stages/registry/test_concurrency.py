"""Several processes on one store."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.errors import LockedError
from stages.progress import Silent
from stages.registry.store import Store
from stages.registry.sweep import sweep
from stages.registry.verify import verify
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint

FORK = multiprocessing.get_context("fork")
PROCESSES = 6


def all_succeed(work: Callable[[int], None]) -> None:
    children = [FORK.Process(target=work, args=(i,)) for i in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * PROCESSES


def test_publishers_at_once_get_versions_of_their_own(workspace: Workspace, tmp_path: Path) -> None:
    """Six processes publish four checkpoints each; half of all contents are equal."""

    def work(i: int) -> None:
        store = Store.open(workspace.store_dir)
        for n in range(4):
            checkpoint(store, tmp_path / f"c{i}", f"same {n}" if n % 2 else f"{i} {n}")
            sweep(store)

    all_succeed(work)
    store = Store.open(workspace.store_dir)
    versions = [artifact.version for artifact in store.all_of("checkpoint")]
    assert versions == list(range(2 * PROCESSES + 2, 0, -1))
    assert verify(store, "full", Silent()).problems == []
    assert {run.state for run in store.runs()} == {"succeeded"}


def test_read_then_write_never_fails(workspace: Workspace, tmp_path: Path) -> None:
    """What deferred transactions cannot do: read, then write what was read, from all processes."""
    store = Store.open(workspace.store_dir)
    digests = [checkpoint(store, tmp_path / "c", str(n)).digest for n in range(2)]

    def work(i: int) -> None:
        mine = Store.open(workspace.store_dir)
        for n in range(20):
            mine.move_alias("auto", "live", digests[(i + n) % 2], reason=f"{i} {n}")

    all_succeed(work)
    with store.read() as session:
        from sqlalchemy import text

        rows = session.connection().execute(
            text("SELECT from_state, to_state FROM event WHERE entity = 'alias' ORDER BY seq")
        )
        moves = [tuple(row) for row in rows]
    assert len(moves) == 20 * PROCESSES
    assert all(before[1] == after[0] for before, after in itertools.pairwise(moves))


def test_one_runs_the_others_name_it(workspace: Workspace) -> None:
    began, done = os.pipe(), os.pipe()

    def hold(ctx: object) -> None:
        os.write(began[1], b"x")
        os.read(done[0], 1)

    def work() -> None:
        run_stage(workspace, Store.open(workspace.store_dir), Toy("first", during=hold))

    child = FORK.Process(target=work)
    child.start()
    os.read(began[0], 1)
    store = Store.open(workspace.store_dir)
    (running,) = store.runs(states=("running",))
    with pytest.raises(LockedError, match=rf"{running.id} \(pid {child.pid} on ") as caught:
        run_stage(workspace, store, Toy("second"))
    assert caught.value.code == 11
    with pytest.raises(LockedError):
        run_stage(workspace, store, Toy("second"), lock_timeout=0.2)
    os.write(done[1], b"x")
    assert run_stage(workspace, store, Toy("second"), lock_timeout=30).status == "succeeded"
    child.join(30)
    assert child.exitcode == 0
    assert [run.state for run in store.runs()] == ["succeeded", "succeeded"]


def test_a_killed_holder_frees_the_lock_though_its_child_lives(workspace: Workspace) -> None:
    """Lock files are close-on-exec: a program started by the run does not keep the stage locked."""
    import signal
    import subprocess

    began, told = os.pipe(), os.pipe()

    def hold(ctx: object) -> None:
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
        os.write(told[1], f"{child.pid}\n".encode())
        os.write(began[1], b"x")
        signal.pause()

    def work() -> None:
        run_stage(workspace, Store.open(workspace.store_dir), Toy("first", during=hold))

    child = FORK.Process(target=work)
    child.start()
    os.read(began[0], 1)
    sleeper = int(os.read(told[0], 20))
    try:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(10)
        store = Store.open(workspace.store_dir)
        assert run_stage(workspace, store, Toy("second")).status == "succeeded"
        assert {run.state for run in store.runs()} == {"succeeded", "lost"}
    finally:
        os.kill(sleeper, signal.SIGKILL)
