"""Settings of all tests, and how they are spread over workers (`scripts/test` uses three).

What shares something goes to one worker.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import time
from collections.abc import Generator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import httpx._config as defaults
import httpx._transports.default as transports
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

# before torch is loaded: two workers with two threads each wait for one another on two cores
os.environ.setdefault("OMP_NUM_THREADS", "1")

# where the machine sets it, nothing waits in a program's stdout: what fails does so elsewhere than for users
os.environ.pop("PYTHONUNBUFFERED", None)

# where the machine forbids it, each of a thousand processes would compile rtrl anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine is no failure: what an example has to be is right, not quick. Nor is a lucky one, found by
# one run of many: all runs try the same. Others are looked for by `pytest --hypothesis-profile explore`.
UNHURRIED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("rtrl", derandomize=True, **UNHURRIED)
settings.register_profile("explore", max_examples=1000, **UNHURRIED)
settings.load_profile("rtrl")

# httpx reads the machine's certificates for each client anew, 20 ms of a core: once does for all tests
transports.create_ssl_context = cache(transports.create_ssl_context)  # type: ignore[attr-defined]

# nor is one that stands still for five seconds, after which httpx gives up where nothing else is said
vars(defaults.DEFAULT_TIMEOUT_CONFIG).update(dict.fromkeys(("connect", "read", "write", "pool"), 60.0))

ROOT = Path(__file__).resolve().parent.parent
MEMORY = Path("/dev/shm")
OURS = "rtrl-tests-"
ENGINES = {"served": "World", "batch": "InProcessEngine"}  # fixtures that all share, as tests take them
OWN_FOLDER = pytest.StashKey[Path]()
FAILED = pytest.StashKey[bool]()
ROOM = 4 << 30  # bytes; far more than what is kept while tests run, see tmp_path_retention_policy
KEPT_S = 6 * 3600  # what a failed run left, for whoever looks into it


def own_folder(place: Path) -> Path:
    """A new folder that names this process. Short: the paths of sockets in it are."""
    for number in count():
        made = place / f"{OURS}{os.getpid()}{f'-{number}' * bool(number)}"
        with contextlib.suppress(FileExistsError):  # of one that had the number before, and failed
            made.mkdir(mode=0o700)
            return made
    raise AssertionError


def is_over(left: Path) -> bool:
    """Whether a folder is of a run that failed or was killed, and has been kept for long enough.

    By the clock alone a run that goes on lost its folder, where another one saw a later day.
    """
    process = left.name.removeprefix(OURS).partition("-")[0]
    alive = process.isdecimal() and Path("/proc", process).exists()
    return not alive and time.time() - left.stat().st_mtime > KEPT_S


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders lie in memory where there is room, unless `--basetemp` names another place.

    Stores and spools sync each step: on a disk the tests wait for tens of thousands of these. Whether a
    sync is there, and in which order, is tested by what the kernel is asked for, not by the disk.
    """
    # Hypothesis takes examples from whichever of our modules a process has loaded by then: in another worker,
    # or after other tests, a property tried others. `explore` wants them.
    if not config.getoption("--hypothesis-profile"):
        vars(providers)["_get_local_constants"] = lambda: providers._local_constants
    # Else libraries complain, when the process ends, of what was not taken apart. The first that is asked for
    # is the last that is done: pytest collects garbage twice before, which need not go through all of that.
    config.add_cleanup(gc.unfreeze)
    free = shutil.disk_usage(MEMORY).free if os.access(MEMORY, os.W_OK) else 0
    if config.option.basetemp is None and free > ROOM:
        for left in MEMORY.glob(f"{OURS}*"):
            with contextlib.suppress(FileNotFoundError):  # another run that starts clears up too
                if is_over(left):
                    shutil.rmtree(left, ignore_errors=True)
        config.stash[OWN_FOLDER] = own_folder(MEMORY)
        config.option.basetemp = str(config.stash[OWN_FOLDER])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The libraries that all tests together import stay: the garbage collector need not go through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 100)  # as in the stages' workers: 4 % of the suite's processor time


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back. What failed tests left is kept, see tmp_path_retention_policy."""
    folder = config.stash.get(OWN_FOLDER, None)
    if folder is not None and not config.stash.get(FAILED, False):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note for `pytest_unconfigure` whether anything failed."""
    session.config.stash[FAILED] = exitstatus != pytest.ExitCode.OK


@cache
def scope(file: str) -> str:
    """A module's tests stay together, and so do all that use one of the engines of `tests/e2e/conftest.py`.

    Whoever deals the tests out has their names and nothing else, so the module's text has to say it.
    """
    text = (ROOT / file).read_text(encoding="utf-8")
    return "served" if any(f"{name}: {kind}" in text for name, kind in ENGINES.items()) else file


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that uses an engine unseen by `scope` fails: its worker would start another one."""
    file = item.nodeid.split("::", maxsplit=1)[0]
    used = set(ENGINES) & set(getattr(item, "fixturenames", ()))
    if used and scope(file) != "served":
        pytest.fail(f"write {used} with their types, as ENGINES of tests/conftest.py has them", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: begun last, one of them would run alone at the end, beside an idle worker."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/e2e/"))


class Spread(LoadScopeScheduling):
    """xdist's scheduler by scope, with `scope` above. (Its marks for groups do nothing under pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid.split("::", maxsplit=1)[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Called once, by the process that deals the tests out."""
    return Spread(config, log)
