"""Sandboxes: a command in a warm one, the fork of a repository of 30 MB, and what 500 trials leave behind.

The repository is generated: 1,500 files of source of 20 kB. A fork is timed from a snapshot with one
changed file to the end of a first command in the new sandbox; beside it, what copying the tree takes. The
scripted agent of a trial reads, edits, runs tests, forks, leaves a daemon and floods its disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil

from cursorbench.sandbox import groups
from cursorbench.sandbox.boxes import MARK
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Environment, Limits
from cursorbench.sandbox.sweep import FOLDER

COMMANDS = 500
FORKS = 100
TRIALS = 500
AT_ONCE = 2
LIMITS = Limits(memory=256 << 20, processes=64, wall_s=60, disk=64 << 20)


def repository(folder: Path) -> None:
    """30 MB in 1,500 files that do not compress to nothing."""
    draw = Random(0)
    for number in range(1500):
        path = folder / f"package_{number % 50}" / f"module_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(10_000).hex().encode())


def milliseconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def commands(backend: Bubblewrap, environment: Environment) -> tuple[list[float], list[float]]:
    """Times of a shell command in a warm sandbox, and of the same as a process without one."""
    with backend.start(environment, LIMITS) as sandbox:
        for _ in range(20):
            sandbox.exec("true")
        inside, bare = [], []
        for _ in range(COMMANDS):
            inside.append(milliseconds(lambda: sandbox.exec("true")))
            bare.append(milliseconds(lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True)))
    return sorted(inside), sorted(bare)


def forks(backend: Bubblewrap, environment: Environment) -> tuple[list[float], list[float]]:
    """Times of fork and first command, and of a copy of the tree."""
    taken, copied = [], []
    with backend.start(environment, LIMITS) as sandbox:
        sandbox.write("package_1/module_1.py", b"changed")
        snapshot = sandbox.snapshot()
        for number in range(FORKS):
            started = time.perf_counter()
            with sandbox.fork(snapshot) as fork:
                done = fork.exec(["cat", "package_1/module_1.py"])
                taken.append((time.perf_counter() - started) * 1000)
            assert done.output == "changed", done
            if number % 10 == 0:
                with tempfile.TemporaryDirectory() as scratch:
                    target = Path(scratch, "copy")
                    copied.append(milliseconds(partial(shutil.copytree, environment.root, target)))
        snapshot.close()
    return sorted(taken), sorted(copied)


def trial(backend: Bubblewrap, environment: Environment, number: int) -> None:
    """What an agent does, the badly behaved one too."""
    with backend.start(environment, LIMITS) as sandbox:
        path = f"package_{number % 50}/module_{number % 50}.py"
        sandbox.write(path, sandbox.read(path) + f"\n# {number}\n".encode())
        assert sandbox.exec(["grep", "-c", f"# {number}", path]).ok
        sandbox.exec(f"setsid sh -c 'sleep 3600; : {mark()}' >/dev/null 2>&1 &")
        sandbox.spawn(["sleep", "3600"])
        if number % 10 == 0:
            sandbox.exec("head -c 1G /dev/zero > flood; rm flood; yes | head -c 10M", timeout_s=10)
            sandbox.exec("while :; do sleep 1; done", timeout_s=0.1)
        with sandbox.fork() as fork:
            assert f"+# {number}" in fork.diff()


def there(keeper: int) -> Iterator[str]:
    """Everything of one keeper that is on this machine: processes, mounts, groups, folders."""
    marks = (f"{MARK}{keeper}-", mark())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            text = " ".join(process.cmdline())
            if process.pid == keeper or any(each in text for each in marks):
                yield f"process {process.pid} {text[:60]}"
    for place in ("/proc/self/mounts", f"/proc/{os.getppid()}/mounts"):
        yield from (line for line in Path(place).read_text("utf-8").splitlines() if "/tmp/boxes" in line)
    for name, _ in groups.detect().left_over():
        if name.startswith(f"{keeper}-"):
            yield f"group {name}"
    yield from (str(path) for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}{os.getpid()}-*"))


def mark() -> str:
    """What is in the command line of every daemon that the trials leave behind."""
    return f"rtrl-bench-{os.getpid()}"


def leftovers(environment: Environment) -> tuple[list[str], float]:
    """What is there of the trials after them, and their seconds."""
    backend = Bubblewrap()
    keeper = backend.link().process.pid
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda number: trial(backend, environment, number), range(TRIALS)))
    seconds = time.perf_counter() - started
    assert any(there(keeper)), "the keeper itself is not found"
    backend.close()
    return sorted(there(keeper)), seconds


def figures() -> list[dict[str, Any]]:
    """The three figures."""
    with tempfile.TemporaryDirectory(prefix="rtrl-bench-") as scratch:
        root = Path(scratch, "repository")
        repository(root)
        environment = Environment(root)
        backend = Bubblewrap()
        backend.probe()
        inside, bare = commands(backend, environment)
        taken, copied = forks(backend, environment)
        backend.close()
        left, seconds = leftovers(environment)
    return [
        {
            "id": "sandbox.command_ms",
            "what": "median shell command in a warm sandbox; theirs: the same process without one",
            "value": statistics.median(inside),
            "unit": "ms",
            "bar": "<= 1.5",
            "ours": statistics.median(inside),
            "theirs": statistics.median(bare),
            "runs": COMMANDS,
            "spread": [inside[COMMANDS // 20], inside[-COMMANDS // 20]],
        },
        {
            "id": "sandbox.fork_ms",
            "what": "median fork of a 30 MB repository with its first command; theirs: a copy of the tree",
            "value": statistics.median(taken),
            "unit": "ms",
            "bar": "<= 15",
            "ours": statistics.median(taken),
            "theirs": statistics.median(copied),
            "runs": FORKS,
            "spread": [taken[FORKS // 20], taken[-FORKS // 20]],
        },
        {
            "id": "sandbox.leftovers",
            "what": f"left after {TRIALS} trials in {seconds:.0f} s: {', '.join(left[:3]) or 'nothing'}",
            "value": len(left),
            "unit": "things",
            "bar": "== 0",
            "runs": TRIALS,
        },
    ]
