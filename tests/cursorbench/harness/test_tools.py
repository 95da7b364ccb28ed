"""The harness's tools on real files: what they do, what they refuse, and that nothing leaves the folder."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.harness import commands
from cursorbench.harness.commands import COMMANDS, run_command
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import DEFAULT_TOOLS, MAX_FILE_BYTES, SMALL_TOOLS
from cursorbench.harness.workplace import Folder

CODE = "def total(a, b):\n    return a + b\n"


@pytest.fixture
def box(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "shop.py").write_text(CODE)
    (tmp_path / "secret.txt").write_text("secret")
    return Toolbox(Folder(folder), SMALL_TOOLS)


def call(box, name, **arguments):
    return box.call(name, json.dumps(arguments))


def test_read(box):
    assert call(box, "read_file", path="shop.py").text == CODE


def test_edit_replaces_the_one_place(box, tmp_path):
    result = call(box, "edit_file", path="shop.py", old="a + b", new="a - b")
    assert (result.text, result.ok) == ("ok", True)
    assert result.edit.before == CODE
    assert result.edit.after == "def total(a, b):\n    return a - b\n"
    assert (tmp_path / "work/shop.py").read_text() == result.edit.after


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("a * b", "x", "not_found"),
        ("", "x", "not_found"),
        ("a", "x", "ambiguous"),
        ("a + b", "a + b", "no_change"),
        ("a + b", "\ud800", "arguments"),
    ],
)
def test_edits_that_cannot_be_made_change_nothing(box, tmp_path, old, new, error):
    result = call(box, "edit_file", path="shop.py", old=old, new=new)
    assert result.error == error
    assert result.edit is None
    assert result.text.startswith("error: ")
    assert (tmp_path / "work/shop.py").read_text() == CODE


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "x/../../secret.txt", "link/secret.txt", "out.txt", "\0", "a" * 9999],
)
def test_no_path_leads_out(box, tmp_path, path):
    (tmp_path / "work/link").symlink_to(tmp_path)
    (tmp_path / "work/out.txt").symlink_to(tmp_path / "secret.txt")
    for result in (
        call(box, "read_file", path=path),
        call(box, "edit_file", path=path, old="secret", new="gone"),
    ):
        assert result.error in {"outside", "no_file"}
        assert "secret" not in result.text
    assert "secret" not in call(box, "search", text="secret").text.replace("secret.txt", "")
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_missing_folder_and_large_files(box, tmp_path):
    assert call(box, "read_file", path="none.py").error == "no_file"
    assert call(box, "read_file", path=".").error == "no_file"
    (tmp_path / "work/big.py").write_text("x" * (MAX_FILE_BYTES + 1))
    assert call(box, "read_file", path="big.py").error == "too_large"
    (tmp_path / "work/bin.py").write_bytes(b"\xff\xfe")
    assert call(box, "read_file", path="bin.py").error == "no_file"


def test_search(box):
    assert call(box, "search", text="return").text == "shop.py:2: return a + b"
    assert call(box, "search", text="nothing").text == "no match"
    assert call(box, "search", text="").error == "arguments"


def test_long_results_are_cut(box, tmp_path):
    (tmp_path / "work/long.py").write_text("x = 1\n" * 1000)
    assert call(box, "read_file", path="long.py").text.endswith("[cut]")
    assert call(box, "search", text="x").text.endswith("980 more")


@pytest.mark.parametrize("arguments", ["", "[]", "3", "{", '{"path": 3}', "{}", "[" * 100_000])
@pytest.mark.parametrize("name", ["read_file", "edit_file", "search", "run"])
def test_bad_arguments(box, name, arguments):
    assert box.call(name, arguments).error == "arguments"


def test_unknown_tool(box):
    assert box.call("rm", "{}").error == "unknown_tool"


def test_run_checks_without_executing(box, tmp_path):
    (tmp_path / "work/shop.py").write_text("open('made', 'w')\n")
    assert call(box, "run", command="check").text == "exit 0"
    assert not (tmp_path / "work/made").exists()
    (tmp_path / "work/shop.py").write_text("def f(:\n")
    result = call(box, "run", command="check")
    assert result.error == "failed"
    assert result.text.startswith("exit 1\nshop.py: invalid syntax")


def test_run_knows_its_table_only(box):
    assert call(box, "run", command="list").text == "exit 0\nshop.py"
    assert call(box, "run", command="ls; rm -rf /").error == "arguments"
    enum = DEFAULT_TOOLS[3]["function"]["parameters"]["properties"]["command"]["enum"]
    assert enum == list(COMMANDS)


def test_run_is_limited(tmp_path, monkeypatch):
    def with_body(body):
        vector = (*COMMANDS["check"][:-1], commands.limited(body))
        monkeypatch.setattr(commands, "COMMANDS", {"x": vector})
        return run_command("x", tmp_path)

    assert "MemoryError" in with_body("x = bytearray(2 << 30)").output
    with_body("open('f', 'w').write('x' * 100)")
    assert (tmp_path / "f").stat().st_size == 0
    assert with_body("import os; print(dict(os.environ))").output.count("{") == 1
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.3)
    assert with_body("import time; time.sleep(9)").timed_out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(
    st.sampled_from(["read_file", "edit_file", "search"]),
    st.dictionaries(
        st.sampled_from(["path", "old", "new", "text"]), st.text(max_size=12) | st.integers(), max_size=4
    ),
)
def test_no_arguments_raise(box, name, arguments):
    box.call(name, json.dumps(arguments))
