"""Hints name the line that the user works on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtrl_cli.lazy import TABLE, load
from rtrl_cli.line import COMMANDS, given, named
from rtrl_cli.main import run
from tests.stages.serving.conftest import StubWorld


def test_commands_get_the_line_that_they_do_not_name() -> None:
    text = "`rtrl ab` says how; `rtrl deploy --promote` or `rtrl rollback`; `rtrl monitor ack 3f --line b`"
    assert named(text, "") == text
    assert named(text, "chat") == (
        "`rtrl ab --line chat` says how; `rtrl deploy --line chat --promote` or `rtrl rollback --line chat`; "
        "`rtrl monitor ack 3f --line b`"
    )
    assert named("`rtrl monitor ack x`, `rtrl status`, run `rtrl abs`", "c") == (
        "`rtrl monitor ack --line c x`, `rtrl status`, run `rtrl abs`"
    )
    assert [given(each.split()) for each in ("ab --line a -q", "ab --line=b", "ab --line", "ab")] == [
        "a", "b", "", "",
    ]  # fmt: skip


def test_they_are_those_that_take_one() -> None:
    takes = [name for name in TABLE if any("--line" in each.opts for each in load(name).params)]
    assert sorted(takes) == sorted(COMMANDS)


def test_a_hint_is_of_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`rtrl rollback` of a hint about line acme, typed as it stood, took back what the main line served."""
    world = StubWorld(tmp_path)
    (world.workspace.root / "rtrl.toml").write_text("[populations.acme]\n")
    root = str(world.workspace.root)
    words = ["deploy", "--offline", "--line", "acme", "--input", world.second.ref, "--json", "-w", root]
    assert run(words) == 3
    told = capsys.readouterr()
    assert f"`rtrl eval --line acme --input {world.second.ref}`" in json.loads(told.out)["error"]["hint"]
    assert f"hint: run `rtrl eval --line acme --input {world.second.ref}`" in told.err
