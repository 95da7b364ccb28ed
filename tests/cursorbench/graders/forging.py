"""A small repository, its hidden test, and a grader that believes the report: what forging is tried on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from cursorbench.graders import restoring
from cursorbench.graders.running import run_tests
from cursorbench.sandbox.protocol import Backend, Environment, Limits
from cursorbench.tasks.scripts import VENV
from cursorbench.tasks.task import CursorBenchFields, ExpectedTests, Task

LIMITS = Limits(wall_s=200.0, memory=1 << 30)
CORE = '''\
"""Sums."""


def total(values):
    return 0


def largest(values):
    return max(values)
'''
TEST_OLD = """\
from calc.core import largest


def test_largest():
    assert largest([1, 3, 2]) == 3
"""
TEST_NEW = """\
from calc.core import largest, total


def test_largest():
    assert largest([1, 3, 2]) == 3


def test_total():
    assert total([1, 2, 3]) == 6


def test_total_of_nothing():
    found = total([])
    assert found == 0, "nothing"
    assert total([5]) == 5
"""
BASE = {
    "calc/__init__.py": "",
    "calc/core.py": CORE,
    "calc/test_support.py": "TOTAL = 6\n",
    "tests/conftest.py": 'collect_ignore = ["data"]\n',
    "tests/test_core.py": TEST_OLD,
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\n[tool.pytest.ini_options]\naddopts = "-q"\n',
}
SOLVED = {"calc/core.py": CORE.replace("return 0", "return sum(values)")}
FILE = "tests/test_core.py"
COMMAND = ("python", "-m", "pytest", "--junitxml={report}", FILE)


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@dataclass
class World:
    """A task in a folder, and diffs against its base."""

    folder: Path
    backend: Backend
    task: Task = field(init=False)
    environment: Environment = field(init=False)

    def __post_init__(self) -> None:
        root = self.folder / "base"
        put(root, BASE)
        git(root, "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "base")
        put(self.folder / "task" / "tests" / "files", {FILE: TEST_NEW})
        fields = CursorBenchFields(
            "calc-1", "calc", "0" * 40, "2026-01-01T00:00:00Z", "calc", "dev", "c", 1, 2, 9, "user", "debug"
        )
        expected = ExpectedTests(
            COMMAND,
            (f"{FILE}::test_total", f"{FILE}::test_total_of_nothing"),
            (f"{FILE}::test_largest",),
            (FILE,),
        )
        self.task = Task(self.folder / "task", fields, "mend total", expected, 60.0, verifier_timeout_s=200.0)
        prefix = Path(sys.base_prefix)
        mounts = {VENV: Path(sys.prefix)} | ({} if prefix.is_relative_to("/usr") else {str(prefix): prefix})
        path = f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin"
        self.environment = Environment(
            root, mounts, {"PATH": path, "PYTHONPATH": "/work", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        )

    def diff(self, files: dict[str, str | bytes], links: dict[str, str] | None = None) -> str:
        """What git makes of the base with files written over it; an empty text deletes."""
        root = self.folder / "base"
        put(root, files)
        for path, target in (links or {}).items():
            subprocess.run(["rm", "-rf", root / path], check=True)
            (root / path).symlink_to(target)
        git(root, "add", "-A", "-f")
        found = git(root, "diff", "--cached", "--binary", "HEAD")
        git(root, "reset", "-q", "--hard")
        return found

    def naive(self, diff: str) -> bool:
        """A grader that runs the command on the tree as the model left it, with the tests in place, and
        believes the report: all expected tests passed and nothing is missing."""
        with self.backend.start(self.environment, LIMITS) as sandbox:
            restoring.apply(sandbox, diff)
            if FILE not in diff:
                sandbox.write(FILE, TEST_NEW.encode())
            ran = run_tests(sandbox, COMMAND, 200.0)
        expected = self.task.tests.fail_to_pass + self.task.tests.pass_to_pass
        return all(ran.outcomes.get(name) == "passed" for name in expected)


def put(root: Path, files: dict[str, str] | dict[str, str | bytes]) -> None:
    """Write files, making folders; an empty text deletes, but for `__init__.py`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not content and path.name != "__init__.py":
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
