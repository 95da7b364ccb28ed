"""Which Python the environment is made of: of several of one version the quickest. Standard library only.

One that was built without its optimisations, as pyenv does by default, takes half as long again for all that
is Python: the tests, the gateway, `collect`, `distill`. Not for: which versions will do (`scripts/setup`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

QUICKER = 1.2  # times: less than that is the machine's noise, and what comes first on the path is meant
PROBE = """
import json, re, sys, time
import ensurepip, venv  # Debian has them in a package of their own: without it no environment can be made
class Point:
    __slots__ = ("x",)
    def __init__(self, x): self.x = x
    def plus(self, y): return self.x + y
def work():
    found = {}
    for n in range(10000):
        found[str(n)] = Point(n).plus(n)
        if n % 7 == 0:
            found.pop(str(n // 2), None)
    return sorted(found, key=lambda name: found[name]), re.findall(r"\\w+", " ".join(found))
def measure():
    began = time.process_time()
    work()
    return time.process_time() - began
seconds = min(measure() for _ in range(7))
print(json.dumps([sys._base_executable, list(sys.version_info[:2]), seconds]))
"""


def other_python(venv: Path) -> str | None:
    """A Python to take in place of this one: that of the environment that is there, else a quicker one.

    None where this one will do, or was named: `PYTHON`.
    """
    if os.environ.get("PYTHON"):
        return None
    this = os.path.realpath(sys.executable)
    if (venv / "bin" / "python").exists():
        of_venv = _probed(str(venv / "bin" / "python"), "import sys; print(repr(sys._base_executable))")
        path = of_venv.strip().strip("'\"")
        return path if path and os.path.realpath(path) != this and _fits(path) else None
    seconds = _measured()
    best = min(seconds, key=lambda path: seconds[path], default=this)
    return best if seconds.get(this, 0.0) > QUICKER * seconds.get(best, 0.0) else None


def _fits(path: str) -> bool:
    code = "import sys; print((3, 11) <= sys.version_info < (3, 14))"
    return _probed(path, code).strip() == "True"


def _measured() -> dict[str, float]:
    """Every Python of this one's version on the path that can make environments, with its time."""
    version = sys.version_info[:2]
    places = [sys.executable]
    for name in (f"python{version[0]}.{version[1]}", "python3"):
        places += [os.path.join(folder, name) for folder in os.get_exec_path()]  # noqa: PTH118  # texts
    seconds: dict[str, float] = {}
    for place in 2 * [place for place in dict.fromkeys(places) if os.access(place, os.X_OK)]:
        try:
            executable, of, took = json.loads(_probed(place, PROBE))
        except ValueError:  # nothing printed: it is none, or makes no environments
            continue
        if tuple(of) == version:
            real = os.path.realpath(executable)
            seconds[real] = min(took, seconds.get(real, took))
    return seconds


def _probed(python: str, code: str) -> str:
    """What it prints; "" when it does not run."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
