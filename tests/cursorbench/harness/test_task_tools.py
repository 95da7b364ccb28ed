"""The full set of tools: what they do, what they refuse, and that no argument makes them raise."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.harness import commands
from cursorbench.harness.call_parser import ToolSet
from cursorbench.harness.results import ErrorClass, error_class
from cursorbench.harness.task_tools import ToolSettings, task_tools
from cursorbench.harness.toolbox import MAX_ARGUMENT_CHARS, Toolbox
from cursorbench.harness.workplace import Folder
from tests.cursorbench.harness.places import unboxed

CODE = "def total(a, b):\n    return a + b\n\n\nprint(total(1, 2))\n"
LINT = (sys.executable, "-c", "import sys; print(f'{sys.argv[1]}:2:5: E1 bad'); sys.exit(1)", "{path}")


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "shop.py").write_text(CODE)
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("Total is a sum.\n")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def box(root):
    return unboxed(root, lint=(LINT,))[0]


@pytest.fixture
def plain(root):
    return Toolbox(Folder(root), task_tools(ToolSettings(), commands=False))


def call(box: Toolbox, name: str, **arguments: Any) -> Any:
    text = json.dumps(arguments)
    assert box.check(name, text) == "", "the test's own call does not fit the schema"
    return box.call(name, text)


def test_what_is_offered_depends_on_the_workplace_and_the_settings(box, plain):
    def names(toolbox):
        return [one["function"]["name"] for one in toolbox.definitions]

    assert names(box) == ["read_file", "edit_file", "search", "lint", "run"]
    assert names(plain) == ["read_file", "edit_file", "search"]
    ToolSet(box.definitions)


def test_read_shows_numbers_and_ranges(box, root):
    assert call(box, "read_file", path="notes/a.md").text == "     1\tTotal is a sum."
    some = call(box, "read_file", path="shop.py", start_line=2, end_line=3)
    assert some.text == "     2\t    return a + b\n     3\t\n[lines 2 to 3 of 5]"
    assert call(box, "read_file", path="/work/notes/a.md").ok, "as absolute paths inside"
    assert call(box, "read_file", path="shop.py", start_line=9).error == "arguments"
    assert call(box, "read_file", path="notes").error == "no_file"
    (root / "empty").write_text("")
    assert call(box, "read_file", path="empty").text == "(the file is empty)"
    (root / "bytes").write_bytes(b"\xff\xfe")
    assert call(box, "read_file", path="bytes").error == "no_file"


def test_long_files_say_where_to_go_on(root):
    box = unboxed(root, result_chars=200)[0]
    (root / "long.py").write_text("".join(f"x = {n}\n" for n in range(1000)))
    first = call(box, "read_file", path="long.py").text
    assert first.endswith("[lines 1 to 15 of 1000; go on with start_line 16]")
    assert call(box, "read_file", path="long.py", start_line=16).text.startswith("    16\tx = 15\n")
    (root / "wide.py").write_text("y" * 5000)
    assert "[3000 more characters]" in call(box, "read_file", path="wide.py").text


def test_several_edits_all_or_none(box, root):
    edits = [{"old": "a + b", "new": "a - b"}, {"old": "total", "new": "net", "everywhere": True}]
    result = call(box, "edit_file", path="./shop.py", edits=edits)
    assert result.text == "ok: shop.py changed"
    assert (root / "shop.py").read_text() == CODE.replace("a + b", "a - b").replace("total", "net")
    assert (result.edit.path, result.edit.before) == ("shop.py", CODE)
    before = (root / "shop.py").read_text()
    bad = [{"old": "net", "new": "sum", "everywhere": True}, {"old": "nowhere", "new": ""}]
    result = call(box, "edit_file", path="shop.py", edits=bad)
    assert (result.error, result.text) == ("not_found", "error: edit 2 of 2: old text not found")
    assert call(box, "edit_file", path="shop.py", edits=[{"old": "net", "new": "x"}]).error == "ambiguous"
    there_and_back = [{"old": "a - b", "new": "b"}, {"old": "return b", "new": "return a - b"}]
    assert call(box, "edit_file", path="shop.py", edits=there_and_back).error == "no_change"
    assert (root / "shop.py").read_text() == before


def test_new_files_are_made_and_none_is_overwritten(box, root):
    made = call(box, "edit_file", path="deep/down/new.py", content="x = 1\n")
    assert (made.text, made.edit.before, made.edit.after) == ("ok: deep/down/new.py made", "", "x = 1\n")
    assert (root / "deep/down/new.py").read_text() == "x = 1\n"
    assert call(box, "edit_file", path="shop.py", content="").error == "exists"
    assert call(box, "edit_file", path="notes", content="x").error in {"exists", "not_writable"}
    assert (
        call(box, "edit_file", path="x", content="y", edits=[{"old": "a", "new": "b"}]).error == "arguments"
    )
    assert call(box, "edit_file", path="x").error == "arguments"
    assert (root / "shop.py").read_text() == CODE


def test_line_ends_of_windows_stay(box, root):
    (root / "dos.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    edits = [{"old": "a = 1\nb", "new": "a = 3\nb"}]
    assert call(box, "edit_file", path="dos.py", edits=edits).ok
    assert (root / "dos.py").read_bytes() == b"a = 3\r\nb = 2\r\n"
    (root / "mixed.py").write_bytes(b"a = 1\r\nb = 2\n")
    assert call(box, "edit_file", path="mixed.py", edits=[{"old": "b = 2", "new": "b = 3"}]).ok
    assert (root / "mixed.py").read_bytes() == b"a = 1\r\nb = 3\n"


@pytest.mark.parametrize("program", ["rg", "python"])
@pytest.mark.parametrize("where", ["box", "plain"])
def test_search(where, program, request, root, monkeypatch):
    box = request.getfixturevalue(where)
    if program == "rg" and shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    if program == "python":
        monkeypatch.setattr("cursorbench.harness.searching.RIPGREP", "no-such-program")
    (root / ".git").mkdir()
    (root / ".git" / "x").write_text("total")
    (root / "binary").write_bytes(b"total\0")
    (root / "link.py").symlink_to(root / "shop.py")
    assert call(box, "search", pattern=r"tot[a]l\(").text.splitlines() == [
        "shop.py:1:def total(a, b):",
        "shop.py:5:print(total(1, 2))",
    ]
    assert call(box, "search", pattern="total", ignore_case=True, glob="*.md").text == (
        "notes/a.md:1:Total is a sum."
    )
    assert (
        call(box, "search", pattern="a + b", fixed=True, path="shop.py").text == "shop.py:2:    return a + b"
    )
    assert call(box, "search", pattern="total", path="notes").text == "no match"
    (root / "page.py").write_text("a\n\x0cPAGE = 1\n")
    assert call(box, "search", pattern="PAGE").text == "page.py:2:\x0cPAGE = 1"
    assert call(box, "search", pattern="(").error == "arguments"
    assert call(box, "search", pattern="").error == "arguments"
    assert call(box, "search", pattern="x", path="../..").error == "outside"
    assert call(box, "search", pattern="x", path="nowhere").error == "no_file"
    (root / "many.py").write_text("match\n" * 150)
    assert call(box, "search", pattern="match").text.endswith("[50 more]")


def test_a_search_without_end_is_ended(box, root, monkeypatch):
    monkeypatch.setattr("cursorbench.harness.searching.SEARCH_S", 0.5)
    monkeypatch.setattr("cursorbench.harness.searching.RIPGREP", "no-such-program")
    (root / "a.txt").write_text("a" * 40 + "b")
    result = call(box, "search", pattern="(a+)+$")
    assert (result.error, error_class(result.error)) == ("timeout", ErrorClass.TIME_OUT)


def test_a_search_that_breaks_off_is_no_search_without_a_match(plain, root, monkeypatch):
    monkeypatch.setattr("cursorbench.harness.searching.RIPGREP", "no-such-program")
    monkeypatch.setattr(commands, "_LIMITS", commands._LIMITS.replace("512 * 1024 * 1024", "30 << 20"))
    (root / "big.txt").write_text("y" * 1_000_000)
    result = call(plain, "search", pattern="(?:(y)|z)*nowhere")
    assert result.error == "killed"


def test_lint_lists_places(box):
    result = call(box, "lint", path="shop.py")
    assert result.text == "1 findings\nshop.py:2:5: E1 bad"
    assert call(box, "lint").text == "1 findings\n.:2:5: E1 bad"
    assert call(box, "lint", path="../x").error == "outside"


def test_run(box, root):
    result = call(box, "run", command="echo out; echo err >&2; exit 3")
    assert (result.text, result.error) == ("exit 3\nout\nerr", "failed")
    assert error_class(result.error) is None
    for seconds in (1, 20):  # what a busy machine has not begun within the first
        slow = call(box, "run", command="echo begun; exec sleep 99", timeout_s=seconds)
        if "begun" in slow.text:
            break
    assert (slow.text, slow.error) == (f"error: time-out after {seconds} s\nbegun", "timeout")
    left = box.call("run", json.dumps({"command": "exec sleep 99"}), left_s=0.2)
    assert left.error == "timeout"
    assert call(box, "run", command="  ").error == "arguments"
    assert call(box, "run", command="echo \0").error == "arguments"


def test_long_output_loses_its_middle(root):
    box = unboxed(root, result_chars=100)[0]
    text = call(box, "run", command="seq 1 1000").text
    assert text.startswith("exit 0\n1\n2\n3\n")
    assert text.endswith("\n999\n1000")
    assert "[3792 characters, 968 line ends cut here]" in text


def test_no_command_in_a_plain_folder(root):
    box = Toolbox(Folder(root), task_tools(ToolSettings(lint=(LINT,)), commands=True))
    assert call(box, "run", command="echo hi").error == "not_available"


def test_a_dead_sandbox_is_infrastructure(root):
    box, sandbox = unboxed(root)
    sandbox.dead = True
    for result in (
        call(box, "run", command="echo"),
        call(box, "read_file", path="shop.py"),
        call(box, "edit_file", path="new.py", content="x"),
        call(box, "search", pattern="x"),
    ):
        assert (result.error, error_class(result.error)) == ("sandbox", ErrorClass.PROVIDER_ERROR)


PATHS = ["../secret.txt", "/etc/passwd", "x/../../secret.txt", "\0", "a" * 9999, "\ud800", "/work/../etc"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("where", ["box", "plain"])
def test_no_path_leads_out(where, request, root, path):
    box = request.getfixturevalue(where)
    for result in (
        call(box, "read_file", path=path),
        call(box, "edit_file", path=path, edits=[{"old": "secret", "new": "gone"}]),
        call(box, "edit_file", path=path, content="x"),
        call(box, "search", pattern="secret", path=path),
    ):
        assert result.error in {"outside", "no_file", "not_writable", "arguments"}
        assert "secret" not in result.text
        result.text.encode()
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert sorted(path.name for path in root.parent.iterdir()) == ["secret.txt", "work"]


@pytest.mark.parametrize(
    "arguments",
    ["", "[]", "{", "[" * 100_000, '{"path": 3}', '{"a":' * 5000, '"' + "x" * (MAX_ARGUMENT_CHARS + 1) + '"'],
    ids=str.__len__,
)
@pytest.mark.parametrize("name", ["read_file", "edit_file", "search", "run"])
def test_bad_arguments(box, name, arguments):
    assert box.call(name, arguments).error == "arguments"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["path", "edits", "content", "pattern", "glob", "fixed", "start_line", "end_line", "timeout_s"]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
    deadline=None,
)
@given(
    st.sampled_from(["read_file", "edit_file", "lint"]),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)
def test_no_arguments_raise(box, name, arguments):
    result = box.call(name, json.dumps(arguments))
    assert result.ok == (not result.error)
    result.text.encode()
