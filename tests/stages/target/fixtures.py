"""A line with three checkpoints a, b, c (each the child of the one before; a is live), and a gateway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.deploy.run import DeployStage
from stages.linestate import LineState
from stages.registry.store import Store
from stages.result import StageResult
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.stage import Artifact, Output
from stages.workspace import Workspace
from tests.stages.target.double import GatewayDouble


class Line:
    """The workspace, its checkpoints, and what is served."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace(root / "ws")
        self.store = Store.open(self.workspace.store_dir)
        self.a, self.b, self.c = (self.store.resolve(f"checkpoint@v{n}") for n in (1, 2, 3))
        self.gateway = GatewayDouble(self.workspace, self.a)

    @classmethod
    def prepare(cls, root: Path) -> None:
        """Make the workspace that tests get copies of."""
        made = cls.__new__(cls)
        made.root, made.workspace = root, Workspace.create(root / "ws", "")
        made.store = Store.open(made.workspace.store_dir)
        a = made.checkpoint("a", None)
        made.checkpoint("c", made.checkpoint("b", a.digest).digest)
        made.store.move_alias("auto", "live", a.digest, reason="init", by="test")

    def checkpoint(self, name: str, parent: str | None) -> Artifact:
        source = self.root / name
        (source / "hf").mkdir(parents=True)
        (source / "hf" / "config.json").write_text(f'{{"name": "{name}"}}')
        LineState().save(source / "state")
        outputs = {
            "checkpoint": (Output("checkpoint", {"parent": parent}), source / "hf"),
            "line_state": (
                Output("line_state", {"checkpoint": "output:checkpoint", "stage": "train"}),
                source / "state",
            ),
        }
        return self.store.publish_external(outputs, line="auto")["checkpoint"]

    def report(
        self, candidate: Artifact, baseline: Artifact, verdict: str = "pass", **config: Any
    ) -> Artifact:
        source = self.root / f"report-{len(list(self.root.glob('report-*')))}"
        source.mkdir()
        (source / "report.json").write_text(f'"{source.name}"')
        meta = {"verdict": verdict, "candidate": candidate.digest, "baseline": baseline.digest}
        outputs = {"report": (Output("report", meta), source)}
        return self.store.publish_external(outputs, line="auto", stage="eval", config=config)["report"]

    def deploy(self, *refs: str, **flags: Any) -> StageResult:
        return run_stage(self.workspace, self.store, DeployStage(**flags), refs)

    def rollback(self, *refs: str, **flags: Any) -> StageResult:
        return run_stage(self.workspace, self.store, RollbackStage(**flags), refs, lock_timeout=0)

    @property
    def live(self) -> str:
        """Digest of the alias."""
        found = self.store.alias("auto", "live")
        assert found is not None
        return found.digest

    @property
    def served(self) -> str:
        """Digest that the gateway serves."""
        return str(self.gateway.served["checkpoint"])

    def states(self) -> list[str]:
        """States of all deployments, oldest first."""
        return [d.state for d in reversed(self.store.deployments.history("auto"))]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("line")
    Line.prepare(root)
    return root


@pytest.fixture
def line(prepared: Path, tmp_path: Path) -> Iterator[Line]:
    shutil.copytree(prepared / "ws", tmp_path / "ws")
    made = Line(tmp_path)
    yield made
    made.gateway.close()
