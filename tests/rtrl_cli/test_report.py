"""`rtrl report`: the table, the document, the page, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rtrl_cli.commands.report import _fitting
from rtrl_cli.main import run
from stages.init import init_bare
from stages.workspace import Workspace
from tests.stages.report.reported import SECRET, of_logs


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


Rtrl = Callable[..., Done]


@pytest.fixture
def rtrl(capsys: pytest.CaptureFixture[str]) -> Rtrl:
    def run_it(workspace: Workspace, *arguments: str) -> Done:
        return Done(run(["report", *arguments, "-w", str(workspace.root)]), *capsys.readouterr())

    return run_it


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return of_logs(tmp_path_factory.mktemp("logs"))[0]


def test_the_table_says_what_is_known_and_what_is_not(workspace: Workspace, rtrl: Rtrl) -> None:
    done = rtrl(workspace)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["report", "experience@v1", "of", "line", "auto,", "from", "interactions@v1"]
    followup = next(line for line in lines if line.startswith("Dissatisfied follow-up"))
    assert "48 of 72" in followup
    assert "no edit is told" in next(line for line in lines if line.startswith("Edit persistence"))
    assert "by week" in lines
    assert "repository: shop only" in lines
    assert any(line.startswith("from the gradient  text_only") for line in lines)
    assert SECRET not in done.stdout
    assert "masked in their texts" not in done.stdout
    assert "a cart" not in done.stdout  # the terminal shows no text of anybody


def test_the_table_says_that_it_has_not_all_windows(
    workspace: Workspace, rtrl: Rtrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rtrl(workspace).stdout
    weeks = whole.partition("by week\n")[2].partition("\n\n")[0].splitlines()[1:]
    monkeypatch.setattr("rtrl_cli.commands.report.ON_SCREEN", 1)
    short = rtrl(workspace).stdout
    assert f"by week  ({len(weeks) - 1} earlier ones not shown here)\n" in short
    assert weeks[-1].split()[:2] == short.partition("by week")[2].splitlines()[2].split()[:2]


def test_the_document_has_the_same_figures(workspace: Workspace, rtrl: Rtrl) -> None:
    done = rtrl(workspace, "interactions@v1", "--json", "--by", "work")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert (document["schema"], document["command"], document["status"]) == ("rtrl/1", "report", "succeeded")
    metrics = document["metrics"]
    assert metrics["ref"] == "experience@v1"
    assert metrics["readings"]["dissatisfied_followup"]["n"] == 48
    assert [one["name"] for one in metrics["populations"]] == ["work"]
    assert metrics["best"][0]["state"] == "shown"
    silent = json.loads(rtrl(workspace, "--json", "--no-examples").stdout)["metrics"]
    assert {(one["state"], one["request"]) for one in silent["best"]} == {("withheld", "")}


def test_the_page_is_written_again_and_nothing_else_is_replaced(
    workspace: Workspace, rtrl: Rtrl, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    for _ in range(2):
        done = rtrl(workspace, "--html", str(page))
        assert (done.returncode, done.stderr.strip()) == (0, f"wrote {page}")
    assert page.read_text().startswith("<!doctype html>")
    assert " api_key\n" in done.stdout.partition("masked in their texts: ")[2]
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    done = rtrl(workspace, "--html", str(notes))
    assert (done.returncode, done.stdout, notes.read_text()) == (2, "", "mine")
    assert "is no report" in done.stderr


def test_a_page_in_the_workspace_has_no_users_texts(workspace: Workspace, rtrl: Rtrl) -> None:
    """Backups have it, and `rtrl forget` neither reached nor named it."""
    page = workspace.root / "report.html"
    done = rtrl(workspace, "--html", str(page), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, len(document["warnings"])) == (0, 1)
    assert document["warnings"][0] in done.stderr
    assert rtrl(workspace, "--html", str(page), "-q").stderr == ""  # it is no error
    shown = {one["state"] for one in document["metrics"]["best"]}
    assert shown == {"withheld"}
    assert "Texts were left out." in page.read_text()
    page.unlink()


def test_a_table_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ("AGENT", "EPISODES", "USERS", "ASKS")
    assert _fitting(header, [("aider", 5, 5, "16.2 %")])[1] == []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    wide = (*header, "EDITS", "INVALID TOOL CALLS")
    shown, missing = _fitting(wide, [("aider", 5, 5, "16.2 %", "1.0 %", "0.1 %")])
    assert missing == ["INVALID TOOL CALLS"]
    assert max(map(len, shown.splitlines())) <= 40
    untold = (*header[:3], "EDIT PERSISTENCE", "ASKS")  # what is told has the place
    shown, missing = _fitting(untold, [("aider", 5, 5, "-", "1.0 %")])
    assert (missing, shown.splitlines()[1].split()[3:]) == (["EDIT PERSISTENCE"], ["1.0", "%"])
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((10, 24)))
    assert _fitting(wide, [("aider", 5, 5, "16.2 %", "1.0 %", "0.1 %")])[1] == ["EDITS", "INVALID TOOL CALLS"]


def test_exit_codes(workspace: Workspace, rtrl: Rtrl, tmp_path: Path) -> None:
    assert rtrl(workspace, "--by", "user").returncode == 2
    assert rtrl(workspace, "experience@v7").returncode == 5
    empty = rtrl(init_bare(tmp_path / "empty"), "--json")
    assert empty.returncode == 5
    assert "rtrl distill" in json.loads(empty.stdout)["error"]["hint"]
