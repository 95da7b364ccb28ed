"""A suite is read whole or refused with file and field."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import InputMissingError, IntegrityError, UsageError
from cursorbench.tasks import bundle, environment, folder
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import Task
from tests.cursorbench import suites


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return suites.make_suite(tmp_path_factory.mktemp("suite") / "words")


@pytest.fixture
def path(made: Suite, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(made.path, tmp_path / "words"))


def test_a_suite_is_what_was_written(made: Suite) -> None:
    task = made.task("word-debug")
    change = suites.CHANGES[0]
    assert [one.name for one in made.tasks] == ["word-debug", "word-feature", "word-refactor"]
    assert (task.instruction, task.fields.prompt_chars) == (change.instruction, len(change.instruction))
    assert (task.fields.files_changed, task.fields.lines_changed) == (1, 2)
    assert task.tests.files == ("tests/test_counting.py",)
    assert (task.test_files / "tests/test_counting.py").read_text() == change.tests["tests/test_counting.py"]
    assert folder.provenance(task) == {"by": "tests"}
    assert [one.name for one in made.of_split("dev")] == ["word-refactor"]
    assert made.fields.canary in (task.folder / "instruction.md").read_text()
    assert made.fields.canary not in task.instruction


def test_the_digest_is_over_what_is_compared(path: Path) -> None:
    before = Suite.open(path).digest
    (path / "tasks/word-debug/provenance.json").write_text("{}")
    assert Suite.open(path).digest == before
    (path / "tasks/word-debug/tests/files/tests/test_counting.py").write_text("pass\n")
    assert Suite.open(path).digest != before


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(task: Path) -> None:
        text = (task / name).read_text()
        assert old in text
        (task / name).write_text(text.replace(old, new))

    return change


def link_out(task: Path) -> None:
    (task / "tests" / "files" / "hosts").symlink_to("/etc/hosts")


def overlay_of_git(task: Path) -> None:
    """Laid over the tree it would be the settings of the repository there."""
    place = task / "environment" / "overlay" / ".git" / "config"
    place.parent.mkdir(parents=True)
    place.write_text("[core]\n\tfsmonitor = touch x\n")


def instead(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    """What has no end in a file's place: who reads it waits, or fills the memory."""

    def change(task: Path) -> None:
        (task / name).unlink()
        make(task / name)

    return change


def other_base(task: Path) -> None:
    text = (task / "task.toml").read_text()
    at = text.index('base_commit = "') + len('base_commit = "')
    (task / "task.toml").write_text(text[:at] + "1" * 40 + text[at + 40 :])


def two_branches(task: Path) -> None:
    made = task / "environment" / "repo.bundle"
    repository = task.parent.parent.parent / "two"
    bundle.checkout(made, repository)
    suites.git(repository, "branch", "later")
    suites.git(repository, "bundle", "create", "-q", str(made), "--all")


WRONG: list[tuple[Callable[[Path], None], str]] = [
    (edit("task.toml", '"1.4"', '"9.0"'), "task.toml: schema_version is '9.0'"),
    (edit("task.toml", "schema_version", "schema_version ="), "task.toml: it is no TOML"),
    (edit("task.toml", '"1.4"', "9" * 5000), "task.toml: it is no TOML: Exceeds the limit"),
    (edit("task.toml", '"1.4"', "[" * 5000), "task.toml: it is no TOML: maximum recursion depth"),
    (
        edit("task.toml", "[metadata.cursorbench]", "[metadata.x]"),
        "missing required field `instance_id`",
    ),
    (edit("task.toml", "intent", "intention"), "metadata.cursorbench.intention is no field"),
    (edit("task.toml", '"debug"', '"bug"'), r"metadata.cursorbench.intent: Invalid enum value 'bug'"),
    (
        edit("task.toml", "lines_changed = 2", 'lines_changed = "2"'),
        "lines_changed: Expected `int | null`, got `str`",
    ),
    (edit("task.toml", "lines_changed = 2", "lines_changed = -2"), "lines_changed: -2 is negative"),
    (edit("task.toml", "lines_changed = 2\n", ""), "metadata.cursorbench.lines_changed is missing"),
    (edit("task.toml", "+00:00", ""), "created_at: .* names no time zone"),
    (edit("task.toml", "timeout_sec = 120.0", "timeout_sec = 0"), "agent.timeout_sec: 0"),
    (edit("task.toml", "timeout_sec = 120.0", "timeout_sec = 1e308"), "agent.timeout_sec: 1e.308"),
    (edit("task.toml", "storage_mb = 1024", 'storage = "infG"'), "'infG' is no size"),
    (edit("task.toml", "storage_mb = 1024", f"storage_mb = {1 << 60}"), "environment.storage_mb: 11529"),
    (edit("task.toml", 'workdir = "/work"', 'workdir = "work"'), "workdir: 'work' is no absolute path"),
    (edit("task.toml", 'instance_id = "word-debug"', 'instance_id = "x"'), "its folder 'word-debug'"),
    (edit("task.toml", 'instance_id = "word-debug"', f'instance_id = "{"x" * 201}"'), "cannot be a folder's"),
    (edit("instruction.md", "fix", "mend"), "prompt_chars is 55, instruction.md has 56"),
    (edit("tests/tests.json", "{report}", "report"), "command has no {report}"),
    (edit("tests/tests.json", "::test_one", "::test_blanks"), "in fail_to_pass and in pass_to_pass"),
    (edit("tests/tests.json", '"removed": []', '"removed": ["../../x"]'), "'../../x' is no path inside"),
    (edit("tests/tests.json", '"removed": []', '"removed": 1'), "removed: Expected `array`, got `int`"),
    (edit("tests/tests.json", '"removed": []', '"removed": ["' + r"\ud800" + '"]'), "surrogates not allowed"),
    (edit("tests/tests.json", '"removed": []', '"removed": ' + "9" * 5000), "tests.json is no JSON: Exceeds"),
    (lambda task: (task / "solution/solution.patch").unlink(), "solution.patch is not there"),
    (lambda task: (task / "environment/repo.bundle").write_bytes(b"# v2 git"), "is no git bundle"),
    (edit("task.toml", 'base_commit = "', 'base_commit = "0000'), "is no full commit id"),
    (other_base, "repo.bundle ends at [0-9a-f]{40}, not at base_commit"),
    (instead("instruction.md", os.mkfifo), "instruction.md is no file"),
    (instead("tests/tests.json", lambda path: path.symlink_to("/dev/zero")), "tests.json is no file"),
    (link_out, "tests/files/hosts is a link that leads out"),
    (overlay_of_git, "environment/overlay: '.git/config' is no path inside"),
    (edit("task.toml", "schema_version", "a." * 50_000 + "schema_version"), "more than 200 parts"),
    (edit("task.toml", "schema_version", '\'a\'."b\\"" . ' * 5000 + "schema_version"), "more than 200 parts"),
    (two_branches, "refs/heads/later, refs/heads/main, where only the branch main may be"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[f"{n}" for n in range(len(WRONG))])
def test_what_is_wrong_is_named(path: Path, change: Callable[[Path], None], message: str) -> None:
    change(path / "tasks" / "word-debug")
    with pytest.raises(IntegrityError, match=message):
        Suite.open(path)


def test_all_wrong_tasks_are_counted(path: Path) -> None:
    for name in ("word-debug", "word-feature"):
        (path / "tasks" / name / "task.toml").unlink()
    with pytest.raises(IntegrityError, match=r"word-debug/task.toml is not there \(2 of 3 tasks are wrong\)"):
        Suite.open(path)


def test_a_suite_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match=r"suite\.toml is not there"):
        Suite.open(tmp_path)
    empty = Suite.create(tmp_path / "new", "new")
    with pytest.raises(InputMissingError, match="has no task"):
        Suite.open(empty.path)
    (empty.path / "rejects.json").write_text("[]")
    with pytest.raises(InputMissingError, match="has no task") as caught:
        Suite.open(empty.path)
    assert "rejects.json" in caught.value.hint
    with pytest.raises(UsageError, match="is there already"):
        Suite.create(tmp_path / "new", "new")
    (empty.path / "suite.toml").write_text('name = "new"\n')
    with pytest.raises(IntegrityError, match="missing required field"):
        Suite.open(empty.path)


@pytest.mark.parametrize("at", ["mkdir", "write", "rename"])
def test_a_suite_that_was_killed_while_it_was_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A fields' file that was cut short was neither a suite nor could another be made there."""
    script = f"""
import os, pathlib, resource, signal
from cursorbench.tasks import suite
def dies(*arguments): os.kill(os.getpid(), signal.SIGKILL)
if {at!r} == "mkdir": suite.tomli_w.dumps = dies
if {at!r} == "write": resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))  # a disk that is full
if {at!r} == "rename": pathlib.Path.rename = dies
suite.Suite.create({str(tmp_path / "new")!r}, "new")
"""
    command = [sys.executable, "-B", "-c", script]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0
    assert Suite.begun(Suite.create(tmp_path / "new", "new").path).fields.name == "new"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda out: (out / "tasks").write_text("mine"), "tasks is in the way"),
        (lambda out: (out / "tasks").symlink_to(out / "nowhere"), "tasks is a link"),
        (lambda out: (out / ".suite.toml.new").mkdir(), "new is in the way"),
        (lambda out: (out / ".suite.toml.new").symlink_to(out.parent / "mine"), "new is a link"),
        (lambda out: (out.rmdir(), out.symlink_to("nowhere")), "is there already"),
    ],
    ids=["file", "link", "folder", "partial link", "broken link"],
)
def test_what_stands_in_a_suites_way_is_named_and_not_written_through(
    tmp_path: Path, make: Callable[[Path], Any], why: str
) -> None:
    mine, out = tmp_path / "mine", tmp_path / "new"
    mine.write_text("keep")
    out.mkdir()
    make(out)
    with pytest.raises(UsageError, match=why):
        Suite.create(out, "new")
    assert mine.read_text() == "keep"


def test_a_half_written_task_is_no_task(path: Path) -> None:
    (path / "tasks" / ".word-next.1234.tmp").mkdir()
    assert len(Suite.open(path).tasks) == 3


def test_what_cannot_be_a_task_is_not_written(made: Suite, tmp_path: Path) -> None:
    task = made.task("word-debug")
    contents = folder.Contents(task.bundle, b"", {"../out.py": b""})
    with pytest.raises(UsageError, match=r"'\.\./out\.py' is no path inside"):
        folder.write(renamed(task, tmp_path / "t"), contents)
    assert list(tmp_path.iterdir()) == []


def renamed(task: Task, place: Path) -> Task:
    return Task(place, task.fields, task.instruction, task.tests, task.timeout_s, task.environment)


def test_the_environment_is_the_base_commit_alone(made: Suite, tmp_path: Path) -> None:
    task = made.task("word-debug")
    found = environment.open(task, tmp_path / "cache")
    assert (found.root / "words/counting.py").read_text() == suites.PACKAGE["words/counting.py"]
    assert suites.git(found.root, "status", "--porcelain") == ""
    assert suites.git(found.root, "rev-parse", "HEAD").strip() == task.fields.base_commit
    assert suites.git(found.root, "remote") == ""
    assert not list((found.root / ".git").rglob("logs"))
    assert environment.open(task, tmp_path / "cache") == found
    assert found.variables["PYTHONPATH"] == "/work"
