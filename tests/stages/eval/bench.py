"""A workspace for `rtrl eval` with an engine of shares instead of weights."""

from __future__ import annotations

import json
from pathlib import Path

from stages.eval.known import conditions, surroundings
from stages.eval.run import EvalStage
from stages.eval.stub import FILE, StubEngine
from stages.registry.store import Store
from stages.runner import run_stage
from stages.stage import Artifact, Output
from stages.workspace import Workspace

SETTINGS = """
[eval]
suites = ["harness"]
requests = 240
"""
STEADY = ['eval.margins={"harness.invalid_calls": 0.2, "harness.dissatisfied_followup": 0.2}']


class Bench:
    """A workspace with a live checkpoint, and what a test does in it."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace.create(root / "w", SETTINGS)
        self.store = Store.open(self.workspace.store_dir)
        self.root = root
        self.engines: list[StubEngine] = []
        self.stage = EvalStage(engine=self._start)
        self.live = self.checkpoint(0.1, 0.2)
        for alias in ("anchor", "live"):
            self.store.move_alias("auto", alias, self.live.digest, reason="test")

    def _start(self, workspace: Workspace, folder: Path) -> StubEngine:
        self.engines.append(StubEngine(folder))
        return self.engines[-1]

    def checkpoint(self, broken: float, ask: float, parent: str | None = None) -> Artifact:
        folder = self.root / "made"
        folder.mkdir(exist_ok=True)
        (folder / FILE).write_text(json.dumps({"broken": broken, "ask": ask, "parent": parent}))
        meta = {"parent": parent}
        made = self.store.publish_external(
            {"checkpoint": (Output("checkpoint", meta), folder)},
            line="auto",
            stage="init",
            config={},
            seed=0,
        )
        return made["checkpoint"]

    def eval(self, overrides: list[str] | None = None, **refs: str):  # type: ignore[no-untyped-def]
        return run_stage(self.workspace, self.store, self.stage, refs, overrides or [])


def under(workspace: Workspace) -> str:
    """The conditions of an eval that would begin now."""
    return conditions(workspace.settings.eval, surroundings(workspace, workspace.settings.eval))


def cases(report: Artifact, role: str) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_table(report.path / f"harness.{role}.parquet").num_rows)
