"""A sandbox as a workplace: where tasks are worked on, and where commands of a model may run.

Nothing a model asks for touches the host: files are read and written, programs run, and symbolic links
followed inside. A sandbox that dies is infrastructure (SandboxError), never a result.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from cursorbench.errors import SandboxError
from cursorbench.harness.results import RefusedError, printable
from cursorbench.harness.workplace import MAX_FILES, Ran
from cursorbench.sandbox.protocol import Done, Sandbox

_NOT_FOUND = 127  # what a shell, env and execvp callers end with
_LIST_S = 60.0
_ALIVE_S = 10.0


class SandboxPlace:
    """The working tree of a sandbox.

    Args:
        workdir: where it stands inside (`Environment.workdir`): models like absolute paths.
        python: a Python 3 inside, for searches without ripgrep.
    """

    runs_commands = True

    def __init__(self, sandbox: Sandbox, workdir: str = "/work", python: str = "python3") -> None:
        self._sandbox = sandbox
        self._workdir = posixpath.normpath(workdir)
        self._python = python

    def name(self, path: str) -> str:
        if "\0" in path or len(path) > 4096 or path != printable(path):
            raise RefusedError("outside", "bad path")
        found = posixpath.normpath(posixpath.join(self._workdir, path))
        if found == self._workdir:
            return "."
        if not found.startswith(f"{self._workdir}/"):
            raise RefusedError("outside", "path is outside of the folder")
        return found[len(self._workdir) + 1 :]

    def read(self, path: str, limit: int) -> bytes:
        name = self.name(path)
        try:
            return self._sandbox.read(name, limit)
        except ValueError as error:
            raise RefusedError("too_large", "file is too large") from error
        except OSError as error:
            self._alive(error)
            raise RefusedError("no_file", "no such file") from error

    def write(self, path: str, content: bytes) -> None:
        try:
            self._sandbox.write(self.name(path), content)
        except (OSError, ValueError) as error:
            self._alive(error)
            raise RefusedError("not_writable", "the file cannot be written") from error

    def files(self) -> list[str]:
        done = self._exec(
            ["find", ".", "-name", ".git", "-prune", "-o", "-type", "f", "-print0"], _LIST_S, b""
        )
        # what was cut ends within a name; names that are no UTF-8 cannot be asked for
        names = [name[2:] for name in done.output.split("\0")[:-1] if "\ufffd" not in name]
        return sorted(names, key=lambda name: name.split("/"))[:MAX_FILES]

    def fixed(self, name: str) -> Ran:
        raise RefusedError("not_available", "the fixed commands are those of a plain folder")

    def command(self, command: str, timeout_s: float) -> Ran:
        if "\0" in command:
            raise RefusedError("arguments", "a command cannot hold NUL")
        return _ran(self._exec(printable(command), timeout_s, b""))

    def program(self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"") -> Ran:
        if any("\0" in part or part != printable(part) for part in argv):
            raise RefusedError("arguments", "the arguments cannot be passed on")
        line = [self._python, "-I", *argv[1:]] if argv[0] == "python" else list(argv)
        done = self._exec(line, timeout_s, stdin)
        if done.ended == "exited" and done.status == _NOT_FOUND:
            raise RefusedError("not_available", f"{argv[0]} is not installed")
        return _ran(done)

    def _alive(self, error: Exception) -> None:
        """Raise SandboxError when an error may be that of a sandbox that died, and it did."""
        if not isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            self._exec(["true"], _ALIVE_S, b"")

    def _exec(self, command: str | Sequence[str], timeout_s: float, stdin: bytes) -> Done:
        done = self._sandbox.exec(command, timeout_s=timeout_s, stdin=stdin)
        if done.ended == "sandbox_died":
            raise SandboxError("the sandbox died", hint="its output and limits: docs/sandbox.md")
        return done


def _ran(done: Done) -> Ran:
    if done.ended == "timeout":
        return Ran("timeout", done.status, done.output, done.seconds)
    if done.ended in ("memory", "output"):
        why = "memory" if done.ended == "memory" else "output"
        note = f"\n[ended: it used more {why} than is allowed]"
        return Ran("killed", done.status, done.output + note, done.seconds)
    return Ran("exited", done.status, done.output, done.seconds)
