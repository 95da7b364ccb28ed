"""A suite from a small history, validated in the real sandbox; and a build that was killed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cursorbench.builder.build import Built, build
from cursorbench.builder.judge import Judge
from cursorbench.builder.settings import PYTEST, Settings, filled, since
from cursorbench.builder.state import BusyError, State, Verdict
from cursorbench.builder.unfit import Unfit
from cursorbench.errors import DependencyDownError, InputMissingError, UsageError
from cursorbench.tasks.suite import Suite
from tests.cursorbench.history.gits import HOUR, Git
from tests.locked import held_for_a_moment

needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")

START = "def count(text):\n    return len(text.split(' '))\n"
RIGHT = "def count(text):\n    return len(text.split())\n"
OLD_TEST = "from words import count\n\n\ndef test_two():\n    assert count('a b') == 2\n"
NEW_TEST = OLD_TEST + "\n\ndef test_blanks():\n    assert count('a  b') == 2\n"
LONGEST = RIGHT + "\n\ndef longest(text):\n    return max(text.split(), key=len)\n"
LONGEST_TEST = (
    NEW_TEST.replace("import count", "import count, longest")
    + "\n\ndef test_longest():\n    assert longest('a bcd ef') == 'bcd'\n"
)
SHORTEST = "def shortest(text, key=len):\n    return min(text.split(), key=key)\n"
FLAKY_TEST = """import os, words

def test_tag():
    words.tag('a')
    assert os.environ['TZ'] == 'UTC'
"""

Change = tuple[dict[str, str], str]  # files, message
CHANGES: dict[str, Change] = {
    "fix": (
        {"words/__init__.py": RIGHT, "tests/test_words.py": NEW_TEST, "NEWS.md": "Blanks.\n"},
        "Two blanks in a row count as one\n\nIt said 3 for 'a  b'.",
    ),
    "feature": (
        {"words/__init__.py": LONGEST, "tests/test_words.py": LONGEST_TEST},
        "Add longest, which gives the longest word (#12)",
    ),
    "flaky": (
        {
            "words/__init__.py": LONGEST + "\n\ndef tag(text):\n    return hash(text)\n",
            "tests/test_tag.py": FLAKY_TEST,
        },
        "Add a tag to every text",
    ),
    "tells nothing": (
        {
            "words/__init__.py": LONGEST + "\nquiet = True\n",
            "tests/test_m.py": "def test_m():\n    assert 1 + 1 == 2\n",
        },
        "Be quiet by default now",
    ),
    "broken": (
        {
            "words/__init__.py": LONGEST + "\nquiet = False\n",
            "tests/test_m.py": "def test_m():\n    assert 1 + 1 == 3\n",
        },
        "Do not be quiet by default",
    ),
    "leaks": (
        {
            "words/__init__.py": LONGEST + SHORTEST,
            "tests/test_m.py": "import words\n\n\ndef test_m():\n    assert words.shortest('b')\n",
        },
        f"Add shortest\n\n{SHORTEST}",
    ),
}
# plugins of the environment that runs these tests cost a second a run
COMMAND = ("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", *PYTEST)


class Told:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, what: str, total: int | None = None) -> None:
        self.lines.append(what)

    def advance(self, n: int = 1, note: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        self.lines.append(text)


def repository(folder: Path, *names: str) -> dict[str, str]:
    """A history of these changes, an hour each: the commit by its name."""
    git = Git(folder)
    git.commit(0, {"words/__init__.py": START, "tests/test_words.py": OLD_TEST, "conftest.py": ""})
    named = {}
    for n, name in enumerate(names):
        files, message = CHANGES[name]
        named[name] = git.commit((n + 1) * HOUR, {**files}, message)
    return named


def made(tmp_path: Path, jobs: int = 1, timeout_s: float = 300.0) -> tuple[Built, Told]:
    told = Told()
    settings = Settings(
        tmp_path / "repo", tmp_path / "suite", name="me/words", environment="host", cache=tmp_path / "cache",
        test_command=shlex.join(COMMAND), jobs=jobs, timeout_s=timeout_s,
    )  # fmt: skip
    return build(settings, told), told


@needs_bubblewrap
def test_a_suite_of_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("build", "state"):  # what was judged under load is judged again: see below
        monkeypatch.setattr(f"cursorbench.builder.{place}.load", lambda: 0.0)
    named = repository(tmp_path / "repo", *CHANGES)
    built, _ = made(tmp_path, jobs=2)
    why = {one["commit"]: one["reason"] for one in built.rejects()}
    assert {name: why.get(commit, "") for name, commit in named.items()} == {
        "fix": "", "feature": "", "flaky": "unstable", "tells nothing": "passes_on_base",
        "broken": "no_test_passes", "leaks": "prompt_has_solution",
    }  # fmt: skip
    assert json.loads((tmp_path / "suite" / "rejects.json").read_text()) == built.rejects()
    suite = Suite.open(tmp_path / "suite")
    fix, feature = (
        suite.task(f"me__words-{named['fix'][:10]}"),
        suite.task(f"me__words-{named['feature'][:10]}"),
    )
    assert fix.instruction == "Two blanks in a row count as one\n\nIt said 3 for 'a  b'."
    assert fix.tests.fail_to_pass == ("tests/test_words.py::test_blanks",)
    assert fix.tests.pass_to_pass == ("tests/test_words.py::test_two",)
    assert fix.tests.command == (*COMMAND[:-1], "tests/test_words.py")
    assert (fix.fields.files_changed, fix.fields.lines_changed) == (2, 3)
    assert (fix.fields.prompt_source, fix.fields.intent, fix.fields.cluster) == (
        "commit",
        "debug",
        "me/words:words/__init__.py",
    )
    assert feature.instruction == "Add longest, which gives the longest word"
    assert feature.tests.fail_to_pass == ("tests/test_words.py::test_longest",)
    assert feature.tests.pass_to_pass == tuple(
        f"tests/test_words.py::test_{name}" for name in ("blanks", "two")
    )
    facts = json.loads((fix.folder / "provenance.json").read_text())
    assert facts["validation"]["without"] == {"NEWS.md": "not needed", "words/__init__.py": "needed"}
    assert facts["validation"]["date"] == "moved" or not shutil.which("cc")
    assert facts["validation"]["runs"] == {"base": 3, "solution": 3, "without": 2}
    assert facts["commit"] == named["fix"]
    assert facts["repository"]["kept_objects_found"] == 0

    again, told = made(tmp_path)
    assert again.counts() == {**built.counts(), "again": 6}
    assert "6 of 6 candidates were judged before" in told.lines
    assert Suite.open(tmp_path / "suite").digest == suite.digest


@needs_bubblewrap
def test_what_was_made_before_is_not_in_a_tasks_history(tmp_path: Path) -> None:
    git = Git(tmp_path / "repo")
    start = {"words/__init__.py": START, "tests/test_words.py": OLD_TEST}
    git.commit(0, {**start})
    git.commit(HOUR, {"words/__init__.py": LONGEST, "tests/test_words.py": LONGEST_TEST})
    git.commit(2 * HOUR, {**start}, "Not so fast")
    git.commit(3 * HOUR, {"words/__init__.py": f'"""Words."""\n\n{START}'})
    again = {"words/__init__.py": f'"""Words."""\n\n{LONGEST}', "tests/test_words.py": LONGEST_TEST + "\n"}
    commit = git.commit(4 * HOUR, {**again}, "Add longest, which gives the longest word")
    made(tmp_path)
    task = Suite.open(tmp_path / "suite").task(f"me__words-{commit[:10]}")
    assert json.loads((task.folder / "provenance.json").read_text())["repository"]["commits"] == 1


@needs_bubblewrap
def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """Either ended the build: the name of a source in provenance.json, that of a link in rejects.json."""
    odd = os.fsdecode(b"words/\xe9")
    git = Git(tmp_path / "repo")
    git.commit(0, {"words/__init__.py": START, "tests/test_words.py": OLD_TEST})
    files = {"words/__init__.py": RIGHT, f"{odd}.py": "x = 1\n", "tests/test_words.py": NEW_TEST}
    git.commit(HOUR, files, "Two blanks in a row count as one")
    (tmp_path / "repo" / odd).symlink_to("there")
    linked = {"words/__init__.py": LONGEST, "tests/test_words.py": LONGEST_TEST}
    git.commit(2 * HOUR, linked, "Add longest, which gives the longest word")
    made(tmp_path)
    (task,) = Suite.open(tmp_path / "suite").tasks
    needed = json.loads((task.folder / "provenance.json").read_text())["validation"]["without"]
    assert needed == {"words/__init__.py": "needed", "words/?.py": "not needed"}
    (reject,) = json.loads((tmp_path / "suite" / "rejects.json").read_text())
    assert (reject["reason"], reject["detail"]) == ("link_or_submodule", "words/?")


@needs_bubblewrap
def test_a_build_under_other_settings_that_fails_leaves_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removed each task before anything was known: without a network all of them were gone."""
    repository(tmp_path / "repo", "fix")
    made(tmp_path)
    suite = Suite.open(tmp_path / "suite")
    for error, left in (DependencyDownError("no index"), 1), (Unfit("requirements", "none"), 0):

        def fails(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Judge, "_validated", fails)
            with contextlib.suppress(DependencyDownError):
                made(tmp_path, timeout_s=299.0)
        assert len(list((tmp_path / "suite" / "tasks").iterdir())) == left
        if left:
            assert Suite.open(tmp_path / "suite").digest == suite.digest
            assert "1 of 1 candidates were judged before" in made(tmp_path)[1].lines


KILLED = """
import os, signal, sys
from pathlib import Path
from cursorbench.builder.judge import Judge
from tests.cursorbench.builder.test_build import made
validated, begun = Judge._validated, []
def killed(*arguments):
    begun.append(1)
    return validated(*arguments) if len(begun) < 2 else os.kill(os.getpid(), signal.SIGKILL)
Judge._validated = killed
made(Path(sys.argv[1]))
"""


@needs_bubblewrap
def test_a_killed_build_goes_on(tmp_path: Path) -> None:
    repository(tmp_path / "repo", "feature", "tells nothing")
    root = Path(__file__).parents[3]
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    variables = {**os.environ, "PYTHONPATH": str(root)}
    assert subprocess.run(line, cwd=root, env=variables, check=False).returncode == -signal.SIGKILL
    assert len(list((tmp_path / "suite" / ".build" / "verdicts").glob("*.json"))) == 1
    assert list((tmp_path / "suite" / ".build" / "drafts").glob("*.bundle"))
    built, _ = made(tmp_path)
    assert built.again == 1
    assert len(built.tasks) == 1
    assert not list((tmp_path / "suite").rglob("*.tmp"))
    assert not list((tmp_path / "suite" / ".build" / "drafts").glob("*.bundle"))
    assert len(Suite.open(tmp_path / "suite").tasks) == 1


def test_what_a_killed_build_was_just_starting_is_waited_for(tmp_path: Path) -> None:
    with State(tmp_path).held():
        pass
    began = time.monotonic()
    with held_for_a_moment(tmp_path / ".build" / "lock"), State(tmp_path).held():
        assert time.monotonic() - began >= 0.1  # it did wait


def test_what_a_killed_build_had_started_may_still_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drafts could not be removed while a git put files there, and no build could begin."""
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **more: None)
    state = State(tmp_path)
    state.drafts.mkdir(parents=True)
    with state.held():
        assert state.drafts.is_dir()


def test_one_build_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursorbench.builder.state.TRIES", 3)
    with (
        State(tmp_path).held(),
        pytest.raises(BusyError, match="another process builds"),
        State(tmp_path).held(),
    ):
        pass


def test_verdicts_count_for_their_settings(tmp_path: Path) -> None:
    state = State(tmp_path)
    with state.held():
        state.put(Verdict("k", "c" * 40, "s", "rejected", "unstable"))
        state.put(Verdict("k", "d" * 40, "s", "unfinished"))
        (state.verdicts / f"{'e' * 40}.json").write_text("{")
        assert (found := state.verdict("c" * 40, "k")) is not None
        assert found.reason == "unstable"
        assert state.verdict("c" * 40, "other") is None
        assert state.verdict("d" * 40, "k") is None
        assert state.verdict("e" * 40, "k") is None


@needs_bubblewrap
def test_a_build_that_was_killed_before_there_was_a_suite(tmp_path: Path) -> None:
    Git(tmp_path / "repo").commit(0, {"a.py": "a = 1\n"})
    (tmp_path / "suite" / "tasks").mkdir(parents=True)
    built, _ = made(tmp_path)
    assert (built.counts()["candidates"], built.passed_over) == (0, {"root": 1})
    shutil.rmtree(tmp_path / "suite" / ".build")
    assert made(tmp_path)[0].suite.fields == built.suite.fields
    shutil.rmtree(tmp_path / "suite")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="is there already"):
        made(tmp_path)


def test_a_busy_machine_leaves_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path)
    with state.held():
        state.put(Verdict("k", "c" * 40, "s", "rejected", "unstable", load=4.0))
        state.put(Verdict("k", "d" * 40, "s", "rejected", "passes_on_base", load=4.0))
        state.put(Verdict("k", "e" * 40, "s", "rejected", "run_timeout", load=13.0))
        state.put(Verdict("k", "f" * 40, "s", "rejected", "date_dependent", load=4.0))
        for busy, known in ((6.6, True), (6.4, False)):
            monkeypatch.setattr("cursorbench.builder.state.load", lambda busy=busy: busy)
            assert (state.verdict("e" * 40, "k") is not None) is known, "a machine that is never quiet"
        for busy, known in ((2.1, True), (0.5, False)):
            monkeypatch.setattr("cursorbench.builder.state.load", lambda busy=busy: busy)
            assert (state.verdict("c" * 40, "k") is not None) is known
            assert (state.verdict("f" * 40, "k") is not None) is known
            assert state.verdict("d" * 40, "k") is not None


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    one = Settings(tmp_path, tmp_path / "out")
    (tmp_path / "r.lock").write_text("")
    for wrong, message in (
        (Settings(tmp_path, tmp_path, test_command="make test"), "no {report}"),
        (Settings(tmp_path, tmp_path, install="pytest", lock=tmp_path / "r.lock"), "contradict"),
        (Settings(tmp_path, tmp_path, environment="host", install="pytest"), "takes what is installed"),
        (Settings(tmp_path, tmp_path, untraced=True), "without --sessions"),
        (Settings(tmp_path, tmp_path, heldout=2), "share from 0 to 1"),
        (Settings(tmp_path, tmp_path, test_command="pytest '{report}"), "cannot be read: No closing"),
        (Settings(tmp_path, tmp_path, python="nope"), "'nope' is no version"),
    ):
        with pytest.raises(UsageError, match=message):
            wrong.checked()
    with pytest.raises(InputMissingError, match="no lock"):
        Settings(tmp_path, tmp_path, lock=tmp_path / "none").checked()
    assert one.checked() == one
    keys = {one.key(about, date_moves=moves) for about in "ab" for moves in (True, False)}
    assert len(keys) == 4
    assert since("2026-01-31") == 1_769_817_600_000
    before = time.time()
    assert 1000 * before - 1 <= since("2d") + 172_800_000 <= 1000 * time.time()
    with pytest.raises(UsageError, match="is no date"):
        since("yesterday")


def test_a_folder_in_a_work_tree_is_that_work_tree(tmp_path: Path) -> None:
    """Nothing could be fetched from the folder, so each commit lacked objects."""
    repository(tmp_path / "repo", "fix")
    for given in ("repo", "repo/words", "repo/.git"):
        found = Settings(tmp_path / given, tmp_path / "out").checked()
        assert found.repo == tmp_path / given.replace("/words", "")
        assert found.repository_name() == "repo"


def test_a_repository_is_asked_for_its_own_name_whatever_its_settings_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a hook it was another's, and an address that is no UTF-8 was a bug (exit 1)."""
    repository(tmp_path / "repo")
    config = tmp_path / "repo" / ".git" / "config"
    kept = config.read_bytes()
    one = Settings(tmp_path / "repo", tmp_path / "out")
    config.write_bytes(kept + b'[remote "origin"]\n\turl = https://x.test/ada/shop.git\n')
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert one.checked().repository_name() == "ada/shop"
    config.write_bytes(kept + b'[remote "origin"]\n\turl = https://x.test/ada/sh\xffp.git\n')
    assert one.checked().repository_name() == "repo"


def test_a_machine_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to name a path of the right kind."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DependencyDownError, match="git is not installed"):
        Settings(tmp_path, tmp_path / "out").checked()


def test_tests_in_the_command() -> None:
    assert filled(("a", "{tests}", "b"), ("x", "y z")) == ("a", "x", "y z", "b")
    assert filled(("sh", "-c", "run {tests} > {report}"), ("x", "y z")) == (
        "sh",
        "-c",
        "run x 'y z' > {report}",
    )
