"""Whether pytest itself runs in a task's environment, and what one of another day would be.

A lock is of the days of its commit, and a pytest of 2020 fails at any assertion under a Python of 2022. Where
pytest does not run, the lock is made once more with the pytest that came after the interpreter, as far as the
project's own bounds let it. Not for: the tests of a project (`validate.py`).
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cursorbench.builder import lock as locks
from cursorbench.builder.project import Project
from cursorbench.builder.settings import Settings
from cursorbench.builder.unfit import Unfit
from cursorbench.sandbox.protocol import Backend, Environment
from cursorbench.tasks.venv import known_by, locked

RUNNER = ("pytest", "pluggy", "iniconfig", "exceptiongroup", "tomli", "packaging")
"""What a newer pytest may bring newer, too."""
_TRY = """\
import os, pathlib, subprocess, sys
folder = pathlib.Path("/tmp/runner")
folder.mkdir()
(folder / "pytest.ini").write_text("[pytest]\\n")
(folder / "test_runs.py").write_text("def test_runs():\\n    assert 1 == 1\\n")
given = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-q", "test_runs.py"], cwd=folder, env=given))
"""
TRY_S = 120.0


def lock_of(
    settings: Settings, python: str, at: str, project: Project, kept: Path, *, newer: bool = False
) -> str:
    """The locked requirements of a project for a base of a commit's time; "" for the host's environment.

    Args:
        kept: folder of locks that were resolved; newer: with a pytest that knows the interpreter.

    Raises:
        Unfit: no lock can be made of them.
        DependencyDownError: (exit 13) they cannot be resolved now.
    """
    if settings.environment == "host":
        return ""
    if settings.lock:
        return settings.lock.read_text("utf-8")
    asked = locks.wanted(locks.words(settings.install), project)
    if elsewhere := next(filter(locks.of_address, asked), ""):
        raise Unfit("requirements", f"{elsewhere} is of no index, and nothing else is locked")
    until = locks.as_of(datetime.fromisoformat(at))
    later = dict.fromkeys(RUNNER, known_by(python)) if newer else {}
    try:
        return locks.resolve(asked, python, until, project.code, kept, later)
    except locks.UnresolvableError as error:
        raise Unfit("requirements", str(error)) from error


def runs(backend: Backend, environment: Environment) -> bool:
    """Whether pytest reports a test that passes; plugins are not asked.

    Raises:
        SandboxError: the sandbox died.
    """
    with backend.start(environment) as box:
        return box.exec(["python", "-c", _TRY], timeout_s=TRY_S).ok


def version(lock: str) -> str:
    """Which pytest a lock has; "" for none."""
    return locked(lock, Path("the lock")).get("pytest", "")
