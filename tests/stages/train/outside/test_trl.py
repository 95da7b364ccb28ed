"""The code for TRL in docs/train.md, run as it stands: export, one epoch of TRL, import. Needs TRL."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from stages.progress import Silent
from stages.runner import run_stage
from stages.train.outside.handover import export_experience
from stages.train.run import STAGE
from tests.stages.train.world import TrainWorld
from tests.stages.world import consumed_episodes

DOCS = Path(__file__).parents[4] / "docs" / "train.md"


def test_the_code_in_the_docs_trains_what_was_exported(
    world: TrainWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl")
    seen = _micro_batches(trl, monkeypatch)
    world.experience(world.episodes(70, turns=2))
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
    assert len(consumed_episodes(result.outputs["line_state"].path)) == 70
    rows = len(names["trainer"].train_dataset)  # type: ignore[attr-defined]
    assert sum(size for size, _ in seen) == rows >= 70
    assert len({tokens for _, tokens in seen}) == 1


def _micro_batches(trl: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Rows and normaliser of every micro-batch from which TRL takes a gradient, in order."""
    seen: list[tuple[int, float]] = []
    compute_loss = trl.GRPOTrainer.compute_loss

    def noted(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        seen.append((len(inputs["prompt_ids"]), float(inputs["num_items_in_batch"])))
        return compute_loss(self, model, inputs, *rest, **named)

    monkeypatch.setattr(trl.GRPOTrainer, "compute_loss", noted)
    return seen


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
