"""`rtrl` as a process of its own, forked from one in which the libraries are loaded already.

A killed command is really killed, and its environment, exit status and streams are its own; only the
seconds in which Python reads torch, transformers and the stages are spared, which are most of what a test
that runs a dozen commands would take. Of rtrl one module reads the environment when it is loaded
(`stages/faults.py`); it reads it again after the fork. `rtrl_cli` is loaded anew by each process.

Not for tests of how the program starts (`tests/rtrl_cli`, `tests/e2e`; `test_lifecycle.py` and `test_main.py`
start some by hand), and not for those that trace or count processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from types import SimpleNamespace, TracebackType
from typing import IO, Any

import pytest

from stages import faults
from stages.serving import detach

KILLED = -signal.SIGKILL
FORKING: ForkServerContext = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["tests.preloaded"])


@dataclass(frozen=True)
class Done:
    """How a process ended. `returncode` is negative for a signal."""

    returncode: int
    stdout: str
    stderr: str


def rtrl(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 600.0) -> Done:
    """`rtrl ARGUMENTS` with `env` added to this process's environment, to its end."""
    return python("rtrl_cli.main", *arguments, env=env, timeout=timeout)


def python(
    module: str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 600.0
) -> Done:
    """`python -m MODULE ARGUMENTS`, as `rtrl`; with `-c` for a module, `python -c CODE ARGUMENTS`.

    Raises:
        TimeoutError: it took longer than `timeout` seconds; it is killed.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        streams = [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (out, err)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        _loaded()
        process = FORKING.Process(target=_run, args=(module, arguments, environment, streams))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{module} {arguments} took longer than {timeout:g} s: {err.read()}")
        return Done(process.exitcode, out.read(), err.read())


class Popen:
    """`subprocess.Popen` of `[sys.executable, "-m", MODULE, *ARGUMENTS]`, forked; what tests need of it.

    Attributes:
        stdout, stderr: to read from, where they are `subprocess.PIPE`; text.
        returncode: negative for a signal; None until `poll` or `wait` has seen the end.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        start_new_session: bool = False,
    ) -> None:
        assert list(command[:2]) == [sys.executable, "-m"]
        assert stdin in (None, subprocess.DEVNULL)  # the fork server's children have nothing else
        self.returncode: int | None = None
        with contextlib.ExitStack() as given:
            self.stdout, out = _stream(stdout, 1, given)
            self.stderr, err = (None, out) if stderr == subprocess.STDOUT else _stream(stderr, 2, given)
            environment = dict(os.environ if env is None else env)
            arguments = (command[2], command[3:], environment, [out, err], start_new_session)
            _loaded()
            self._process = FORKING.Process(target=_run, args=arguments, daemon=True)
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise TimeoutError(f"process {self.pid} has not ended within {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that is left to read, of a process that says no more than a pipe takes; then it has ended."""
        self.wait(timeout)
        out, err = (stream.read() if stream else "" for stream in (self.stdout, self.stderr))
        self._close()
        return out, err

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()

    def __enter__(self) -> Popen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self.wait()


@cache
def _loaded() -> None:
    """Wait for the process that is forked: no command's time is that of its libraries."""
    process = FORKING.Process(target=int)
    process.start()
    process.join()


def _stream(
    given: int | IO[Any] | None, number: int, until: contextlib.ExitStack
) -> tuple[IO[str] | None, Connection]:
    """What to read from, where it is a pipe, and what the process writes to: closed here by `until`."""
    if given == subprocess.PIPE:
        mine, its = FORKING.Pipe(duplex=False)
        until.callback(its.close)
        read = os.fdopen(os.dup(mine.fileno()), encoding="utf-8")
        mine.close()
        return read, its
    if given == subprocess.DEVNULL:
        file = os.open(os.devnull, os.O_WRONLY)
    else:
        file = os.dup(number if given is None else given if isinstance(given, int) else given.fileno())
    its = Connection(file)
    until.callback(its.close)
    return None, its


@contextlib.contextmanager
def servers_are_forked() -> Iterator[None]:
    """In this block `start_detached` forks `rtrl serve`."""
    with pytest.MonkeyPatch.context() as patch:
        names = SimpleNamespace(Popen=Popen, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
        patch.setattr(detach, "subprocess", names)
        yield


def _run(
    module: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    streams: Sequence[str | Connection],
    new_session: bool = False,
) -> None:
    """The forked process."""
    for number, stream in enumerate(streams, start=1):
        if isinstance(stream, Connection):
            os.dup2(stream.fileno(), number)
            fresh = os.fdopen(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
            setattr(sys, ("stdout", "stderr")[number - 1], fresh)  # the inherited one may be of a file
        else:
            file = os.open(stream, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
    for stream in streams:
        if isinstance(stream, Connection) and not stream.closed:
            stream.close()
    if new_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    faults.configure(environment)
    sys.argv = [module, *arguments]
    if module == "-c":
        code, *sys.argv[1:] = arguments
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
