"""A program of this machine, made usable in a sandbox: of a virtual environment, of node, or one file.

Scripts of a virtual environment name its absolute path, and its interpreter is a link out of it. So the
packages are bound read-only, the interpreter's installation at its own path, and a small folder beside
the relay's socket has the scripts again with a first line that is right inside. Of node's packages the whole
`node_modules` is bound, and node itself where the sandbox has not the machine's.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.sandbox.cover import packages

PACKAGES = "/run/rtrl-agent"  # inside: the virtual environment as it is on the host
ALONE = "/run/rtrl-program"  # inside: the folder of a program that is one file
MODULES = "node_modules"
_OWN = ("/usr/", "/bin/", "/lib")  # what every sandbox has of the host
_SETS = re.compile(r"\w+=")
_RUNS_OTHERS = re.compile(r"(?:python|pypy|node|bun|deno|ruby|perl|java|uvx?)[\d.]*")  # those are the task's


@dataclass(frozen=True)
class Installed:
    """A program for a sandbox.

    Attributes:
        mounts: what to bind, by place inside.
        venv: the virtual environment on the host; None for a program of one file.
        bin: folder inside with the virtual environment's scripts and `python3`.
        scripts: their names.
        covered: packages of its interpreter that are not its own, by place inside.
        modules: on the host, the packages that a program of node's is among.
        runner: what has to run such a program, by its place inside; "" for nothing.
    """

    mounts: Mapping[str, Path]
    venv: Path | None = None
    bin: str = ""
    scripts: frozenset[str] = frozenset()
    covered: tuple[str, ...] = ()
    modules: Path | None = None
    runner: str = ""

    def words(self, program: str) -> list[str]:
        """How a program is called inside."""
        place = self.place(program)
        return [self.runner, place] if self.runner and place != program else [place]

    def place(self, program: str) -> str:
        """Where a program is inside: a script, another one of `bin`, or one by its path in the venv.

        A program of one file goes by any name, as links to it may, but by one that is another program's (a
        shell's, which may run it by its place).
        """
        if self.modules is not None:
            found = self.modules / program
            is_of_it = found.is_file() and found.resolve().is_relative_to(self.modules.resolve())
            return f"{PACKAGES}/{MODULES}/{program}" if is_of_it else program
        if self.venv is None:
            (place, file), there = next(iter(self.mounts.items())), shutil.which(program)
            is_it = there is None or Path(there).resolve() == file.resolve()
            return place if is_it or PurePosixPath(place).name == program else program
        if program in self.scripts:
            return f"{self.bin}/{program}"
        for path in (f"bin/{program}", program):
            found = self.venv / path
            if found.is_file() and found.resolve().is_relative_to(self.venv.resolve()):
                return f"{PACKAGES}/{path}"
        return program


def name_of(command: str) -> str:
    """The name of a command's program, "" for none."""
    words = shlex.split(command)
    return PurePosixPath(words[program_at(words)]).name if words else ""


def program_at(words: Sequence[str]) -> int:
    """Which word of a command names its program: the first one, or the one that `env` sets variables for."""
    if not words or words[0] != "env":
        return 0
    return next((n for n, word in enumerate(words[1:], 1) if not _SETS.match(word)), 0)


def home_of(program: Path) -> Path | None:
    """What a program has to have in a sandbox: its virtual environment, the node_modules it is in, or itself,
    where it needs nothing else. None where it is there anyway, or cannot be told."""
    for path in (program.absolute(), program.resolve()):
        for folder in path.parents:
            if (folder / "pyvenv.cfg").is_file():
                return folder.resolve()
    file = program.resolve()
    if str(file).startswith(_OWN) or not file.is_file() or _RUNS_OTHERS.fullmatch(file.name):
        return None
    if _is_native(file):
        return file
    return next((path for path in reversed(file.parents) if path.name == MODULES), None)


def is_home(path: Path) -> bool:
    """Whether it is what `home_of` gives."""
    return path.is_file() or (path / "pyvenv.cfg").is_file() or (path.name == MODULES and path.is_dir())


def _is_native(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def of_modules(modules: Path) -> Installed:
    """Programs of node's packages; node, where it is not the system's, comes along."""
    mounts, runner = {f"{PACKAGES}/{MODULES}": modules}, ""
    node = Path(shutil.which("node") or "/usr/bin/node").resolve()
    if node.is_file() and not str(node).startswith(_OWN) and _is_native(node):
        runner = f"{ALONE}/node"
        mounts[runner] = node
    return Installed(mounts, modules=modules, runner=runner)


def alone(program: Path) -> Installed:
    """A program that is one file: an executable that brings everything along but the system's libraries."""
    return Installed({f"{ALONE}/{program.name}": program})


def prepare(venv: Path, folder: Path, inside: str) -> Installed:
    """Make a virtual environment usable.

    Args:
        venv: of the host, as `python -m venv` makes it.
        folder: of the host, empty, seen in the sandbox as `inside`.

    Raises:
        InputMissingError: it is no virtual environment.
        UsageError: its interpreter is installed where nothing can be bound.
    """
    home = _home(venv)
    version = next((path.name for path in sorted((venv / "lib").glob("python3.*"))), "")
    if not version:
        raise InputMissingError(f"{venv} has no packages of a Python 3", hint="make it with python -m venv")
    prefix = home.parent
    if str(prefix) in ("/", "/run", PACKAGES) or prefix == PurePosixPath(inside):
        raise UsageError(f"a Python that is installed in {prefix} cannot be bound into a sandbox")
    mounts = {PACKAGES: venv}
    if not f"{prefix}/".startswith(_OWN):
        mounts[str(prefix)] = Path(prefix)
    _skeleton(folder, home, version)
    shebang = f"#!{inside}/bin/python3\n".encode()
    scripts = {path.name: body for path in (venv / "bin").iterdir() if (body := _python_script(path))}
    for name, body in scripts.items():
        target = folder / "bin" / name
        target.write_bytes(shebang + body)
        target.chmod(0o755)
    covered = tuple(f"{prefix}/{path}" for path in packages(Path(prefix)))
    return Installed(mounts, venv, f"{inside}/bin", frozenset(scripts), covered)


def _home(venv: Path) -> PurePosixPath:
    """The folder of the interpreter that a virtual environment is made from."""
    try:
        lines = (venv / "pyvenv.cfg").read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputMissingError(
            f"{venv} is no virtual environment", hint="make it with python -m venv, and install the agent"
        ) from error
    settings = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    return PurePosixPath(Path(settings.get("home") or Path(sys.executable).parent).resolve())


def _skeleton(folder: Path, home: PurePosixPath, version: str) -> None:
    (folder / "bin").mkdir(mode=0o755, parents=True)
    (folder / "lib" / version).mkdir(mode=0o755, parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", "utf-8")
    (folder / "bin" / "python3").symlink_to(f"{home}/{version}")
    (folder / "lib" / version / "site-packages").symlink_to(f"{PACKAGES}/lib/{version}/site-packages")


def _python_script(path: Path) -> bytes | None:
    """A script without the line that names its interpreter, None for what is no Python script.

    A path that is too long for that line, or has a space in it, stands in the second one: for a shell a
    command, for Python the beginning of a string that the third one ends.
    """
    if path.is_symlink() or not path.is_file():
        return None
    content = path.read_bytes()[: 1 << 20]
    first, _, body = content.partition(b"\n")
    if first.strip() == b"#!/bin/sh" and body.startswith(b"'''exec' "):
        first, _, body = body.partition(b"\n")
        end, _, body = body.partition(b"\n")
        return body if b"python" in first and end.strip() == b"' '''" else None
    return body if first.startswith(b"#!") and b"python" in first else None
