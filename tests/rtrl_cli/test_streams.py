"""stdout and stderr that are closed, full or nobody's, and paths that the system refuses."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stages.workspace import Workspace
from tests import processes


def shell(workspace: Workspace, command: str) -> subprocess.CompletedProcess[str]:
    """`command` in bash; RTRL stands for the program."""
    line = command.replace("RTRL", f"{shlex.quote(sys.executable)} -m rtrl_cli.main")
    return subprocess.run(
        ["bash", "-c", line],
        cwd=workspace.root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w", "")


@pytest.mark.parametrize("flag", ["", "--json"])
def test_a_closed_stdout_is_no_failure(workspace: Workspace, flag: str) -> None:
    done = shell(workspace, f"RTRL status {flag} >&-")
    assert (done.returncode, done.stderr) == (0, "")
    registry = (workspace.store_dir / "registry.db").read_bytes()
    assert registry.startswith(b"SQLite format 3"), "no file took the place of stdout"


@pytest.mark.parametrize("flag", ["", "--json"])
def test_a_full_stdout_is_one_message(workspace: Workspace, flag: str) -> None:
    done = shell(workspace, f"RTRL status {flag} > /dev/full")
    assert done.returncode == 13
    assert done.stderr.splitlines()[0] == (
        "error: the result cannot be written to stdout: No space left on device"
    )
    assert len(done.stderr.splitlines()) == 2
    assert shell(workspace, "RTRL --help > /dev/full").returncode == 13


@pytest.mark.parametrize("where", [">&-", "> /dev/full", "> >(true)"])
def test_a_stderr_that_takes_nothing_changes_no_status(workspace: Workspace, where: str) -> None:
    done = shell(workspace, f"RTRL show report@v9 --json 2{where}")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, 5)
    assert shell(workspace, f"RTRL show report@v9 2{where} >&-").returncode == 5


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("db backup --to rtrl.toml/x", 2, "rtrl.toml"),
        ("simulate --url http://127.0.0.1:1 --key-file .", 2, "Is a directory"),
        ("init /proc/none --tiny", 2, "/proc/none"),
        ("db backup --to /proc/none", 2, "/proc/"),  # the system's word on the path, and not SQLite's (13)
    ],
)
def test_what_the_system_refuses_is_no_bug(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, command: str, code: int, words: str
) -> None:
    monkeypatch.chdir(workspace.root)
    done = processes.rtrl(*command.split(), "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], words in error["message"]) == (code, code, True), error
    assert error["hint"]
    assert "bug" not in done.stderr


def test_a_failure_names_the_whole_command(workspace: Workspace) -> None:
    env = {"RTRL_WORKSPACE": str(workspace.root)}
    for command, name in {
        "keys -q": "keys",
        "keys revoke nobody": "keys revoke",
        "db check x": "db check",
    }.items():
        assert json.loads(processes.rtrl(*command.split(), "--json", env=env).stdout)["command"] == name


def test_what_the_encoding_of_stdout_lacks_is_escaped(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "grün▁😀", "")
    text = shell(workspace, "PYTHONIOENCODING=ascii RTRL status")
    assert (text.returncode, text.stderr) == (0, "")
    assert "gr\\xfcn\\u2581\\U0001f600" in text.stdout
    done = shell(workspace, "PYTHONIOENCODING=ascii RTRL show report@v1-grün▁😀 --json")
    assert done.returncode == 2
    assert "grün▁😀" in json.loads(done.stdout)["error"]["message"]


def test_a_path_that_is_no_utf8_leaves_the_document_one(workspace: Workspace) -> None:
    done = shell(workspace, "PYTHONIOENCODING=utf-8:strict RTRL status -w $'no-\\xff' --json")
    assert done.returncode == 10
    assert "no-\udcff" in json.loads(done.stdout)["error"]["message"]
    assert "Traceback" not in done.stderr
    told = shell(workspace, "PYTHONIOENCODING=utf-8:strict RTRL db backup --to $'no-\\xff'")
    assert (told.returncode, "no-\\udcff" in told.stdout) == (0, True), told.stderr
    folder = workspace.root.rename(workspace.root.with_name("no-\udcff"))
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    strict["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "rtrl_cli.main", "status"]
    told = subprocess.run(command, cwd=folder, env=strict, capture_output=True, text=True, check=False)
    assert (told.returncode, "Traceback" in told.stderr) == (2, False), told.stderr
    assert "no-\\udcff is no UTF-8" in told.stderr
