"""Commands that were killed and run again. Each test is a bug that was there, or must never be."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.registry.glance import glance
from tests.e2e.tiny import write_checkpoint
from tests.e2e.workspaces import rtrl


@pytest.mark.parametrize(
    "point", ["publish.parent.fsync.after", "keys.rename.after", "workspace.rename.before"]
)
def test_init_goes_on_where_it_was_killed_and_clears_up(tmp_path: Path, point: str) -> None:
    model = write_checkpoint(tmp_path / "model", seed=0)
    command = ("init", str(tmp_path / "w"), "--model", str(model))
    assert rtrl(tmp_path, *command, RTRL_FAULT=point).code == -9
    again = rtrl(tmp_path, *command)
    assert again.code == 0, again.err
    seen = glance(tmp_path / "w" / "store")
    assert seen["running"] == []
    assert seen["unfinished"] == {"writing": 0, "to_remove": 0}
    assert list((tmp_path / "w" / "store" / "tmp").iterdir()) == []
    assert seen["lines"][0]["live"]["ref"] == seen["lines"][0]["anchor"]["ref"]
