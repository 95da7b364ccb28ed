"""Nothing stays behind: after an end, after `kill -9` of the caller or of the keeper."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cursorbench.sandbox import groups, sweep
from cursorbench.sandbox.boxes import MARK
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.keeper import DEEPEST
from cursorbench.sandbox.link import PACKAGES
from cursorbench.sandbox.protocol import Environment
from cursorbench.sandbox.stage import STAGE, started

_CALLER = """
import sys, time
from pathlib import Path
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Environment
backend = Bubblewrap()
sandboxes = [backend.start(Environment(Path(sys.argv[1]))) for _ in range(2)]
sandboxes[0].spawn(f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}")
sandboxes.append(sandboxes[0].fork())
while sys.argv[2] not in sandboxes[0].exec("cat /proc/[0-9]*/cmdline | tr '\\\\0' ' '").output:
    pass
print(backend.link().process.pid, flush=True)
time.sleep(600)
"""


def processes(mark: str) -> list[psutil.Process]:
    """Those with the mark in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def left(keeper: int, mark: str) -> list[object]:
    """What is still there of a keeper: processes and groups."""
    ours = processes(f"{MARK}{keeper}-")  # looked at once each: other tests' processes end meanwhile
    named = [name for name, _ in groups.detect().left_over() if name.startswith(f"{keeper}-")]
    return [*ours, *processes(f"sleep {mark}"), *named]


def opened(pid: int) -> int:
    """How many descriptors a process has, but for the maps of owners that a keeper keeps."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of a sandbox that it makes in reserve meanwhile
            found.append(str(path.readlink()))
    return sum(not name.startswith("user:") for name in found)


@pytest.mark.parametrize("killed", ["caller", "keeper", "both"])
def test_kill_9(backend: Bubblewrap, environment: Environment, killed: str) -> None:
    mark = str(time.time_ns())
    others = set(Path("/proc/self/mounts").read_text().splitlines())  # of another's container, say
    line = [sys.executable, "-c", _CALLER, str(environment.root), mark]
    variables = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    with (
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=variables) as caller,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(caller.kill)
        assert caller.stdout is not None
        keeper = int(caller.stdout.readline())
        assert len(left(keeper, mark)) > 3
        mounts = Path("/proc/self/mounts").read_text()
        assert f"{STAGE}/boxes" not in mounts  # none of ours is seen here
        new = [one for one in mounts.splitlines() if one not in others]
        assert not [one for one in new if "rtrl-sandbox" in one or one.startswith("overlay ")]
        if killed in ("keeper", "both"):
            os.kill(keeper, signal.SIGKILL)
        if killed in ("caller", "both"):
            caller.kill()
        until = time.monotonic() + 120
        while processes(f"sleep {mark}") and time.monotonic() < until:
            time.sleep(0.02)
        assert not processes(f"sleep {mark}")
        caller.kill()
    while psutil.pid_exists(keeper) and time.monotonic() < until:
        time.sleep(0.02)
    sweep.sweep(groups.detect())  # as the next keeper does
    while left(keeper, mark) and time.monotonic() < until:  # what was killed takes a moment to end
        time.sleep(0.02)
    assert left(keeper, mark) == []


def test_an_end_leaves_nothing(environment: Environment, backend: Bubblewrap) -> None:
    own = Bubblewrap()
    sandbox = own.start(environment)
    keeper = own.link().process.pid
    assert left(keeper, "none")
    sandbox.snapshot()
    sandbox.kill()
    own.close()
    assert left(keeper, "none") == []


def test_a_killed_keeper_costs_its_sandboxes_and_not_the_next(environment: Environment) -> None:
    """A worker keeps its backend: every later trial of it was lost to the infrastructure."""
    own = Bubblewrap()
    with own.start(environment) as lost:
        keeper = own.link().process  # asked again, it is the next one as soon as this one is seen to be dead
        keeper.kill()
        keeper.wait()
        while lost.exec("true").ended != "sandbox_died":  # the kernel ends it in a moment
            time.sleep(0.01)
        with own.start(environment) as sandbox:
            assert sandbox.exec("echo on").output == "on\n"
    own.close()


def test_the_keeper_forgets_what_was_killed(environment: Environment) -> None:
    own = Bubblewrap()
    with own.start(environment):
        keeper = own.link().process.pid
        mounts = Path(f"/proc/{keeper}/mounts")
        try:
            before, descriptors = len(mounts.read_text().splitlines()), opened(keeper)
        except PermissionError:
            pytest.skip("the keeper's mounts and descriptors cannot be seen by this user")
        for _ in range(20):
            with own.start(environment) as sandbox, sandbox.fork() as fork:
                assert fork.exec("true").ok
        more = 8 * DEEPEST  # of those in reserve, that were not there before
        assert len(mounts.read_text().splitlines()) <= before + more
        assert opened(keeper) <= descriptors + more
    own.close()


def test_as_many_are_in_reserve_as_were_waited_for(environment: Environment) -> None:
    """Forks one after the other each waited for a sandbox that was begun when the one before was taken."""
    own = Bubblewrap()
    keeper = psutil.Process(own.link().process.pid)

    def wait_for(children: int) -> None:
        deadline = time.monotonic() + 60
        while (found := len(keeper.children())) != children:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)

    with own.start(environment):
        wait_for(2)
        with ThreadPoolExecutor(2 * DEEPEST) as pool:
            started = list(pool.map(lambda _: own.start(environment), range(2 * DEEPEST)))
        for sandbox in started:
            sandbox.kill()
        wait_for(1 + DEEPEST)
        with own.start(replace(environment, workdir="/elsewhere")):
            wait_for(3)
    own.close()


def test_a_reserve_that_was_killed_is_given_to_nobody(environment: Environment) -> None:
    """By the machine's want of memory, say: each cost the trial that got it a try."""
    backend = Bubblewrap()
    with backend.start(environment):
        pass
    keeper, inside = psutil.Process(backend.link().process.pid), []
    deadline = time.monotonic() + 60
    while not inside:
        assert time.monotonic() < deadline, "none in reserve"
        inside = [one for child in keeper.children() for one in child.children()]
    for process in inside:
        process.kill()
        process.wait(10)
    with backend.start(environment) as sandbox:
        assert sandbox.exec("echo there").output == "there\n"
    backend.close()


def test_folders_of_dead_callers(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    dead = tmp_path / f"{sweep.FOLDER}{ended.pid}-x"
    alive = tmp_path / f"{sweep.FOLDER}{os.getpid()}-x"
    other = tmp_path / "rtrl-sandbox-notes"
    for folder in (dead, alive, other):
        (folder / "inner").mkdir(parents=True)
    assert sweep.sweep_folders(tmp_path) == 1
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()


def test_a_keeper_sweeps_the_callers_folders(
    backend: Bubblewrap, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked into the empty /tmp that it has for itself, and so did every next one."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with tempfile.TemporaryDirectory(prefix="swept-", dir="/tmp") as place:
        folder = Path(place, f"{sweep.FOLDER}{ended.pid}-x")
        folder.mkdir()
        tempfile.gettempdir()  # what this process remembers is not to be the place that goes
        monkeypatch.setenv("TMPDIR", place)
        own = Bubblewrap()
        own.start(environment).kill()
        own.close()
        assert not folder.exists()


def test_groups_that_end_while_they_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other keepers make and remove theirs at any moment, here between a folder's listing and its own."""
    monkeypatch.setattr(groups, "MOUNT", tmp_path)
    place = tmp_path / "memory"
    names = [f"{groups.PREFIX}7-{number}-1" for number in range(4)]
    for name in ["another", *names]:
        (place / name).mkdir(parents=True)
    real = os.scandir

    def scandir(path: str) -> Any:
        if Path(path) != place:
            for name in ("another", names[0]):
                with contextlib.suppress(FileNotFoundError):
                    (place / name).rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = groups.Groups(1, {"memory": place}).left_over()
    assert sorted(name for name, _ in found) == [f"7-{number}" for number in range(4)]


def test_a_group_that_somebody_left_half_made(tmp_path: Path) -> None:
    """A keeper that was killed while it tried cost every later one of its number the limits."""
    (tmp_path / f"rtrl-try-{os.getpid()}").mkdir()
    assert groups._try(tmp_path, ())
    assert not list(tmp_path.iterdir())


def test_processes_that_cannot_be_named_are_not_killed(tmp_path: Path) -> None:
    """0 is what stands for one of another PID namespace, and for `kill` it is who asks."""
    (tmp_path / "cgroup.procs").write_text("0\n17\n")
    assert groups.Group(2, {"pids": tmp_path}).members() == [17]


def test_who_is_alive(tmp_path: Path) -> None:
    me = os.getpid()
    assert sweep.is_alive(f"{me}-{started(me)}")
    assert not sweep.is_alive(f"{me}-1")
    assert not sweep.is_alive("nobody")
    name = "sleep \N{LATIN SMALL LETTER U WITH DIAERESIS}".encode()[:-1]  # as the kernel cuts a longer one
    program = Path(os.fsdecode(bytes(tmp_path) + b"/" + name))
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as other:
        try:
            assert started(other.pid) >= started(me) > 0
        finally:
            other.kill()
