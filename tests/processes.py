"""`rtrl` as a process of its own, forked from one in which the libraries are loaded already.

A killed command is really killed, and its environment, exit status and streams are its own; only the
seconds in which Python reads torch, transformers and the stages are spared, which are most of what a test
that runs a dozen commands would take. Of rtrl one module reads the environment when it is loaded
(`stages/faults.py`); it reads it again after the fork. `rtrl_cli` is loaded anew by each process.

Not for tests of how the program starts (`tests/rtrl_cli`), and not for those that trace or count processes.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext

from stages import faults

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
        process = FORKING.Process(target=_run, args=(module, arguments, environment, streams))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{module} {arguments} took longer than {timeout:g} s: {err.read()}")
        return Done(process.exitcode, out.read(), err.read())


def _run(module: str, arguments: Sequence[str], environment: dict[str, str], streams: list[str]) -> None:
    """The forked process."""
    for number, path in enumerate(streams, start=1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    faults.configure(environment)
    sys.argv = [module, *arguments]
    if module == "-c":
        code, *sys.argv[1:] = arguments
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
