"""Diffs as git writes them, read back; and which paths decide how tests run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cursorbench.builder.paths import kind_of
from cursorbench.graders import flags, infrastructure, patch


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def diff(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """A diff that git makes of two states."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for state in (before, after):
        for path in folder.rglob("*"):
            if path.is_file() and ".git" not in path.parts:
                path.unlink()
        for name, content in state.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        git(folder, "add", "-A", "-f")
        if state is before:
            git(folder, "commit", "-qm", "base", "--allow-empty")
    return git(folder, "diff", "--cached", "--binary", "-M", "HEAD")


def test_what_git_writes_is_read(tmp_path: Path) -> None:
    before = {
        "a.py": b"one\ntwo\nthree\n",
        "gone.py": b"x\n",
        "old name.py": b"1\n2\n3\n4\n5\n",
        "b\xc3\xa4.txt".encode("latin-1").decode("utf-8"): b"a\n",
    }
    after = {
        "a.py": b"one\n-- TWO\n++ three\n",
        "new.py": b"--- a/x\n+++ b/y\n@@ -1 +1 @@\n",
        "moved to.py": b"1\n2\n3\n4\n5\n",
        "b\xc3\xa4.txt".encode("latin-1").decode("utf-8"): b"b",
        "bin": b"\x00\x01",
    }
    found = {one.path: one for one in patch.files(diff(tmp_path, before, after))}
    assert set(found) == {"a.py", "new.py", "gone.py", "moved to.py", "bä.txt", "bin"}
    assert found["a.py"].added == ["-- TWO", "++ three"]
    assert found["a.py"].deleted == ["two", "three"]
    assert found["new.py"].created
    assert found["new.py"].added == ["--- a/x", "+++ b/y", "@@ -1 +1 @@"]
    assert found["gone.py"].removed
    assert found["moved to.py"].old == "old name.py"
    assert found["bin"].binary
    assert patch.size([*found.values()]) == 2 + 2 + 3 + 1 + 2


def test_a_move_is_told_without_gits_help() -> None:
    """What a sandbox changed comes without renames; the change that was kept is counted with them."""

    def gone(path: str, *lines: str) -> patch.FileChange:
        return patch.FileChange(path, deleted=[*lines], removed=True)

    def made(path: str, *lines: str) -> patch.FileChange:
        return patch.FileChange(path, added=[*lines], created=True)

    changes = [gone("a", "1", "2", "3", "4"), made("b", "1", "2", "3", "5"), made("c", "1", "9", "9")]
    assert patch.moved(changes) == {"a": "b"}
    assert patch.size(changes) == 1 + 1 + 3
    changes.append(made("d", "1", "2", "3", "4"))
    assert patch.moved(changes) == {"a": "d"}, "the nearest one"
    assert patch.moved([gone("a", "1"), made("b", *map(str, range(3)))]) == {}, "under half of the larger one"
    many = [one for n in range(40) for one in (gone(f"a{n}", "x"), made(f"b{n}", "x"))]
    assert patch.moved(many) == {}, "of so many none is looked for"


@pytest.mark.parametrize(
    ("path", "decides"),
    [
        ("conftest.py", True),
        ("a/b/conftest.py", True),
        ("pytest.ini", True),
        ("src/sitecustomize.py", True),
        ("evil.pth", True),
        ("x.egg-info/entry_points.txt", True),
        ("pkg/__pycache__/a.cpython-311.pyc", True),
        ("jest.config.js", True),
        ("web/.mocharc.cjs", True),
        (".mocharc.yaml", True),
        ("vite.config.ts", True),
        ("karma.conf.cjs", True),
        (".npmrc", True),
        ("src/vite.ts", False),
        ("src/pkg/core.py", False),
        ("pyproject.toml", False),
    ],
)
def test_names_that_decide(path: str, decides: bool) -> None:
    assert infrastructure.decides(path) is decides


def test_folders_of_tests() -> None:
    folders = infrastructure.test_folders(["tests/unit/test_a.py", "pkg/test_b.py", "src/x/tests/test_c.py"])
    assert folders == {"tests", "src/x/tests"}
    assert infrastructure.of_tests("tests/data/x.json", folders)
    assert infrastructure.of_tests("tests", folders)
    assert not infrastructure.of_tests("testsuite/x", folders)
    assert not infrastructure.of_tests("pkg/core.py", folders)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("Tests/helper.py", "Tests"),
        ("unit_tests/data/x.json", "unit_tests"),
        ("src/pkg/tests_core/test_a.py", "src/pkg/tests_core"),
        ("pkg/testdata/tests/test_a.py", "pkg/testdata"),
        ("testing/test_a.py", "testing"),
        ("Specs/a_spec.rb", "Specs"),
        ("pkg/testing/tests/test_a.py", "pkg/testing/tests"),
        ("pkg/testing/helpers.py", ""),
        ("contest/test_a.py", ""),
        ("special/test_a.py", ""),
        ("latest/test_a.py", ""),
        ("tests", ""),
    ],
)
def test_builder_and_grader_know_the_same_folders_of_tests(path: str, folder: str) -> None:
    """The grader had a set of names of its own: helpers in `Tests` and `unit_tests` stayed a model's."""
    assert infrastructure.test_folders([path]) == ({folder} - {""})
    assert infrastructure.of_tests(path, infrastructure.test_folders([path])) is bool(folder)
    if folder:
        assert kind_of(path) == "test"


@pytest.mark.parametrize(
    ("path", "shadow"),
    [
        ("random.py", "random.py"),
        ("src/pytest/__init__.py", "src/pytest"),
        ("tests/json.py", "tests/json.py"),
        ("pytest_evil.py", "pytest_evil.py"),
        ("src/pkg/types.py", ""),
        ("json.txt", ""),
        ("pkg/json.py", ""),
    ],
)
def test_modules_in_front_of_others(path: str, shadow: str) -> None:
    assert infrastructure.shadows(path, {"tests"}) == shadow


def test_settings_of_tests_in_shared_files() -> None:
    base = b'[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-q"\n'
    assert infrastructure.same_settings("pyproject.toml", base, base.replace(b'"a"', b'"b"'))
    assert not infrastructure.same_settings("pyproject.toml", base, base.replace(b"-q", b"-p evil"))
    assert not infrastructure.same_settings("pyproject.toml", base, None)
    assert not infrastructure.same_settings("pyproject.toml", base, b"[")
    assert infrastructure.same_settings("setup.cfg", None, b"[metadata]\nname = a\n")
    assert not infrastructure.same_settings("setup.cfg", None, b"[tool:pytest]\naddopts = -x\n")
    assert infrastructure.same_settings("package.json", b'{"version": 1}', b'{"version": 2}')
    assert not infrastructure.same_settings("package.json", b"{}", b'{"scripts": {"test": "true"}}')
    assert not infrastructure.same_settings("package.json", b"{}", b"[1]")


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("    os._exit(0)", "source:exit"),
        ("import atexit", "source:atexit"),
        ("from _pytest import runner", "source:pytest"),
        ("def pytest_runtest_makereport(item):", "source:pytest"),
        ('m = sys.modules["pytest"]', "source:modules"),
        ('if "PYTEST_CURRENT_TEST" in os.environ:', "source:under_test"),
        ("def __eq__(self, other): return True", "source:always_equal"),
        ("os.fork()", "source:daemon"),
        ("return total + 1", ""),
    ],
)
def test_flags_of_sources(line: str, flag: str) -> None:
    text = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{1}\n"
    assert flags.of_diff(text.format("src/core.py", line)) == ({flag} if flag else set())
    assert flags.of_diff(text.format("tests/test_a.py", line)) == set()
    assert flags.of_diff(text.format("docs/notes.md", line)) == set()
    assert "deciding" in flags.of_diff(text.format("tests/conftest.py", line))


@pytest.mark.parametrize("word", ["sys.modules ", "ctypes ", "def __eq__(", "from os import ", ") -> ", "a"])
def test_no_line_takes_hours(word: str) -> None:
    """A line of 100 kB took 24 seconds, and one of a megabyte the whole trial, which then had no grade."""
    line = word * (1_000_000 // len(word))
    head = "diff --git a/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+"
    assert flags.of_diff(f"{head}{line}\n") == set()


HIDDEN = [f"# x{end}[pytest]{end}addopts = -p evil" for end in ("\x0c", "\r", "\u2028")]


@pytest.mark.parametrize("hidden", [*HIDDEN, "[pytest] # ]\naddopts = -p evil"])
def test_settings_that_pytest_reads_and_configparser_does_not(hidden: str) -> None:
    """pytest's reader ends lines at a form feed too, and a section's name before a comment."""
    base = b"[tox]\nenvlist = py3\n"
    assert infrastructure.same_settings("tox.ini", base, base + b"# mine\n")
    assert not infrastructure.same_settings("tox.ini", base, base + hidden.encode())
    assert not infrastructure.same_settings("tox.ini", None, hidden.encode())


STRICT = "[tox]\nenvlist = py3\n[pytest]\nfilterwarnings = error\n"


@pytest.mark.parametrize(
    "other",
    [
        STRICT.replace("filterwarnings", "filterwarnings = ignore\nFILTERWARNINGS"),
        STRICT.replace("filterwarnings", "FILTERWARNINGS"),
        STRICT.replace("[pytest]\nfilterwarnings", "[DEFAULT]\nfilterwarnings") + "[pytest]\n",
        STRICT + "filterwarnings = error\n",
        STRICT + "[pytest]\nfilterwarnings = error\n",
        STRICT + "[x] ignore\n",
        STRICT.replace("[pytest]", "# x\x0c[pytest]"),
    ],
)
def test_settings_that_are_the_same_to_configparser_alone(other: str) -> None:
    """pytest's reader knows capitals, has no [DEFAULT], and refuses what is there twice. It goes on with a
    value where a line begins like a section and does not end like one; its first versions ended no line at a
    form feed."""
    base = STRICT.encode()
    assert infrastructure.same_settings("tox.ini", base, base.replace(b"py3", b"py4"))
    assert not infrastructure.same_settings("tox.ini", base, other.encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "a = " + "[" * 100_000),  # a RecursionError, which ended the whole run
        ("pyproject.toml", "a = " + "[" * 3_000 + "]" * 3_000),
        ("package.json", "[" * 100_000),
        ("pyproject.toml", "a." * 100_000 + "a = 1"),  # 40 GB of prefixes, in the process that grades
        ("tox.ini", "[pytest]\naddopts=" + "a" * 10_000_000),
    ],
)
def test_settings_that_are_bombs_are_not_the_same(name: str, text: str) -> None:
    assert not infrastructure.same_settings(name, b"{}" if name == "package.json" else b"", text.encode())
