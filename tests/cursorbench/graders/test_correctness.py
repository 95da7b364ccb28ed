"""Grades of diffs, in a real sandbox with the real pytest."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cursorbench.errors import IntegrityError
from cursorbench.graders import infrastructure, restoring
from cursorbench.graders.correctness import grade
from cursorbench.graders.correctness import test_files as files_of
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.protocol import Backend, Environment
from tests.cursorbench.graders.forging import BASE, COMMAND, CORE, FILE, LIMITS, SOLVED, World, git, put


@pytest.fixture(scope="module")
def backend() -> Backend:
    return open_backend()


@pytest.fixture(scope="module")
def world(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("forging")
    for place in (folder, folder.parent):
        place.chmod(0o755)
    return World(folder, backend)


def test_a_solution_passes_and_was_challenged(world: World) -> None:
    found = grade(world.task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS)
    assert found.passed, found
    assert (found.passed_tests, found.expected_tests) == (3, 3)
    assert found.canaries == 4
    assert found.challenged >= 1
    assert (found.flags, found.restored) == ((), ())


def test_nothing_done_fails(world: World) -> None:
    found = grade(world.task, world.environment, "", world.backend, LIMITS)
    assert (found.passed, found.reason, found.passed_tests) == (False, "failed", 1)
    assert set(found.failed) == set(world.task.tests.fail_to_pass)


def test_what_breaks_another_test_fails(world: World) -> None:
    broken = {"calc/core.py": SOLVED["calc/core.py"].replace("max(", "min(")}
    found = grade(world.task, world.environment, world.diff({**broken}), world.backend, LIMITS)
    assert found.failed == (f"{FILE}::test_largest",)


@pytest.mark.parametrize(
    ("core", "reason"),
    [
        ("import nowhere\n", "missing"),
        ("import sys\nsys.exit(3)\n", "missing"),
        ("import os\nos._exit(0)\n", "no_report"),
        ("x = []\nwhile True:\n    x.append(bytearray(1 << 26))\n", "memory"),
    ],
)
def test_why_it_did_not_pass(world: World, core: str, reason: str) -> None:
    found = grade(world.task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert not found.passed
    assert found.reason == reason, found


def test_tests_that_do_not_end(world: World) -> None:
    hasty = replace(world.task, verifier_timeout_s=3.0)
    diff = world.diff({"calc/core.py": CORE + "\nwhile True:\n    pass\n"})
    assert grade(hasty, world.environment, diff, world.backend, LIMITS).reason == "timeout"


def test_a_diff_that_does_not_apply(world: World) -> None:
    diff = world.diff({**SOLVED}).replace("return 0", "return 7")
    for text in (diff, "no diff at all\n", diff[:150], "diff --git a/../x b/../x\nnew file mode 100644\n"):
        found = grade(world.task, world.environment, text, world.backend, LIMITS)
        assert (found.passed, found.reason) == (False, "patch"), text


DEEP = """
import os
for name in {parts!r}:
    os.mkdir(name)
    os.chdir(name)
open({name!r}, "w").write("x = 1")
"""


@pytest.mark.parametrize("name", ["conftest.py", "test_a.py", "random.py"])
@pytest.mark.parametrize("length", [4060, 4095])
def test_a_path_as_long_as_can_be_is_a_grade(world: World, name: str, length: int) -> None:
    """Below the tree on this machine it is no path at all: asking for it there raised, and ended the run."""
    parts = ["random"] + ["a" * 100] * ((length - 200) // 101)
    parts.append("b" * (length - len("/".join([*parts, "", name]))))
    with world.backend.start(world.environment, LIMITS) as sandbox:
        assert sandbox.exec(["python", "-c", DEEP.format(parts=parts, name=name)]).ok
        diff = sandbox.diff()
    path = "/".join([*parts, name])
    assert len(path) == length
    assert path in diff
    found = grade(world.task, world.environment, diff, world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "patch")


def test_there_is_room_for_the_tests_beside_what_a_model_filled(world: World) -> None:
    """Who filled the disk but for some bytes had the tests not put in place, which was nobody's doing."""
    small = replace(LIMITS, disk=1 << 20)
    with world.backend.start(world.environment, small) as sandbox:
        assert not sandbox.exec("head -c 2M /dev/zero | tr '\\0' a | fold > big").ok
        filled = sandbox.diff()
    found = grade(world.task, world.environment, filled, world.backend, small)
    assert (found.passed, found.reason) == (False, "failed"), found


def test_a_task_that_expects_nothing_is_refused(world: World) -> None:
    none = replace(world.task.tests, fail_to_pass=(), pass_to_pass=())
    with pytest.raises(IntegrityError, match="expects no tests"):
        grade(replace(world.task, tests=none), world.environment, "", world.backend, LIMITS)


def test_ids_by_class_names_are_graded_too(world: World) -> None:
    """Reports of other runners, and old suites, have no file: `classname::name`."""
    command = (*COMMAND, "-o", "junit_family=xunit2")
    tests = replace(
        world.task.tests,
        command=command,
        fail_to_pass=("tests.test_core::test_total",),
        pass_to_pass=("tests.test_core::test_largest",),
    )
    task = replace(world.task, tests=tests)
    found = grade(task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS)
    assert found.passed, found
    assert found.challenged


def test_no_link_of_a_repository_leads_out_of_it(world: World, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(world.task.folder / "tests" / "files", root)
    name = world.task.tests.fail_to_pass[0]
    file = name.partition("::")[0]
    secret = tmp_path / "secret.py"
    secret.write_text("def test_secret(): ...\n")
    plain = replace(world.task, tests=replace(world.task.tests, files=()))
    assert set(files_of(plain, root)) == {file}
    (root / file).unlink()
    (root / file).symlink_to(secret)
    assert files_of(plain, root) == {}


def test_a_source_file_whose_docstrings_are_tests_stays_the_solutions(world: World, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "price.py").write_text("def total(): ...\n")
    told = replace(world.task.tests, files=(), fail_to_pass=("shop/price.py::shop.price.total",))
    assert files_of(replace(world.task, tests=told), tmp_path) == {}


def test_the_script_that_runs_the_tests_is_the_bases(world: World) -> None:
    """To all of the code it was source: a model wrote one that says what it likes."""
    with world.backend.start(world.environment, LIMITS) as sandbox:
        sandbox.write("calc/core.py", b"x = 1\n")
        command = ("python", "./calc/core.py", "{report}")
        root, tests = world.environment.root, {FILE: b""}
        assert restoring.put_back(sandbox, root, ["calc/core.py"], tests, command=command) == ["calc/core.py"]
        assert restoring.put_back(sandbox, root, ["calc/core.py"], tests) == []


@pytest.mark.parametrize("installed", ["node_modules/runner/lib.js", "vendor/lib/site-packages/runner.py"])
def test_the_runner_that_is_installed_in_the_tree_is_the_bases(
    world: World, backend: Backend, installed: str, tmp_path: Path
) -> None:
    """The command names what starts it, and not the files where it is told what has passed."""
    root = tmp_path / "base"
    put(root, {installed: "fail = 1\n"})
    for place in (tmp_path, tmp_path.parent, root):
        place.chmod(0o755)
    with backend.start(replace(world.environment, root=root), LIMITS) as sandbox:
        sandbox.write(installed, b"fail = 0\n")
        other = f"{installed}.more"
        sandbox.write(other, b"x")
        assert restoring.put_back(sandbox, root, [installed, other], {FILE: b""}) == [installed, other]
        assert sandbox.exec(["cat", installed]).output == "fail = 1\n"


@pytest.mark.parametrize("folder", ["Tests", "unit_tests"])
def test_helpers_in_a_folder_that_the_builder_knows(world: World, folder: str) -> None:
    """The grader did not take it for one of tests: a model could edit what the tests compare with."""
    with world.backend.start(world.environment, LIMITS) as sandbox:
        helper = f"{folder}/data/helper.py"
        sandbox.write(helper, b"EXPECTED = 0\n")
        tests = {f"{folder}/test_core.py": b""}
        assert restoring.put_back(sandbox, world.environment.root, [helper], tests) == [helper]
        assert not sandbox.exec(["test", "-e", helper]).ok


def test_what_tests_share_beside_code_is_the_bases(world: World) -> None:
    """The builder takes it for a test, so no solution has it: a model could edit what the tests compare with.
    A model's own new tests there decide nothing and stay."""
    with world.backend.start(world.environment, LIMITS) as sandbox:
        helper, own = "calc/test_support.py", "calc/test_own.py"
        before = ["calc/test_support.abi3.so", "calc/test_support/__init__.py", "calc/test_support/more.py"]
        for path in (helper, own, *before):
            sandbox.write(path, b"TOTAL = 0\n")
        tests = {"calc/test_core.py": b""}
        touched = [helper, own, *before]
        assert restoring.put_back(sandbox, world.environment.root, touched, tests) == [
            *before[:1],
            helper,
            *before[1:],
        ]
        assert not any(sandbox.exec(["test", "-e", path]).ok for path in before)
        assert sandbox.read(helper, 100) == b"TOTAL = 6\n"
        assert sandbox.read(own, 100) == b"TOTAL = 0\n"


@pytest.mark.parametrize(
    "folder", ["test_utils", "testutils", "test-helpers", "shop/test_support", "tests_a"]
)
def test_folders_of_what_tests_share(folder: str) -> None:
    """The model could weaken an assertion in them."""
    assert infrastructure.tests_folder(f"{folder}/checks.py") == folder


@pytest.mark.parametrize(
    "path",
    [
        "sitecustomize/__init__.py",
        "src/usercustomize/more.py",
        "x-1.Dist-Info/entry_points.txt",
        "X.EGG-INFO/a",
    ],
)
def test_what_python_loads_before_any_test_decides(path: str) -> None:
    assert infrastructure.decides(path)


def test_folders_that_look_like_options(world: World) -> None:
    """`rm` refused the name, and that counted as a failure of the sandbox's."""
    odd = {"-x/conftest.py": "", "--/tests/conftest.py": "import os", "-rf": "x"}
    odd["-x/conftest.py"] = "import os\n"
    found = grade(world.task, world.environment, world.diff({**SOLVED, **odd}), world.backend, LIMITS)
    assert found.passed, found
    assert found.restored == ("--/tests/conftest.py", "-x/conftest.py")


def test_very_many_files_to_put_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many commands that takes does not grow with what a model wrote: it was five for each file."""
    many = {f"tests/{number}/deep/conftest.py": "x = 1\n" for number in range(300)}
    diff = world.diff({**SOLVED, **many})
    with world.backend.start(world.environment, LIMITS) as sandbox:
        touched = restoring.apply(sandbox, diff)
        asked: list[object] = []
        real = sandbox.exec
        monkeypatch.setattr(
            sandbox, "exec", lambda command, **more: asked.append(command) or real(command, **more)
        )
        restored = restoring.put_back(sandbox, world.environment.root, touched, {FILE: b""}, ())
        assert set(many) <= set(restored)
        assert len(asked) < 20
        assert real("find tests -name conftest.py").output == "tests/conftest.py\n"


def test_very_many_files_to_remove(world: World, tmp_path: Path) -> None:
    """A program for each took a busy machine longer than a command may, and the trial had no grade."""
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    counting = tmp_path / "rm"
    counting.write_text('#!/bin/sh\necho >> /tmp/counted\nexec /bin/rm "$@"\n')
    counting.chmod(0o755)
    known = world.environment
    path = f"/opt/counting:{known.variables['PATH']}"
    known = replace(
        known,
        mounts={**known.mounts, "/opt/counting": tmp_path},
        variables={**known.variables, "PATH": path},
    )
    diff = world.diff({**SOLVED, **{f"{number}.pyc": "x" for number in range(300)}})
    with world.backend.start(known, LIMITS) as sandbox:
        touched = restoring.apply(sandbox, diff)
        restoring.put_back(sandbox, world.environment.root, touched, {FILE: b""}, ())
        assert not sandbox.exec("ls *.pyc").ok
        assert sandbox.read("/tmp/counted").count(b"\n") < 20


def test_a_script_among_the_tests_can_be_run(world: World) -> None:
    """A task keeps no modes, and what tests started from their own folder was never to pass."""
    tests = {FILE: b"", "tests/say.sh": b"#!/bin/sh\necho hi\n"}
    with world.backend.start(world.environment, LIMITS) as sandbox:
        restoring.put_back(sandbox, world.environment.root, (), tests)
        assert sandbox.exec(["tests/say.sh"]).output == "hi\n"
        assert sandbox.exec(["test", "-x", FILE]).status == 1


def test_a_project_that_stops_at_the_first_failure(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first canary ended the run, and every solution was called forged."""
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    monkeypatch.setitem(BASE, "pyproject.toml", BASE["pyproject.toml"].replace("-q", "-q -x"))
    world = World(tmp_path, backend)
    found = grade(world.task, world.environment, world.diff({**SOLVED}), backend, LIMITS)
    assert found.passed, found


ATTRIBUTES = "* text=auto eol=crlf\n*.id ident\n*.wide text working-tree-encoding=UTF-16\n"


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A tree whose files are others than git has stored."""
    root = tmp_path_factory.mktemp("attributed")
    for place in (root, root.parent):
        place.chmod(0o755)
    git(root, "init", "-q")
    put(root, {".gitattributes": ATTRIBUTES, "a.py": "a = 1\r\nb = 2\r\n", "b.id": "$Id$\nb\n"})
    (root / "c.wide").write_bytes("c\n".encode("utf-16"))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    for name in ("a.py", "b.id", "c.wide"):
        (root / name).unlink()
    git(root, "checkout", "-q", ".")
    return Environment(root)


def test_a_diff_of_bytes_makes_these_bytes_whatever_the_attributes(
    backend: Backend, attributed: Environment
) -> None:
    """A right solution of such a file did not apply, or was graded with other line ends than it had."""
    assert b"\r\n" in (attributed.root / "a.py").read_bytes()
    want = {name: (attributed.root / name).read_bytes() + b"more\n" for name in ("b.id", "c.wide")}
    want |= {"a.py": b"a = 1\nb = 3\n", "new.py": b"x = 1\n"}
    with backend.start(attributed, LIMITS) as sandbox, backend.start(attributed, LIMITS) as fresh:
        for name, content in want.items():
            sandbox.write(name, content)
        assert restoring.apply(fresh, sandbox.diff()) == set(want)
        assert {name: fresh.read(name) for name in want} == want
        assert fresh.exec("ls -A /tmp").output == ""


def test_a_diff_of_what_git_has_stored_applies_as_well(backend: Backend, attributed: Environment) -> None:
    """The solution of a commit is one."""
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"
    with backend.start(attributed, LIMITS) as sandbox:
        restoring.apply(sandbox, f"diff --git a/a.py b/a.py\n{diff}")
        assert sandbox.read("a.py") == b"a = 1\r\nb = 3\r\n"


def test_modules_that_come_before_the_librarys(world: World) -> None:
    """On the task's own import path, and beside a test file that lies in no package."""
    tests = {"calc/test_core.py": b"", "odd/test_a.py": b"", FILE: b""}
    shadows = ("backend/random.py", "odd/json/__init__.py", "src/enum.py", "pytest.py")
    fine = ("calc/random.py", "backend/calc/random.py", "other/random.py")
    with world.backend.start(world.environment, LIMITS) as sandbox:
        for path in (*shadows, *fine):
            sandbox.write(path, b"x = 1\n")
        root = world.environment.root
        restored = restoring.put_back(sandbox, root, (*shadows, *fine), tests, (), (".", "backend"))
        assert set(restored) & {*shadows, *fine} == set(shadows)
        assert all(sandbox.read(path) == b"x = 1\n" for path in fine)
