"""The code for TRL in docs/train.md, run as it stands: export, one epoch of TRL, import. Needs TRL."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from stages.linestate import consumed_episodes
from stages.progress import Silent
from stages.runner import run_stage
from stages.train.outside.handover import export_experience
from stages.train.run import STAGE
from tests.stages.train.world import TrainWorld

DOCS = Path(__file__).parents[4] / "docs" / "train.md"


def test_the_code_in_the_docs_trains_what_was_exported(
    world: TrainWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl")
    world.experience(world.episodes(16, turns=2))
    export_experience(
        world.workspace, world.store, "experience@latest", "trl", out=tmp_path / "for-trl",
        parent="checkpoint@live", by="test", progress=Silent(),
    )  # fmt: skip
    code = next(block for block in _python_blocks() if "class Replay(GRPOTrainer)" in block)
    assert "learning_rate=1e-6" in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    names = {"PARENT": str(world.store.resolve(world.live).path)}
    exec(compile(code.replace("1e-6", "1e-3"), str(DOCS), "exec"), names)
    stage = copy.copy(STAGE)
    stage.import_dir, stage.parent = tmp_path / "their-model", world.live
    stage.consumed = ("experience@latest",)
    result = run_stage(world.workspace, world.store, stage)
    assert result.status == "succeeded"
    assert result.metrics["probe_logprob_change"] > 1e-4
    assert len(consumed_episodes(result.outputs["line_state"].path)) == 16


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
