"""What a command does to escape its end, or to end its sandbox: either would pass for infrastructure."""

from __future__ import annotations

import subprocess
import sys

from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.docker_exec import _END
from cursorbench.sandbox.link import supervisor_python
from cursorbench.sandbox.protocol import Environment

LEADER = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("gone", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
LIMITED = """
import resource
for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CPU):
    try:
        resource.prlimit(1, limit, (0, 0))
    except PermissionError:
        print("refused")
"""


def test_a_command_whose_first_thread_has_ended(backend: Bubblewrap, environment: Environment) -> None:
    """It looks like a dead process, was not killed, and its sandbox given up for it."""
    with backend.start(environment) as sandbox:
        job = sandbox.spawn([supervisor_python()[0], "-I", "-S", "-c", LEADER])
        assert sandbox.exec("until grep -q '^State:.Z' /proc/[0-9]*/status; do sleep 0.01; done").ok
        done = job.wait(0)
        assert (done.ended, done.output) == ("timeout", "gone\n")
        assert sandbox.exec("echo alive").output == "alive\n"


def test_the_same_in_a_container() -> None:
    """The script that ends a command there, on a process of this machine."""
    line = [sys.executable, "-I", "-S", "-c", LEADER]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        subprocess.run(["/bin/sh", "-c", _END, "sh", str(process.pid)], check=True, timeout=60)
        assert process.wait(timeout=30) == -9


def test_limits_for_the_first_process(backend: Bubblewrap, environment: Environment) -> None:
    """Its user is the commands' own, so that the kernel would let them."""
    with backend.start(environment) as sandbox:
        done = sandbox.exec([supervisor_python()[0], "-I", "-c", LIMITED])
        assert done.output == "refused\n" * 3
        assert sandbox.exec("echo alive").output == "alive\n"
