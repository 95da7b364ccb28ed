"""A task's environment in a real sandbox: the interpreter, the working tree, the tests."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError, SandboxError
from cursorbench.graders.running import run_tests
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.cover import packages
from cursorbench.sandbox.protocol import Limits
from cursorbench.tasks import bundle, container, environment, folder, scripts, venv
from cursorbench.tasks.cache import made_once
from cursorbench.tasks.folder import Contents
from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import EnvironmentSpec
from tests.cursorbench import suites


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return suites.make_suite(tmp_path_factory.mktemp("suite") / "words")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
def test_tests_run_by_the_tasks_python(made: Suite, tmp_path: Path) -> None:
    task = made.task("word-feature")
    logs = task.logs
    logs.mkdir()
    (logs / "ci.log").write_text("FAILED test_top\n")
    found = environment.open(task, tmp_path / "cache")
    with open_backend("bubblewrap").start(found, environment.limits(task)) as sandbox:
        said = sandbox.exec(["python", "-c", "import sys, words; print(sys.prefix, words.__file__)"])
        assert said.output == "/venv /work/words/__init__.py\n"
        assert sandbox.read("/context/ci.log") == b"FAILED test_top\n"
        assert sandbox.exec("touch /venv/x /context/x").status != 0
        ran = run_tests(sandbox, task.tests.command, 60)
        assert dict.fromkeys(suites.OLD, "passed") == dict(ran.outcomes)
        for path in task.tests.files:
            sandbox.write(path, (task.test_files / path).read_bytes())
        sandbox.write("/tmp/solution.patch", task.solution.read_bytes())
        assert sandbox.exec("git apply --binary /tmp/solution.patch").ok
        ran = run_tests(sandbox, task.tests.command, 60)
        expected = (*task.tests.fail_to_pass, *task.tests.pass_to_pass)
        assert dict.fromkeys(expected, "passed") == dict(ran.outcomes)
    shutil.rmtree(logs)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
def test_what_else_is_installed_on_the_machine_is_not_there(made: Suite, tmp_path: Path) -> None:
    """A later release of what a task is about, installed for the machine's Python, was its solution."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kind = replace(made.task("word-debug").environment, kind="python", python=version)
    task = replace(made.task("word-debug"), environment=kind)
    task.lock.write_text("# nothing\n")
    found = environment.open(task, tmp_path / "cache")
    task.lock.unlink()
    base = Path(sys.base_prefix)
    own = next(base / path for path in packages(base) if any((base / path).iterdir()))  # a full one
    with open_backend("bubblewrap").start(found) as sandbox:
        where = f"/run /usr/lib/python3* /usr/local/lib/python3* {shlex.quote(sys.base_prefix)}/lib*/python3*"
        folders = sandbox.exec(f"find {where} -type d -name '*-packages' 2>/dev/null").output.split("\n")
        assert str(own) in folders
        said = sandbox.exec(["ls", "-A", *filter(None, folders)]).output.split("\n")
        assert [line for line in said if line and not line.endswith(":")] == []
        assert sandbox.exec(["touch", f"{own}/x"]).status != 0
        assert sandbox.exec(["python", "-c", "import sqlite3, ssl, words"]).ok


def test_limits_are_the_tasks(made: Suite) -> None:
    task = made.task("word-debug")
    found = environment.limits(task)
    assert (found.memory, found.disk, found.wall_s) == (2048 << 20, 1024 << 20, 60.0)
    silent = replace(task, environment=EnvironmentSpec(kind="host", memory_mb=None, storage_mb=None))
    assert environment.limits(silent).memory == Limits().memory


def test_what_a_machine_gives_is_named() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert environment.of_machine("python", version).startswith(f"python {version}.")
    assert environment.of_machine("host", "") == environment.of_machine("host", "") != "host"
    with pytest.raises(InputMissingError, match=r"no Python 3\.99"):
        environment.of_machine("python", "3.99")


def test_an_image_needs_a_container_engine(made: Suite, tmp_path: Path) -> None:
    task = replace(made.task("word-debug"), environment=EnvironmentSpec(kind="docker", image="debian:12"))
    with pytest.raises(SandboxError, match="word-debug needs Docker"):
        environment.open(task, tmp_path)


def test_nothing_is_written_through_a_link_of_the_repository(made: Suite, tmp_path: Path) -> None:
    repository = suites.make_repository(tmp_path / "repo")
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "build").symlink_to(outside)
    (repository / "notes.txt").symlink_to(outside / "notes.txt")
    suites.git(repository, "add", "-A")
    base = suites.commit(repository, "links")
    tree = bundle.write(repository, base, tmp_path / "r.bundle")
    before = made.task("word-debug")
    for name, overlay in (("through", "build/x.py"), ("in-place", "notes.txt")):
        fields = replace(before.fields, instance_id=name, base_commit=base)
        spec = replace(before.environment, tree=tree)
        task = replace(before, folder=tmp_path / name, fields=fields, environment=spec)
        files = {"tests/t.py": b""}
        task = folder.write(task, Contents(tmp_path / "r.bundle", b"", files, overlay={overlay: b"x"}))
        if name == "through":
            with pytest.raises(IntegrityError, match=r"build/x\.py lies behind a link"):
                environment.open(task, tmp_path / "cache")
        else:
            assert (environment.open(task, tmp_path / "cache").root / "notes.txt").read_bytes() == b"x"
    assert list(outside.iterdir()) == []
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []


def test_no_suite_makes_the_working_tree_of_another_ones_task(made: Suite, tmp_path: Path) -> None:
    """Environments are kept by what they are made of; a stranger's could have the name of another one."""

    def root(name: str, overlay: dict[str, bytes], cut: bytes = b"") -> Path:
        task = replace(made.task("word-debug"), folder=tmp_path / name)
        shutil.copytree(made.task("word-debug").folder, task.folder)
        for path, content in overlay.items():
            folder.put(task.overlay / path, content)
        if cut:
            bundle.beside(task.bundle).write_bytes(cut)
        return environment.open(task, tmp_path / "cache").root

    theirs = root("theirs", {"a": b"x\0b\x000\0y"})
    ours = root("ours", {"a": b"x", "b": b"y"})
    assert ((ours / "a").read_bytes(), (ours / "b").read_bytes()) == (b"x", b"y")
    assert not (theirs / "b").exists()
    head = bundle.head(made.task("word-debug").bundle).encode() + b"\n"
    assert (root("shortened", {"a": b"x", "b": b"y"}, head) / ".git" / "shallow").read_bytes() == head
    assert not (root("ours-again", {"a": b"x", "b": b"y"}) / ".git" / "shallow").exists()


def test_what_many_want_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make(place: Path) -> None:
        time.sleep(0.05)
        place.mkdir()
        (place / "whole").touch()
        made.append(1)

    (tmp_path / "tmp" / "things-a").mkdir(parents=True)
    (tmp_path / "tmp" / "things-a" / "half").touch()  # of a process that died
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: made_once(tmp_path, "things", "a", make), range(8)))
    assert found == {tmp_path / "things" / "a"}
    assert (made, [path.name for path in (tmp_path / "things" / "a").iterdir()]) == ([1], ["whole"])


def test_what_outlives_a_killed_process_writes_into_no_other_half(tmp_path: Path) -> None:
    """pip went on in a folder that the next process removed ("Directory not empty") and made anew."""

    def die(place: Path) -> None:
        (place / "site-packages").mkdir(parents=True)
        os._exit(0)

    if (killed := os.fork()) == 0:
        made_once(tmp_path, "things", "a", die)
    os.waitpid(killed, 0)
    (left,) = (tmp_path / "tmp").iterdir()

    def make(place: Path) -> None:
        place.mkdir()
        (left / "site-packages").mkdir(parents=True, exist_ok=True)
        (left / "site-packages" / "late").touch()

    assert list(made_once(tmp_path, "things", "a", make).iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_fails_is_made_again(tmp_path: Path) -> None:
    def fail(place: Path) -> None:
        place.mkdir()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        made_once(tmp_path, "things", "a", fail)
    assert not (tmp_path / "things" / "a").exists()
    assert made_once(tmp_path, "things", "a", lambda place: place.mkdir()).is_dir()


HASH = "--hash=sha256:" + "0" * 64


def test_what_a_lock_pins() -> None:
    text = (
        f"# made by hand\nTyping_Extensions==4.12.2 \\\n    {HASH}\nzope.interface[test]==7.0 {HASH} # why\n"
    )
    text += f"colorama==0.4.6 ; sys_platform == 'win32' {HASH}\n"
    assert venv.locked(text, Path("l")) == {"typing-extensions": "4.12.2", "zope-interface": "7.0"}


@pytest.mark.parametrize(
    "line",
    [
        *("pytest", "pytest>=8 " + HASH, "pytest==8.0", "-e .", "git+https://x/y"),
        "# pip reads what is behind a comment \\\n--index-url https://x/simple",
        "  # so \\\r\n--find-links https://x",
        "# so \v-r /etc/passwd",
        f"pytest==8.0 {HASH} \\\n# so\n--no-binary :all:",
    ],
)
def test_a_lock_that_leaves_something_open(line: str) -> None:
    with pytest.raises(IntegrityError, match="is not NAME==VERSION with a hash"):
        venv.locked(line + "\n", Path("requirements.lock"))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "gcc\nERROR: Could not build wheels for typed-ast, which is required\n",
            venv.NotBuiltError,
        ),
        ("error: metadata-generation-failed\nhint: see above\n", venv.NotBuiltError),
        (
            "WARNING: Retrying (Retry(total=0)) NewConnectionError('name')\n"
            "ERROR: No matching distribution found for setuptools\nERROR: Failed to build typed-ast\n",
            DependencyDownError,
        ),
        ("ERROR: Could not find a version that satisfies x (from versions: none)\n", DependencyDownError),
    ],
)
def test_a_package_that_does_not_build_is_told_from_a_missing_network(
    tmp_path: Path, said: str, kind: type[DependencyDownError]
) -> None:
    """typed-ast of 2021 under Python 3.11 was infrastructure, tried again for minutes by each build."""
    with pytest.raises(DependencyDownError) as caught:
        venv._run([sys.executable, "-c", "import sys; sys.exit(sys.argv[1])", said], tmp_path)
    assert type(caught.value) is kind
    if isinstance(caught.value, venv.NotBuiltError) and "ERROR" in said:
        assert caught.value.said == "ERROR: Could not build wheels for typed-ast, which is required"


def test_the_python_of_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "pythons", lambda: (8, 11, 13))
    days = ("2019-05-01", "2020-07-01", "2023-06-30", "2023-07-01", "2025-06-30", "2025-07-01", "2030-01-01")
    found = [venv.python_of(datetime.fromisoformat(f"{day}T00:00:00+00:00")) for day in days]
    assert found == ["3.8", "3.8", "3.8", "3.11", "3.11", "3.13", "3.13"]
    monkeypatch.setattr(venv, "pythons", tuple)
    with pytest.raises(InputMissingError, match=r"no Python 3\.8 or newer"):
        venv.python_of(datetime.now(UTC))


def test_an_environment_without_requirements_is_built_once(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("# nothing\n")
    version = f"{venv.sys.version_info.major}.{venv.sys.version_info.minor}"
    first, python = venv.build(lock, version, tmp_path / "cache")
    assert python.version.startswith(version)
    assert (first / "bin" / "python").exists()
    stamp = first.stat().st_mtime_ns
    assert venv.build(lock, version, tmp_path / "cache")[0] == first
    assert first.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("start", ["#!{}python3\n", "#!/bin/sh\n''''exec' {}python3 \"$0\" \"$@\"\n"])
def test_scripts_name_the_place_inside(tmp_path: Path, start: str) -> None:
    script = tmp_path / "tool"
    script.write_text(start.format("/made/here/bin/") + "print('/made/here/bin/')\n")
    venv.move(script, "/made/here/bin/", "/venv/bin/")
    assert script.read_text() == start.format("/venv/bin/") + "print('/made/here/bin/')\n"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
def test_a_projects_own_programs_are_there(made: Suite, tmp_path: Path) -> None:
    """As after an editable install: tests of a command run it by its name."""
    here = shutil.copytree(made.task("word-feature").folder, tmp_path / "word-feature")
    spec = EnvironmentSpec(kind="python", python=f"{sys.version_info[0]}.{sys.version_info[1]}")
    task = replace(made.task("word-feature"), folder=here, environment=spec)
    task.lock.write_text("# nothing\n")
    metadata = task.overlay / "words.egg-info"
    metadata.mkdir(parents=True)
    (metadata / "entry_points.txt").write_text(
        "[console_scripts]\nuniq = words:unique\nCamel-2 = words.part:Class.method [extra]\n"
        "python = words:unique\n../up = words:unique\nmodule = words\nodd\n\n[other]\nelse = words:unique\n"
    )
    assert [*scripts.of_overlay(task.overlay)] == ["Camel-2", "python", "uniq"]
    found = environment.open(task, tmp_path / "cache")
    with open_backend("bubblewrap").start(found, environment.limits(task)) as sandbox:
        sandbox.write("words/__init__.py", b"def unique():\n    print('of the tree')\n    return 3\n")
        done = sandbox.exec(["uniq"])
        assert (done.output, done.status) == ("of the tree\n", 3)
        assert sandbox.exec(["python", "-c", "print(1)"]).output == "1\n", "the interpreter stays"
    assert "from words import unique" in container.dockerfile(task)
    (metadata / "entry_points.txt").write_bytes(b"\xff no ini\n")
    assert scripts.of_overlay(task.overlay) == {}
