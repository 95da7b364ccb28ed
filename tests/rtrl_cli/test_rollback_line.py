"""A rollback of a population's line leaves the main line's users where they are."""

from __future__ import annotations

from typing import Any

import pytest

from rtrl_cli.commands import rollback
from stages.rollback import first


@pytest.mark.parametrize(("line", "moves"), [(None, True), ("acme", False)])
def test_only_a_plain_rollback_moves_the_main_line_first(
    monkeypatch: pytest.MonkeyPatch, line: str | None, moves: bool
) -> None:
    told: dict[str, Any] = {}

    def move_first(*_: object) -> None:
        told["moved"] = True

    def run_command(_: str, flags: Any, **__: object) -> None:
        told["overrides"] = flags.overrides

    monkeypatch.setattr(first, "move_first", move_first)
    monkeypatch.setattr(rollback, "run_command", run_command)
    rollback.command(line=line)
    assert told.get("moved", False) == moves
    assert told["overrides"] == ([f"workspace.line={line}"] if line else [])
