"""The fixed table of commands behind the `run` tool: argument vectors under rlimits, no shell.

`check` compiles every Python file of the folder without executing it; `list` lists the files. Nothing
a model wrote becomes part of an argument vector, and neither command executes model-written code.
Commands that do belong into the sandbox, which is another module.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 20.0  # the processor's time is bounded to seconds; this is for a machine that is busy
MAX_OUTPUT_BYTES = 8 * 1024

# Limits are set inside the child, before its work: a preexec_fn is not safe in a process with threads.
_LIMITS = """
import resource, sys
def limit(what, value):
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))
limit(resource.RLIMIT_CPU, CPU_S)
limit(resource.RLIMIT_AS, 512 * 1024 * 1024)
limit(resource.RLIMIT_FSIZE, 0)
limit(resource.RLIMIT_NOFILE, 32)
limit(resource.RLIMIT_CORE, 0)
limit(resource.RLIMIT_NPROC, 0)
"""
_CHECK = """
from pathlib import Path
status = 0
for path in sorted(Path(".").rglob("*.py")):
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        print(f"{path}: {error}")
        status = 1
sys.exit(status)
"""
_LIST = """
from pathlib import Path
print("\\n".join(str(path) for path in sorted(Path(".").rglob("*")) if path.is_file()))
"""


def limited(code: str, cpu_s: int = 2) -> str:
    """Python code that puts limits on itself before its work: `cpu_s` seconds, 512 MiB, no file written."""
    return f"CPU_S = {cpu_s}\n{_LIMITS}\n{code}"


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "check": (sys.executable, "-I", "-S", "-c", limited(_CHECK)),
    "list": (sys.executable, "-I", "-S", "-c", limited(_LIST)),
}


@dataclass(frozen=True)
class Done:
    """How a command ended: exit status (negative: signal), the end of its output, whether time ran out."""

    status: int
    output: str
    timed_out: bool = False


def run_command(name: str, workdir: Path) -> Done:
    """Run one command of the table in `workdir`, its environment empty. Raises KeyError for other names."""
    try:
        done = subprocess.run(
            COMMANDS[name],
            cwd=workdir,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Done(-9, "", timed_out=True)
    return Done(done.returncode, done.stdout[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace"))
