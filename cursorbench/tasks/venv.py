"""A virtual environment from locked requirements: built once per lock, used read-only at a fixed place.

The network is needed while it is built and never after. pip follows the machine's own settings (index,
proxy, certificates). Every requirement has its hash, and what is installed is compared with the lock.
Not here: which requirements a repository has (`cursorbench/builder/`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError
from cursorbench.tasks import scripts
from cursorbench.tasks.cache import made_once
from cursorbench.tasks.scripts import VENV

BUILD_S = 1800.0
OLDEST, NEWEST = 8, 30  # N of the Pythons 3.N that are looked for
OUR_PIP = 9  # the oldest 3.x whose packages rtrl's own pip installs; older ones bring theirs
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)
_NOT_BUILT = re.compile(
    r"Could not build wheels|Failed to build|Failed building wheel|metadata-generation-failed"
)
_NO_NETWORK = re.compile(
    r"Temporary failure in name|Max retries|NewConnection|Connection(Error| broken|Reset)"
    r"|Read ?timed? ?out|ReadTimeout|ProxyError|SSLError|Could not fetch|from versions: none",
    re.IGNORECASE,
)
_ASK = "import json, sys; print(json.dumps([list(sys.version_info[:3]), sys.base_prefix, sys.executable]))"
_LIST = (
    "import json, importlib.metadata as m; "
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


class NotBuiltError(DependencyDownError):
    """A package of the lock does not build on this machine under that Python; `said`: pip's last word."""

    def __init__(self, message: str, said: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.said = said


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine.

    Attributes:
        version: `3.11.7`.
        prefix: its folder, which a sandbox needs at the same place.
        executable: the program.
    """

    version: str
    prefix: Path
    executable: Path


def interpreter(version: str) -> Interpreter:
    """The machine's Python of a version such as `3.11`.

    Looked for: the one that runs rtrl, `python3.11` on the PATH, pyenv's, uv's.

    Raises:
        InputMissingError: (exit 5) there is none.
    """
    for candidate in _candidates(version):
        found = _asked(candidate)
        if found and found.version.rpartition(".")[0] == version:
            return found
    raise InputMissingError(
        f"there is no Python {version} on this machine", hint=f"`uv python install {version}`, or pyenv's"
    )


@cache
def pythons() -> tuple[int, ...]:
    """The N of each Python 3.N of this machine that tasks run under, sorted."""
    found = []
    for minor in range(OLDEST, NEWEST):
        with contextlib.suppress(InputMissingError):
            interpreter(f"3.{minor}")
            found.append(minor)
    return tuple(found)


def known_by(python: str) -> datetime:
    """The day by which packages knew an interpreter such as `3.11`: the middle of the year after it came.

    Python 3.N comes in October of 2011 + N.
    """
    return datetime(2012 + int(python.partition(".")[2]), 7, 1, tzinfo=UTC)


def python_of(day: datetime) -> str:
    """The newest Python of this machine that packages of a day knew, such as `3.8`; else the oldest there is.

    Raises:
        InputMissingError: (exit 5) there is none.
    """
    there = [f"3.{minor}" for minor in pythons()]
    if not there:
        raise InputMissingError(f"there is no Python 3.{OLDEST} or newer on this machine")
    return next((one for one in reversed(there) if known_by(one) <= day), there[0])


def _candidates(version: str) -> list[Path]:
    name = f"python{version}"
    found = [Path(getattr(sys, "_base_executable", "") or sys.executable)]
    found += [Path(path) for path in (shutil.which(name),) if path]
    found += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"), reverse=True)
    found += sorted(Path.home().glob(f".local/share/uv/python/*{version}*/bin/{name}"), reverse=True)
    return found


def _asked(candidate: Path) -> Interpreter | None:
    try:
        done = subprocess.run(
            [str(candidate), "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=30
        )
        numbers, prefix, executable = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # no Python, or pyenv's shim of a version that is not chosen
    return Interpreter(".".join(map(str, numbers)), Path(prefix), Path(executable))


def build(
    lock: Path, version: str, cache: Path, programs: Mapping[str, str] | None = None
) -> tuple[Path, Interpreter]:
    """The virtual environment of a lock, built when it is not in the cache.

    Args:
        programs: the project's own scripts, by name (`scripts.py`).

    Returns:
        Its folder, which a sandbox mounts at `/venv`, and the interpreter it links to.

    Raises:
        InputMissingError: (exit 5) there is no such Python.
        IntegrityError: (exit 12) the lock has a requirement without a hash or another one was installed.
        DependencyDownError: (exit 13) it cannot be built: no network, or a package does not build
            (NotBuiltError).
    """
    python = interpreter(version)
    content = lock.read_bytes()
    pins = locked(content.decode("utf-8"), lock)
    told = "\n".join([python.version, str(python.prefix), VENV])
    told += "".join(f"\0{name}\0{text}" for name, text in (programs or {}).items())
    key = hashlib.sha256(content + b"\0" + told.encode()).hexdigest()[:32]

    def make(folder: Path) -> None:
        _make(folder, python, lock, pins)
        scripts.put(programs or {}, folder / "venv" / "bin")

    return made_once(cache, "venvs", key, make) / "venv", python


def locked(text: str, where: Path) -> dict[str, str]:
    """Version by normalised name.

    Raises:
        IntegrityError: (exit 12) a requirement without version or hash.
    """
    pins: dict[str, str] = {}
    for line in filter(None, _joined(text)):
        found = _PIN.match(line)
        if not found or "--hash=" not in line:
            raise IntegrityError(
                f"{where}: {line[:80]!r} is not NAME==VERSION with a hash",
                hint="`uv pip compile --generate-hashes`, or pip-tools, writes such a file",
            )
        if ";" in line:
            continue  # for some machines only: pip decides
        pins[normal(found[1])] = found[2]
    return pins


def _joined(text: str) -> Iterator[str]:
    """Its lines as pip has them: one that ends with a backslash goes on in the next, but for a comment."""
    whole = ""
    for line in text.splitlines():
        said = "" if line.lstrip().startswith("#") else line
        whole += said.removesuffix("\\")
        if not said.endswith("\\"):
            yield whole.strip()
            whole = ""
    yield whole.strip()


def normal(name: str) -> str:
    """A distribution's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _make(folder: Path, python: Interpreter, lock: Path, pins: Mapping[str, str]) -> None:
    folder.mkdir()
    venv = folder / "venv"
    program = str(venv / "bin" / "python")
    ours = importlib.util.find_spec("pip") is not None and int(python.version.split(".")[1]) >= OUR_PIP
    pip = [sys.executable, "-I", "-m", "pip", "--python", program] if ours else [program, "-I", "-m", "pip"]
    bare = ["--without-pip"] if ours else []
    _run([str(python.executable), "-I", "-m", "venv", *bare, str(venv)], lock)
    if pins:
        options = ["-q", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
        _run([*pip, "install", *options, "--no-deps", "--require-hashes", "-r", str(lock)], lock)
    said = json.loads(_run([program, "-I", "-c", _LIST], lock))
    have = {normal(name): version for name, version in said.items()}
    wrong = [f"{name}=={pin}" for name, pin in pins.items() if have.get(name) != pin]
    if wrong:
        raise IntegrityError(f"{lock}: installed is not what it names: {', '.join(sorted(wrong)[:3])}")
    for script in (venv / "bin").iterdir():
        move(script, f"{venv}/bin/", f"{VENV}/bin/")


def move(script: Path, here: str, there: str) -> None:
    """Let a script name the interpreter where it will be; a long path stands in its second line."""
    if script.is_symlink() or not script.is_file():
        return
    content = script.read_bytes()
    if content.startswith(b"#!") and here.encode() in b"".join(content.splitlines(keepends=True)[:2]):
        script.write_bytes(content.replace(here.encode(), there.encode(), 1))


def _run(command: list[str], lock: Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DependencyDownError(f"the environment of {lock} cannot be built: {error}") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        last = next((line for line in reversed(said) if "ERROR" in line), said[-1] if said else "no message")
        why = f"the environment of {lock} cannot be built: {last.strip()}"
        if _NOT_BUILT.search(done.stderr) and not _NO_NETWORK.search(done.stderr):
            raise NotBuiltError(why, last.strip(), hint="a package that is this old wants an older Python")
        raise DependencyDownError(
            why, hint="the network is needed once; see `pip config list` for the index in use"
        )
    return done.stdout
