"""`rtrl collect PATH` as a person sees it: paths that are none, and names from their own data."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from rtrl_cli.commands.collect import _text
from rtrl_cli.main import run
from stages.init import init_bare
from stages.result import StageResult
from stages.workspace import Workspace
from tests.cursorbench.history.gits import Git
from tests.stages.collect.logs.openai_logs import log_of


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return init_bare(tmp_path / "ws")


def test_an_empty_path_is_not_the_current_folder(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    log_of(tmp_path / "logs" / "one.jsonl", "s1", ["add a cart"])
    monkeypatch.chdir(tmp_path / "logs")
    for arguments in ([""], [".", ""], [".", "--repo", ""]):
        assert run(["collect", *arguments, "-w", str(workspace.root)], debug=False) == 2
        assert "empty" in capsys.readouterr().err
    assert run(["collect", ".", "-w", str(workspace.root)], debug=False) == 0


def test_metrics_are_printed_by_the_names_that_a_team_gave_them(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_of(tmp_path / "one.jsonl", "s1", ["add a cart"])
    call = {"metric_name": "task_success", "inference_id": "s1-0", "value": True}
    (tmp_path / "two.jsonl").write_text(json.dumps(call))
    paths = [str(tmp_path / name) for name in ("one.jsonl", "two.jsonl")]
    assert run(["collect", *paths, "-w", str(workspace.root)], debug=False) == 0
    printed = capsys.readouterr().out
    assert "1 task_success" in printed
    assert "user turns" in printed


def test_of_how_many_edits_is_known_what_stands(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "edits": 5, "made_elsewhere": 15, "reasons": {"no commit took it": 2},
        "kept": {
            "1h": {"lines": 1420, "kept": 1065, "rate": 0.75},
            "7d": {"lines": 9, "kept": 0, "rate": 0.0},  # of one edit, of the others not yet known
            "head": {"lines": 0, "kept": 0, "rate": None},
        },
    }  # fmt: skip
    result = StageResult("collect", "succeeded", metrics={"persistence": figures})
    assert _text(result).splitlines()[-2:] == [
        "edits followed  5; 15 of 20 left out, made in folders of other names; 2: no commit took it",
        "stands later    0.75 of 1420 lines after 1h, 0.00 of 9 lines after 7d",
    ]


def test_a_pipe_is_said_to_be_one(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `rtrl collect <(zcat log.gz)`: there was "no file or folder" of that name."""
    os.mkfifo(tmp_path / "log.jsonl")
    assert run(["collect", str(tmp_path / "log.jsonl"), "-w", str(workspace.root)], debug=False) == 2
    assert "is a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("user", ["", "a\nb", "\x00pending", "x" * 201])
def test_a_user_has_a_name_that_the_gateway_would_take(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], user: str
) -> None:
    """Keys that are nobody's have unprintable names in the vault."""
    log_of(tmp_path / "one.jsonl", "s1", ["add a cart"])
    arguments = ["collect", str(tmp_path / "one.jsonl"), "--user", user, "-w", str(workspace.root)]
    assert run(arguments, debug=False) == 2
    assert "--user" in capsys.readouterr().err


def test_what_the_webhook_did_stands_in_the_one_document_of_distill(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told behind the document: whoever interrupted that got a second one, of an error."""
    log_of(tmp_path / "one.jsonl", "s1", ["add a cart", "and a till"])
    where = ["--json", "-w", str(workspace.root)]
    assert run(["collect", str(tmp_path / "one.jsonl"), *where], debug=False) == 0
    capsys.readouterr()
    printed: list[str] = []

    def away(*_: object) -> list[str]:
        printed.append(capsys.readouterr().out)
        return ["the webhook is away"]

    monkeypatch.setattr("rtrl_cli.commands.distill.tell_alarms", away)
    assert run(["distill", *where], debug=False) == 0
    assert printed == [""]
    assert "the webhook is away" in json.loads(capsys.readouterr().out)["warnings"]


def test_what_left_the_logs_since_outlives_a_gc(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/report.md joins Ada's collect with Ben's, also when her agent has deleted her logs by then."""

    def rtrl(*arguments: str) -> str:
        assert run([*arguments, "-w", str(workspace.root)], debug=False) == 0
        return "".join(capsys.readouterr())

    for user, requests in (("ada", ["add a cart", "still broken"]), ("ben", ["add a till"])):
        log_of(tmp_path / f"{user}.jsonl", user, requests)
        rtrl("collect", str(tmp_path / f"{user}.jsonl"), "--user", user)
        rtrl("distill")
    (tmp_path / "ada.jsonl").unlink()
    assert "`--keep-log-days DAYS` lets go of older ones" in rtrl("gc", "--yes", "--keep-days", "0")
    assert "of 2 users" in rtrl("report", "--all")
    assert "interactions@v1" in rtrl("gc", "--yes", "--keep-days", "0", "--keep-log-days", "0")
    assert "of 1 user" in rtrl("report", "--all")


def test_of_a_clone_without_logs_it_is_said_how_to_get_them(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entire's refs and git-ai's notes are in no clone; what was documented wanted both, or got none."""
    origin, clone = Git(tmp_path / "origin"), tmp_path / "a clone"
    origin.commit(0, {"shop.py": "cart = []\n"})
    origin("update-ref", "refs/entire/checkpoints/ab/cdef", "HEAD")
    origin("clone", "-q", str(origin.folder), str(clone))
    assert run(["collect", str(clone), "-w", str(workspace.root)], debug=False) == 4
    hint = capsys.readouterr().err.partition("hint: ")[2]
    command = hint.partition("`")[2].partition("`")[0]
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert "refs/entire/checkpoints/ab/cdef" in origin("-C", str(clone), "for-each-ref")
    assert run(["collect", str(clone), "-w", str(workspace.root)], debug=False) == 4
    assert "--from" in capsys.readouterr().err  # the refs are there, and hold nothing
