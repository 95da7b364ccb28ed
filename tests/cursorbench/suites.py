"""A small suite, made by code: a Python package with tests, and three changes to it as tasks.

    suite = make_suite(folder)          three tasks, two clusters
    suite.task("word-debug")            a bug of one line; also "word-feature" and "word-refactor"

The environment is the interpreter that runs the tests (kind `host`), so no network is needed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cursorbench.tasks import bundle, folder
from cursorbench.tasks.folder import Contents
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import CursorBenchFields, EnvironmentSpec, ExpectedTests, Intent, Split, Task

PACKAGE = {
    ".gitignore": "__pycache__/\n",
    "words/__init__.py": 'from words.counting import count\n\n__all__ = ["count"]\n',
    "words/counting.py": (
        '"""Counting words."""\n\n\ndef count(text):\n    """How many words there are."""\n'
        '    return len(text.split(" "))\n'
    ),
    "tests/test_counting.py": (
        "from words import count\n\n\ndef test_two():\n    assert count('a b') == 2\n\n\n"
        "def test_one():\n    assert count('a') == 1\n"
    ),
}
COMMAND = ("python", "-m", "pytest", "-q", "--junitxml={report}", "tests")
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the plugins beside rtrl take seconds to import
OLD = ("tests/test_counting.py::test_one", "tests/test_counting.py::test_two")


@dataclass(frozen=True)
class Change:
    """A commit to come: what the user asked for, the files after it, the tests that tell."""

    name: str
    intent: Intent
    cluster: str
    split: Split
    instruction: str
    sources: Mapping[str, str]
    tests: Mapping[str, str]
    fail_to_pass: tuple[str, ...]


CHANGES = (
    Change(
        "word-debug",
        "debug",
        "words/counting",
        "heldout",
        "count says 3 for 'a  b', two blanks in between. fix pls",
        {"words/counting.py": PACKAGE["words/counting.py"].replace('text.split(" ")', "text.split()")},
        {
            "tests/test_counting.py": PACKAGE["tests/test_counting.py"]
            + "\n\ndef test_blanks():\n    assert count('a  b') == 2\n\n\n"
            "def test_empty():\n    assert count('') == 0\n"
        },
        ("tests/test_counting.py::test_blanks", "tests/test_counting.py::test_empty"),
    ),
    Change(
        "word-feature",
        "feature",
        "words/top",
        "heldout",
        "I need top(text, n): the n most frequent words with their counts, most frequent first",
        {
            "words/__init__.py": (
                'from words.counting import count\nfrom words.top import top\n\n__all__ = ["count", "top"]\n'
            ),
            "words/top.py": (
                '"""Frequent words."""\n\nfrom collections import Counter\n\n\ndef top(text, n):\n'
                '    """The n most frequent words with their counts."""\n'
                "    return Counter(text.split()).most_common(n)\n"
            ),
        },
        {
            "tests/test_top.py": (
                "from words import top\n\n\ndef test_top():\n"
                "    assert top('b a b', 1) == [('b', 2)]\n\n\n"
                "def test_all():\n    assert top('b a b', 5) == [('b', 2), ('a', 1)]\n"
            )
        },
        ("tests/test_top.py::test_all", "tests/test_top.py::test_top"),
    ),
    Change(
        "word-refactor",
        "refactor",
        "words/counting",
        "dev",
        "move the splitting out of count into words/splitting.py as split(text), we need it elsewhere",
        {
            "words/splitting.py": (
                '"""Words of a text."""\n\n\ndef split(text):\n    """The words, in order."""\n'
                '    return text.split(" ")\n'
            ),
            "words/counting.py": (
                '"""Counting words."""\n\nfrom words.splitting import split\n\n\ndef count(text):\n'
                '    """How many words there are."""\n    return len(split(text))\n'
            ),
        },
        {
            "tests/test_splitting.py": (
                "from words.splitting import split\n\n\ndef test_split():\n"
                "    assert split('a b') == ['a', 'b']\n"
            )
        },
        ("tests/test_splitting.py::test_split",),
    ),
)


def make_suite(path: Path, changes: tuple[Change, ...] = CHANGES) -> Suite:
    """Write the suite to `path`, which must not exist; its repository stands at `path`-repo."""
    suite = Suite.create(path, path.name)
    repository = make_repository(path.with_name(f"{path.name}-repo"))
    base = git(repository, "rev-parse", "HEAD").strip()
    packed = path.with_name(f"{path.name}.bundle")
    tree = bundle.write(repository, base, packed)
    for change in changes:
        patch = patch_of(repository, change.sources)
        lines = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in patch.splitlines())
        fields = CursorBenchFields(
            instance_id=change.name,
            repo="example/words",
            base_commit=base,
            created_at="2026-03-01T12:00:00+00:00",
            cluster=change.cluster,
            split=change.split,
            canary=suite.fields.canary,
            files_changed=len(change.sources),
            lines_changed=lines,
            prompt_chars=len(change.instruction),
            prompt_source="user",
            intent=change.intent,
            reference_turns=2,
        )
        task = Task(
            folder=suite.folder(change.name),
            fields=fields,
            instruction=change.instruction,
            tests=ExpectedTests(COMMAND, change.fail_to_pass, OLD, tuple(change.tests)),
            timeout_s=120.0,
            environment=EnvironmentSpec(kind="host", tree=tree, variables=QUICK),
            verifier_timeout_s=60.0,
        )
        tests = {name: text.encode() for name, text in change.tests.items()}
        folder.write(task, Contents(packed, patch.encode(), tests, provenance={"by": "tests"}))
    return Suite.open(path)


def make_repository(path: Path) -> Path:
    """A repository with the package in its one commit."""
    path.mkdir()
    git(path, "init", "-q", "-b", "trunk")
    put(path, PACKAGE)
    git(path, "add", "-A")
    commit(path, "Count words")
    return path


def patch_of(repository: Path, files: Mapping[str, str]) -> str:
    """The patch that these files would make; the work tree is clean before and after."""
    put(repository, files)
    git(repository, "add", "-A")
    patch = git(repository, "diff", "--cached", "--binary")
    git(repository, "reset", "-q", "--hard")
    return patch


def put(path: Path, files: Mapping[str, str]) -> None:
    """Write texts below a folder."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")


def commit(path: Path, message: str) -> str:
    """Commit what is staged. Returns the new id."""
    git(path, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", message)
    return git(path, "rev-parse", "HEAD").strip()


def git(path: Path, *arguments: str) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", "-C", str(path), *arguments], capture_output=True, text=True, check=True
    ).stdout
