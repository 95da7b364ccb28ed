"""`rtrl serve` on a spool that is older than the registry: the way out that `collect` names."""

from __future__ import annotations

import pytest

from stages.collect.run import CollectStage
from stages.errors import IntegrityError
from stages.registry import counted
from stages.runner import run_stage
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.stage import Output
from tests.stages.serving.conftest import StubWorld

NOW = ("collect.horizon_s=0.001", "collect.grace_s=0", "collect.min_episodes=1")


def test_a_start_numbers_on_and_nothing_is_passed_over(idle: StubWorld) -> None:
    """Two requests before anybody knew, two after a start: all four are collected.

    The numbers after the start begin a gap behind what is settled: a disk that comes back has those before.
    """

    def served() -> list[str]:
        said: list[str] = []
        start_detached(idle.workspace, say=said.append)
        for text in ("one", "two"):
            assert idle.ask(text).status_code == 200
        stop(idle.workspace)
        return [line for line in said if "older than the registry" in line]

    assert served() == []
    folder = idle.root / "settled"
    folder.mkdir()
    (folder / "f").write_text("x")
    meta = {"checkpoint": idle.first.digest, "window": {"resume_seq": 1001}}
    idle.store.publish_external({"x": (Output("interactions", meta), folder)}, line="auto")
    with pytest.raises(IntegrityError) as refused:
        run_stage(idle.workspace, idle.store, CollectStage(), (), NOW)
    assert "start `rtrl serve` (again)" in refused.value.hint

    [said] = served()
    assert "ends with record 2, and the registry has done with all up to record 1000" in said
    spool = Spool.open(idle.workspace.spool_dir)
    new = [counted.GAP + n for n in (1001, 1002)]
    assert [seq for seq, *_ in spool.generations(0, 1 << 60)] == [1, 2, *new]
    spool.close()
    made = run_stage(idle.workspace, idle.store, CollectStage(), (), NOW)
    assert made.outputs["interactions"].meta["counts"]["generations"] == 4
