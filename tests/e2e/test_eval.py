"""`rtrl eval` with real vLLM and the real lm-eval harness, on two small random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cursorbench.harness.chat import ChatRequest
from evals.suites.base import TextRequest
from stages.engine.inprocess import InProcessEngine
from stages.eval.run import EvalStage
from stages.eval.subjects import ChatEngine
from stages.registry.store import Store
from stages.runner import run_stage
from stages.served_fingerprint import write_fingerprint
from stages.stage import Artifact, Output
from stages.workspace import Workspace
from tests.e2e.tiny import nudge_checkpoint, write_checkpoint

SETTINGS = """
[eval]
requests = 48
lm_eval_limit = 12
rerun_share = 0.25
"""


class OneEngine:
    """The stage's own engine, started once and kept for the next run: a start takes twenty seconds."""

    def __init__(self, started: InProcessEngine) -> None:
        self.started = started

    def __call__(self, workspace: Workspace, folder: Path) -> ChatEngine:
        self.load_weights(folder)
        return self

    @property
    def checkpoint_dir(self) -> Path:
        return self.started.checkpoint_dir

    @checkpoint_dir.setter
    def checkpoint_dir(self, folder: Path) -> None:
        raise NotImplementedError

    def chat(self, batch: list[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        return self.started.chat(batch, seed=seed)

    @property
    def context(self) -> int:
        return self.started.context

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        return self.started.ranked(sequences)

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        return self.started.continued(requests)

    def load_weights(self, checkpoint_dir: Path) -> None:
        if self.started.checkpoint_dir != checkpoint_dir:
            self.started.load_weights(checkpoint_dir)

    def close(self) -> None:
        """What the stage calls at the end of a run."""


def publish(store: Store, folder: Path, parent: str | None) -> Artifact:
    made = store.publish_external(
        {"checkpoint": (Output("checkpoint", {"parent": parent}), folder)},
        line="auto",
        stage="init",
        config={},
        seed=0,
    )
    return made["checkpoint"]


@pytest.mark.vllm
@pytest.mark.slow
def test_two_candidates_against_live(tmp_path: Path, batch: InProcessEngine) -> None:
    workspace = Workspace.create(tmp_path / "w", SETTINGS)
    store = Store.open(workspace.store_dir)
    seed = write_checkpoint(tmp_path / "seed", seed=0)
    write_fingerprint(seed, parent=None)
    live = publish(store, seed, None)
    store.move_alias("auto", "live", live.digest, reason="test")
    candidates = []
    for number in (1, 2):
        child = nudge_checkpoint(seed, tmp_path / f"child{number}", seed=number, step=0.02)
        write_fingerprint(child, parent=seed)
        candidates.append(publish(store, child, live.digest))

    stage = EvalStage(OneEngine(batch))
    first = run_stage(workspace, store, stage, {"checkpoint": candidates[0].digest})
    report = first.outputs["report"]
    assert first.exit_code in (0, 3, 4)
    for name, rows in (("harness", 48), ("snippets", 12)):
        for role in ("candidate", "baseline"):
            table = pq.read_table(report.path / f"{name}.{role}.parquet")
            assert table.num_rows == rows
            assert set(table["failure"].to_pylist()) == {""}
    verdict = json.loads((report.path / "verdict.json").read_text())
    assert {suite["suite"] for suite in verdict["suites"]} == {"harness", "snippets"}
    assert sum(one.as_py() for one in pq.read_table(report.path / "harness.baseline.parquet")["tokens"]) > 48

    second = run_stage(workspace, store, stage, {"checkpoint": candidates[1].digest})
    assert second.inputs["baseline_attempts"].digest == report.digest
    summary = (second.outputs["report"].path / "summary.txt").read_text()
    assert "12 made again agree" in summary  # a quarter of 48: the same engine answers alike
    assert "3 made again agree" in summary
