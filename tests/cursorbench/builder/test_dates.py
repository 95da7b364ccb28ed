"""The moved date: what processes see of it in a sandbox, and what a build makes of tests that hang on it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cursorbench.builder import dates
from cursorbench.builder.build import build
from cursorbench.builder.dates import Clock, compiled
from cursorbench.builder.settings import Settings
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Environment, Sandbox
from cursorbench.tasks.scripts import VENV
from tests.cursorbench.builder.test_build import COMMAND, Told
from tests.cursorbench.history.gits import HOUR, Git

pytestmark = [
    pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap"),
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]
AHEAD_S = 403 * 86_400 + 5 * 3_600

LOOK = """
import asyncio, ctypes, datetime, json, os, queue, sqlite3, subprocess, sys, tempfile, threading, time
from pathlib import Path

def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

folder = Path(tempfile.mkdtemp())
(folder / "a").write_text("x")
days = {
    "today": datetime.date.today(), "now": datetime.datetime.now(datetime.UTC).date(),
    "time": time.strftime("%F", time.gmtime(time.time())), "gmtime": time.strftime("%F", time.gmtime()),
    "ns": time.strftime("%F", time.gmtime(time.time_ns() // 10**9)),
    "C": time.strftime("%F", time.gmtime(ctypes.CDLL(None).time(None))),
    "sqlite": sqlite3.connect(":memory:").execute("select current_date").fetchone()[0],
    "date": said("date", "+%F"),
    "child": said(sys.executable, "-c", "import datetime as d; print(d.date.today())"),
    "mtime": time.strftime("%F", time.gmtime((folder / "a").stat().st_mtime)),
    "scandir": time.strftime("%F", time.gmtime(next(os.scandir(folder)).stat().st_mtime)),
    "statx": said("stat", "-c", "%y", str(folder / "a")).split()[0],
}
hour_ago = time.time() - 3600
for name in "bcd":
    (folder / name).write_text("")
os.utime(folder / "b", (hour_ago, hour_ago))
said("touch", "-d", f"@{hour_ago}", str(folder / "c"))
os.utime(folder / "d", (0, 0))
waits = {}

def waited(name, wait):
    began = time.monotonic()
    try:
        wait()
    except (queue.Empty, subprocess.TimeoutExpired, TimeoutError):
        pass
    waits[name] = time.monotonic() - began >= 0.05

def until_a_time_of_day():
    libc, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    moment = time.time_ns() + 50_000_000
    libc.sem_timedwait(semaphore, (ctypes.c_long * 2)(*divmod(moment, 10**9)))

def condition():
    with (one := threading.Condition()):
        one.wait(0.05)

waited("sleep", lambda: time.sleep(0.05))
waited("event", lambda: threading.Event().wait(0.05))
waited("condition", condition)
waited("queue", lambda: queue.Queue().get(timeout=0.05))
waited("asyncio", lambda: asyncio.run(asyncio.wait_for(asyncio.Event().wait(), 0.05)))
waited("subprocess", lambda: subprocess.run(["sleep", "60"], timeout=0.05))
waited("until", until_a_time_of_day)
print(json.dumps({
    "days": {name: str(day) for name, day in days.items()}, "waits": waits,
    "set": [abs((folder / name).stat().st_mtime - hour_ago) < 1e-3 for name in "bc"],
    "epoch": (folder / "d").stat().st_mtime,
    "old": Path("old.txt").stat().st_mtime, "library": os.stat(os.__file__).st_mtime,
}))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def environment(tree: Path, mounts: Mapping[str, Path]) -> Environment:
    """With the Python that runs the tests."""
    base = Path(sys.base_prefix)
    ours = {VENV: Path(sys.prefix)} | ({} if base.is_relative_to("/usr") else {str(base): base})
    return Environment(tree, {**ours, **mounts}, {"PATH": f"{VENV}/bin:/usr/bin:/bin", "TZ": "UTC"})


@pytest.fixture
def box(tmp_path: Path, cache: Path) -> Iterator[Sandbox]:
    """A sandbox that has the clock, and a file from before."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "old.txt").write_text("x")
    os.utime(tmp_path / "tree" / "old.txt", (1e9, 1e9))
    backend = Bubblewrap()
    with backend.start(environment(tmp_path / "tree", compiled(cache).mounts)) as made:
        yield made
    backend.close()


def test_everything_in_a_run_agrees_on_the_date(box: Sandbox, cache: Path) -> None:
    """Waits take as long as they say: under a library that moves less, they hang or fail."""
    clock = compiled(cache)
    assert clock.why_not == ""
    assert clock.inside(box, AHEAD_S) is clock
    now = datetime.now(UTC)
    done = box.exec(["python", "-c", LOOK], timeout_s=60, variables=clock.variables(AHEAD_S))
    found = json.loads(done.output)
    around = {str((now + timedelta(seconds=AHEAD_S + more)).date()) for more in (0, 120)}
    assert {name for name, day in found["days"].items() if day not in around} == set()
    assert {name for name, took in found["waits"].items() if not took} == set()
    assert found["set"] == [True, True]
    assert found["epoch"] == 0
    assert found["old"] == 1e9, "what no test touched keeps its time, and so do compiled modules"
    assert found["library"] == Path(os.__file__).stat().st_mtime
    assert clock.variables(0) == {}


def test_nobody_sets_the_machine_s_clock_by_it(cache: Path) -> None:
    """CPython's own test_time reads the clock and sets it: as root it put a machine 403 days ahead."""
    folder = compiled(cache).folder
    assert folder is not None
    library = ctypes.CDLL(str(folder / "clock.so"), use_errno=True)
    no_time = (ctypes.c_long * 2)(0, -1)  # the kernel's own answer would be EINVAL, whoever asks
    for set_it in (
        lambda: library.clock_settime(time.CLOCK_REALTIME, no_time),
        lambda: library.settimeofday(no_time, None),
    ):
        assert (set_it(), ctypes.get_errno()) == (-1, errno.EPERM)


def test_a_library_without_effect_is_noticed(tmp_path: Path) -> None:
    """As in an image with another C library, whose loader goes on without it or starts nothing."""
    (tmp_path / "clock.so").write_text("no library")
    backend = Bubblewrap()
    with backend.start(environment(tmp_path, {dates.INSIDE: tmp_path})) as box:
        found = Clock(tmp_path).inside(box, AHEAD_S)
    backend.close()
    assert found.folder is None
    assert found.why_not.startswith("inside it has no effect: ")


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dates, "_compiler", lambda: [])
    assert compiled(tmp_path).why_not.startswith("there is no C compiler")
    assert compiled(tmp_path).variables(AHEAD_S) == compiled(tmp_path).mounts == {}
    monkeypatch.setattr(dates, "_compiler", lambda: ["false"])
    assert compiled(tmp_path).why_not == "false does not compile it: no message"


CODE = "import time\n\n\ndef age(path):\n    return time.time() - path.stat().st_mtime\n"
TESTS = """import datetime
import os
import threading
import time

import words


def test_offered():
    assert words.offered() and datetime.date.today() < datetime.date.fromisoformat("{until}")


def test_a_new_file_has_no_age(tmp_path):
    (tmp_path / "a").write_text("")
    assert abs(words.age(tmp_path / "a")) < 3600
    an_hour = time.time() - 3600
    os.utime(tmp_path / "a", (an_hour, an_hour))
    assert 3590 < words.age(tmp_path / "a") < 7200


def test_waits():
    assert not threading.Event().wait(0.01)
    time.sleep(0.01)
"""


def test_a_task_that_hangs_on_the_date_is_none(tmp_path: Path, cache: Path) -> None:
    """Of three tests one does, the one that tells; waits and times of files agree with the moved clock."""
    until = str((datetime.now(UTC) + timedelta(days=30)).date())
    git = Git(tmp_path / "repo")
    git.commit(0, {"words/__init__.py": CODE, "conftest.py": ""})
    files = {
        "words/__init__.py": f"{CODE}\n\ndef offered():\n    return True\n",
        "tests/test_offer.py": TESTS.format(until=until),
    }
    git.commit(HOUR, files, "Say whether words are offered")
    settings = Settings(
        tmp_path / "repo", tmp_path / "suite", name="me/words", environment="host", cache=cache,
        test_command=shlex.join(COMMAND),
    )  # fmt: skip
    built = build(settings, Told())
    (verdict,) = built.verdicts
    assert (verdict.outcome, verdict.reason) == ("rejected", "date_dependent")
    assert verdict.detail == "1 ids, such as tests/test_offer.py::test_offered"
    assert built.warnings == ()
