"""Hints and warnings name the line that the user works on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtrl_cli.lazy import TABLE, load
from rtrl_cli.main import run
from stages.errors import InputMissingError, UsageError
from stages.line_in_hints import COMMANDS, on_line
from stages.registry.store import Store
from stages.result import result_of
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.serving.conftest import StubWorld
from tests.stages.toy import Toy, checkpoint


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w", "[populations.chat]\n")


def test_commands_get_the_line_that_they_do_not_name(workspace: Workspace) -> None:
    text = "`rtrl ab` says how; `rtrl deploy --promote` or `rtrl rollback`; `rtrl monitor ack 3f --line b`"
    assert on_line(text, workspace) == text
    chat = workspace.on_line("chat")
    assert on_line(text, chat) == (
        "`rtrl ab --line chat` says how; `rtrl deploy --line chat --promote` or `rtrl rollback --line chat`; "
        "`rtrl monitor ack 3f --line b`"
    )
    assert on_line("`rtrl monitor ack x`, `rtrl status`, run `rtrl abs`", chat) == (
        "`rtrl monitor ack --line chat x`, `rtrl status`, run `rtrl abs`"
    )


def test_a_line_is_named_where_the_command_typed_as_it_stands_works_on_another(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired = workspace.with_overrides(["workspace.line=retired"])  # no population any more
    assert on_line("`rtrl ab`", retired) == "`rtrl ab --line retired`"
    monkeypatch.setenv("RTRL_WORKSPACE__LINE", "chat")  # of a service, and of no shell
    assert on_line("`rtrl ab`", Workspace(workspace.root)) == "`rtrl ab --line chat`"
    wrong = workspace.with_overrides(["train.nonsense=1"])
    assert on_line("`rtrl ab`", wrong) == "`rtrl ab`", "it is told that of the setting"


def test_they_are_those_that_take_one() -> None:
    takes = [name for name in TABLE if any("--line" in each.opts for each in load(name).params)]
    assert sorted(takes) == sorted(COMMANDS)


def test_warnings_and_what_is_on_record_name_it_too(workspace: Workspace, tmp_path: Path) -> None:
    """A population's alarm, acknowledged as its warning said, was looked for on the main line."""
    chat, store = workspace.on_line("chat"), Store.open(workspace.store_dir)
    store.move_alias("chat", "live", checkpoint(store, tmp_path / "c", "one").digest, reason="test")
    toy = Toy(status="rejected")
    toy.warned = "the gate waits for `rtrl monitor ack 3f`"
    result = run_stage(chat, store, toy)
    assert result.warnings == ["the gate waits for `rtrl monitor ack --line chat 3f`"]
    assert run_stage(chat, store, toy).warnings == result.warnings
    with pytest.raises(UsageError) as caught:
        run_stage(chat, store, Toy("other", error=UsageError("no", hint="`rtrl rollback`")))
    assert caught.value.hint == "`rtrl rollback --line chat`"
    failed = result_of(caught.value)
    assert failed is not None
    assert json.loads(store.run(str(failed.run_id)).error)["hint"] == caught.value.hint


def test_a_hint_is_of_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`rtrl rollback` of a hint about line acme, typed as it stood, took back what the main line served."""
    world = StubWorld(tmp_path)
    (world.workspace.root / "rtrl.toml").write_text("[populations.acme]\n")
    root = str(world.workspace.root)
    for flag in (["--line", "acme"], ["--line=acme"]):
        words = ["deploy", "--offline", *flag, "--input", world.second.ref, "--json", "-w", root]
        assert run(words) == 3
        told = capsys.readouterr()
        assert f"`rtrl eval --line acme --input {world.second.ref}`" in json.loads(told.out)["error"]["hint"]
        assert f"hint: run `rtrl eval --line acme --input {world.second.ref}`" in told.err
    assert run(["monitor", "ack", "zz", "--reason", "x", "--line", "acme", "-w", root]) == 5
    assert "hint: `rtrl monitor --line acme` lists them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["train"],
        ["train", "--explain", "e1"],
        ["distill", "--dry-run"],
        ["export", "experience@latest", "--to", "trl"],
        ["show", "checkpoint@live"],
        ["lineage", "checkpoint@live"],
        ["report"],
        ["anchor", "checkpoint@v1", "--reason", "x"],
        ["monitor", "ack", "zz", "--reason", "x"],
    ],
)
def test_a_misspelt_line_is_told_with_what_was_meant(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = StubWorld(tmp_path)
    (world.workspace.root / "rtrl.toml").write_text("[populations.acme]\n")
    assert run([*words, "--line", "acne", "-w", str(world.workspace.root)]) == InputMissingError.code
    err = capsys.readouterr().err
    assert "error: nothing was ever deployed on line 'acne'" in err
    assert "hint: did you mean 'acme'? lines here: acme, auto" in err


def test_a_line_of_session_logs_alone_is_one(tmp_path: Path) -> None:
    world = StubWorld(tmp_path)
    run_stage(world.workspace.on_line("logs"), Store.open(world.workspace.store_dir), Toy())
    root = str(world.workspace.root)
    assert run(["show", "interactions@latest", "--line", "logs", "-w", root]) == 0
