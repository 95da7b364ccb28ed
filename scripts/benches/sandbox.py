"""Sandboxes: a command in a warm one, the fork of a repository of 30 MB, and what 500 trials leave behind.

The repository is generated: 1,500 files of source of 20 kB. A fork is timed from a snapshot with one
changed file to the end of a first command in the new sandbox; beside it, what copying the tree takes. The
scripted agent of a trial reads, edits, runs tests, forks, leaves a daemon and floods its disk.

    --sandbox docker    the same of a container engine, fewer of each, without bars
"""

from __future__ import annotations

import argparse
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
from cursorbench.sandbox.docker import Docker
from cursorbench.sandbox.protocol import Backend, Environment, Limits
from cursorbench.sandbox.sweep import FOLDER

COMMANDS = 500
FORKS = 100
TRIALS = 500
OF_DOCKER = 10  # times fewer of each
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


def commands(backend: Backend, environment: Environment, count: int) -> tuple[list[float], list[float]]:
    """Times of a shell command in a warm sandbox, and of the same as a process without one."""
    with backend.start(environment, LIMITS) as sandbox:
        for _ in range(20):
            sandbox.exec("true")
        inside, bare = [], []
        for _ in range(count):
            inside.append(milliseconds(lambda: sandbox.exec("true")))
            bare.append(milliseconds(lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True)))
    return sorted(inside), sorted(bare)


def forks(backend: Backend, environment: Environment, count: int) -> tuple[list[float], list[float]]:
    """Times of fork and first command, and of a copy of the tree."""
    taken, copied = [], []
    with backend.start(environment, LIMITS) as sandbox:
        sandbox.write("package_1/module_1.py", b"changed")
        snapshot = sandbox.snapshot()
        for number in range(count):
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


def trial(backend: Backend, environment: Environment, number: int) -> None:
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bench.py sandbox` takes."""
    parser.add_argument(
        "--sandbox", choices=("bubblewrap", "docker"), default="bubblewrap", help="sandbox: the backend"
    )


def figures(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The three figures."""
    with tempfile.TemporaryDirectory(prefix="rtrl-bench-") as scratch:
        root = Path(scratch, "repository")
        repository(root)
        environment = Environment(root)
        if arguments.sandbox == "docker":
            return of_docker(environment)
        backend = Bubblewrap()
        backend.probe()
        inside, bare = commands(backend, environment, COMMANDS)
        taken, copied = forks(backend, environment, FORKS)
        backend.close()
        left, seconds = leftovers(environment)
    what = "median shell command in a warm sandbox; theirs: the same process without one"
    fork = "median fork of a 30 MB repository with its first command; theirs: a copy of the tree"
    return [
        {**timed("sandbox.command_ms", what, inside, bare), "bar": "<= 1.5"},
        {**timed("sandbox.fork_ms", fork, taken, copied), "bar": "<= 15"},
        {
            "id": "sandbox.leftovers",
            "what": f"left after {TRIALS} trials in {seconds:.0f} s: {', '.join(left[:3]) or 'nothing'}",
            "value": len(left),
            "unit": "things",
            "bar": "== 0",
            "runs": TRIALS,
        },
    ]


def of_docker(environment: Environment) -> list[dict[str, Any]]:
    """The same of containers; what is left are containers of this process."""
    backend = Docker()
    backend.probe()
    inside, bare = commands(backend, environment, COMMANDS // OF_DOCKER)
    taken, copied = forks(backend, environment, FORKS // OF_DOCKER)
    trials = TRIALS // OF_DOCKER
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda number: trial(backend, environment, number), range(trials)))
    left = backend.made_here()
    return [
        timed("sandbox.docker_command_ms", "median shell command in a container", inside, bare),
        timed("sandbox.docker_fork_ms", "median fork of 30 MB with its first command", taken, copied),
        {
            "id": "sandbox.docker_leftovers",
            "what": f"containers left after {trials} trials",
            "value": len(left),
            "unit": "containers",
            "bar": "== 0",
            "runs": trials,
        },
    ]


def timed(name: str, what: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """A figure of sorted times."""
    return {
        "id": name,
        "what": what,
        "value": statistics.median(ours),
        "unit": "ms",
        "bar": "",
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "runs": len(ours),
        "spread": [ours[len(ours) // 20], ours[-1 - len(ours) // 20]],
    }
