"""SIGKILL at every fault point of publishing and gc; the next command finds the old world or the new one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from stages import faults
from stages.progress import Silent
from stages.registry import gc
from stages.registry.store import Store
from stages.registry.verify import verify
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.toy import Toy


def in_child(work: Callable[[], object], **environment: str) -> int:
    """Run `work` in a forked process with fault points configured; the signal it died of, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            faults.configure(environment)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0
    return 0


def points_of(work: Callable[[], object], log: Path) -> list[str]:
    """Each fault point that `work` passes, with the count of each time: `name:2` for the second."""
    assert in_child(work, RTRL_FAULT_LIST=str(log)) == 0
    seen: dict[str, int] = {}
    found = []
    for name in log.read_text().split():
        seen[name] = seen.get(name, 0) + 1
        found.append(f"{name}:{seen[name]}")
    return found


def fresh(template: Path, folder: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(template, folder)))


def test_a_killed_run_leaves_the_old_world_or_the_new_one(template: Path, tmp_path: Path) -> None:
    def run(workspace: Workspace) -> None:
        run_stage(workspace, Store.open(workspace.store_dir), Toy("x"))

    first = fresh(template, tmp_path / "first")
    points = points_of(lambda: run(first), tmp_path / "points")
    assert len(points) > 25, points
    assert {"publish.rename.before:1", "publish.rename.after:2", "publish.commit.before:1"} <= set(points)
    for i, point in enumerate(points):
        workspace = fresh(template, tmp_path / str(i))
        assert in_child(lambda w=workspace: run(w), RTRL_FAULT=point) == signal.SIGKILL, point
        store = Store.open(workspace.store_dir)
        committed = store.latest("report") is not None
        assert committed == (points.index("publish.commit.after:1") <= i), point
        result = run_stage(workspace, store, Toy("x"))  # the next command
        assert result.status == ("noop" if committed else "succeeded"), point
        found = verify(store, "full", Silent())
        assert found.problems == [], point
        assert found.artifacts == 2, point
        assert not found.swept, point
        assert [r.state for r in store.runs() if r.state in ("planned", "running")] == [], point
        assert list((store.dir / "tmp").iterdir()) == [], point
        assert result.outputs["report"].meta["of"] == result.outputs["data"].digest


def test_a_killed_gc_is_finished_by_the_next_command(template: Path, tmp_path: Path) -> None:
    full = fresh(template, tmp_path / "full")
    for text in ("a", "b", "c"):
        run_stage(full, Store.open(full.store_dir), Toy(text))

    def collect(workspace: Workspace) -> None:
        gc.collect(Store.open(workspace.store_dir), 0.0, by="test")

    workspace = fresh(full.root, tmp_path / "first")
    points = points_of(lambda: collect(workspace), tmp_path / "points")
    assert len(points) > 10, points
    for i, point in enumerate(points):
        workspace = fresh(full.root, tmp_path / str(i))
        assert in_child(lambda w=workspace: collect(w), RTRL_FAULT=point) == signal.SIGKILL, point
        store = Store.open(workspace.store_dir)
        collect(workspace)
        found = verify(store, "full", Silent())
        assert (found.problems, found.artifacts, bool(found.swept)) == ([], 2, False), point
        assert store.resolve("report@latest").ref == "report@v3"
