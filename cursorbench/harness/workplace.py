"""Where the tools work: a protocol, and the plain folder of it.

The same tools over the same protocol serve production, simulation and evaluation; what differs is
what stands under them. A plain folder is the host's own disk: its files are read and written below
one root, and no command that a model wrote is ever run there. The sandbox is in `sandboxed.py`.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol

from cursorbench.harness.commands import COMMANDS, limited, run_command
from cursorbench.harness.results import RefusedError

PROGRAM_OUTPUT = 1 << 20  # bytes of one helper program's output
MAX_FILES = 50_000  # of a listing


@dataclass(frozen=True)
class Ran:
    """A command that ended.

    Attributes:
        ended: "exited" by itself; "timeout"; "killed" for memory or output.
        status: exit status, negative for a signal.
        output: standard output and error as they came.
    """

    ended: Literal["exited", "timeout", "killed"]
    status: int
    output: str
    seconds: float = 0.0


class Workplace(Protocol):
    """Files below one root, and commands where there is a place for them.

    Paths are relative to the root; whatever leads out of it is refused. All methods may be called from
    several threads; they raise RefusedError for what a model caused, SandboxError for infrastructure.
    """

    @property
    def runs_commands(self) -> bool:
        """Whether `command` runs what a model wrote."""

    def name(self, path: str) -> str:
        """The one name a file has here, relative to the root. Raises RefusedError (outside)."""

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes. Raises RefusedError (outside, no_file, too_large)."""

    def write(self, path: str, content: bytes) -> None:
        """Put a file, making its folders. Raises RefusedError (outside, not_writable)."""

    def files(self) -> list[str]:
        """Regular files, folder by folder in order, at most MAX_FILES; no links, nothing of `.git`."""

    def fixed(self, name: str) -> Ran:
        """One command of the fixed table. Raises RefusedError (arguments, not_available)."""

    def command(self, command: str, timeout_s: float) -> Ran:
        """A command that a model wrote, by a shell. Raises RefusedError (not_available)."""

    def program(self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"") -> Ran:
        """A program of ours or of the task's settings, never words of a model as its name.

        `argv[0]` may be "python", which is some Python 3. Raises RefusedError (not_available).
        """


class Folder:
    """A plain folder of this machine. Changes files below it and nothing else."""

    runs_commands = False

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def name(self, path: str) -> str:
        return str(self._inside(path).relative_to(self.root))

    def read(self, path: str, limit: int) -> bytes:
        place = self._inside(path)
        try:
            if not place.is_file():  # a pipe would never end
                raise RefusedError("no_file", "no such file")
            if place.stat().st_size > limit:
                raise RefusedError("too_large", "file is too large")
            return place.read_bytes()
        except (OSError, ValueError) as error:
            raise RefusedError("no_file", "no such file") from error

    def write(self, path: str, content: bytes) -> None:
        place = self._inside(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (OSError, ValueError) as error:
            raise RefusedError("not_writable", "the file cannot be written") from error

    def files(self) -> list[str]:
        found = (path.relative_to(self.root) for path in self.root.rglob("*"))
        regular = (path for path in found if ".git" not in path.parts and _regular(self.root / path))
        return [str(path) for path in sorted(islice(regular, MAX_FILES))]

    def fixed(self, name: str) -> Ran:
        if name not in COMMANDS:
            raise RefusedError("arguments", "no such command")
        done = run_command(name, self.root)
        return Ran("timeout" if done.timed_out else "exited", done.status, done.output)

    def command(self, command: str, timeout_s: float) -> Ran:
        raise RefusedError("not_available", "commands run in a sandbox only")

    def program(self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"") -> Ran:
        """Runs it with an empty environment in the root; Python code (`-c`) under limits of its own."""
        found = sys.executable if argv[0] == "python" else shutil.which(argv[0])
        if found is None:
            raise RefusedError("not_available", f"{argv[0]} is not installed")
        given = list(argv[1:])
        if argv[0] == "python":
            if given[:1] == ["-c"]:
                given[1] = limited(given[1], math.ceil(timeout_s))
            given = ["-I", "-S", *given]
        try:
            done = subprocess.run(
                [found, *given],
                cwd=self.root,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran("timeout", -9, "")
        except (OSError, ValueError) as error:  # an argument with NUL, or longer than the kernel takes
            raise RefusedError("arguments", "the arguments cannot be passed on") from error
        return Ran("exited", done.returncode, done.stdout[:PROGRAM_OUTPUT].decode("utf-8", "replace"))

    def _inside(self, path: str) -> Path:
        try:
            place = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise RefusedError("outside", "bad path") from error
        if not place.is_relative_to(self.root):
            raise RefusedError("outside", "path is outside of the folder")
        return place


def _regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
