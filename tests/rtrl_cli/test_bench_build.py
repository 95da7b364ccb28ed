"""`rtrl bench build` on the command line: what it prints, and how it fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rtrl_cli.main import run
from tests.cursorbench.history.gits import HOUR, Git


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_what_makes_no_task_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git = Git(tmp_path / "repo")
    git.commit(0, {"a.py": "a = 1\n"})
    told = git.commit(
        HOUR,
        {"a.py": "a = 2\nb = 3\n", "tests/test_a.py": "import a\n\n\ndef test_a():\n    assert a.b\n"},
        "b",
    )
    arguments = [
        "bench",
        "build",
        "--repo",
        f"{git.folder}",
        "--out",
        f"{tmp_path / 'suite'}",
        "--environment",
        "host",
    ]
    arguments += ["--name", "me/a", "--quiet"]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"]) == ("bench build", "succeeded")
    assert document["outputs"] == {"suite": {"path": str(tmp_path / "suite"), "tasks": []}}
    assert document["metrics"]["rejected"] == {"no_instruction": 1}
    assert document["metrics"]["rejects"][0]["commit"] == told
    assert document["metrics"]["passed_over"] == {"root": 1}
    assert document["warnings"] == ["no candidate made a task; the reasons are in rejects.json"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "0 of 1 candidates" in shown
    assert f"{told[:10]}  no_instruction" in shown


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_sessions_of_another_history_are_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said that no commit changes source and tests, of a history in which one does."""
    git = Git(tmp_path / "repo")
    git.commit(0, {"a.py": "a = 1\n"})
    git.commit(HOUR, {"a.py": "a = 2\nb = 3\n", "tests/test_a.py": "import a\n"}, "b of the other")
    (tmp_path / "logs").mkdir()
    arguments = ["bench", "build", "--repo", f"{git.folder}", "--out", f"{tmp_path / 'suite'}"]
    arguments += ["--environment", "host", "--sessions", f"{tmp_path / 'logs'}", "--json", "--quiet"]
    assert run(arguments) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("no session is traced to a commit of this history")


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--repo", "nowhere"], 5, "nowhere is not there"),
        (["--repo", ".", "--test-command", "make"], 2, "no {report}"),
        (["--repo", ".", "--since", "some day"], 2, "is no date"),
        (["--repo", ".", "--environment", "docker"], 2, "docker"),
        (["--repo", ".", "--python", "9.9"], 2, "--python: '9.9' is no version"),
        (["--repo", ".", "--lock", "TMP/binary"], 12, "binary is no text"),
        (["--repo", ".", "--lock", "TMP/empty"], 12, "empty is empty"),
        (
            ["--repo", ".", "--lock", "TMP/unlocked"],
            12,
            "unlocked: 'pytest' is not NAME==VERSION with a hash",
        ),
    ],
)
def test_what_cannot_be(
    more: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "unlocked").write_bytes(b"pytest\n")
    more = [word.replace("TMP", f"{tmp_path}") for word in more]
    assert run(["bench", "build", "--out", f"{tmp_path / 'suite'}", *more]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "suite").exists()
