"""What a process asked the kernel for, in order: `strace` run and read.

SIGKILL cannot show whether data was on the disk (the page cache survives it); the order of the calls can.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

DURABLE = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,fsync,fdatasync,"
    "rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat"
)
NETWORK = "sendto,sendmsg,accept4,accept"
_LINE = re.compile(r"(?P<pid>\d+)\s+(?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>.*)")
_FILE = re.compile(r"\d+<(?P<path>[^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Call:
    """One system call. `begin` and `end` are positions in the trace: a call that another thread's calls
    interrupt begins before and ends after them."""

    pid: int
    name: str
    arguments: str
    result: str
    begin: int
    end: int

    @property
    def path(self) -> str:
        """The file a call on a descriptor acts on ("" for others)."""
        found = _FILE.match(self.arguments)
        return found["path"] if found else ""

    @property
    def texts(self) -> list[str]:
        """The quoted arguments: paths of calls that take paths, data of writes."""
        return _STRING.findall(self.arguments)

    @property
    def failed(self) -> bool:
        return self.result.startswith("-1")


class Tracer:
    """A command under strace; `stop` ends it, `calls` are what it did."""

    def __init__(
        self,
        command: Sequence[str],
        trace: Path,
        *,
        calls: str = DURABLE,
        text: int = 32,
        env: dict[str, str] | None = None,
    ) -> None:
        self._trace = trace
        self.process = subprocess.Popen(
            [strace(), "-f", "-yy", "-s", str(text), "-e", f"trace={calls}", "-e", "signal=none",
             "--seccomp-bpf", "-o", str(trace), *command],
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def finish(self, timeout: float = 120.0) -> tuple[int, str, str]:
        """Wait for the end: exit status, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def terminate(self, pid: int) -> tuple[int, str, str]:
        """SIGTERM to the traced process `pid`, then `finish`."""
        os.kill(pid, signal.SIGTERM)
        return self.finish()

    def calls(self) -> list[Call]:
        """All calls, ordered by when they ended."""
        return read(self._trace.read_text(encoding="utf-8", errors="replace"))


def strace() -> str:
    """The strace program. Skips without it, except with CI=true, where it fails."""
    found = shutil.which("strace")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing: scripts/setup installs it")
        pytest.skip("needs strace")
    return found


def read(trace: str) -> list[Call]:
    """The calls of a trace written with `-f -y`, interrupted ones put together."""
    calls: list[Call] = []
    begun: dict[int, tuple[int, str]] = {}
    for number, line in enumerate(trace.splitlines()):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, rest = int(match["pid"]), match["rest"]
        if rest.endswith("<unfinished ...>"):
            begun[pid] = (number, rest.removesuffix("<unfinished ...>").rstrip())
            continue
        begin = number
        if rest.startswith("<... "):
            begin, head = begun.pop(pid, (number, ""))
            rest = head + rest.partition(" resumed>")[2]
        call = _CALL.fullmatch(rest)
        if call is not None:
            calls.append(Call(pid, call["name"], call["arguments"], call["result"], begin, number))
    return calls
