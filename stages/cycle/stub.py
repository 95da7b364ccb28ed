"""Stages that do in milliseconds what the real ones do in minutes: for tests of what runs the chain.

Each reads what its real namesake reads and publishes an artifact of the same kind with a few bytes in
it; deploy moves the alias. No data, no model: never for a figure anybody reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from stages.collect.config import CollectConfig
from stages.deploy.config import DeployConfig
from stages.distill.config import DistillConfig
from stages.errors import InputMissingError
from stages.eval.config import EvalConfig
from stages.stage import Artifact, Kind, Outcome, Output, RunContext
from stages.train.config import TrainConfig

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

Status = Literal["succeeded", "rejected", "inconclusive"]


@dataclass
class StubStage:
    """One stage.

    Attributes:
        reads: kind of artifact it needs, "" for none.
        makes: kind of artifact it publishes, "" for none.
        verdict: how it ends.
        use: stands for the spool: with another number there is something new to collect.
        before: called within the run; may raise, sleep or kill.
        runs: how often its work was done.
    """

    name: str
    config: type[BaseModel]
    reads: str
    makes: str
    verdict: Status = "succeeded"
    use: int = 0
    before: Callable[[], None] = field(default=lambda: None)
    runs: int = 0

    @property
    def takes(self) -> tuple[Kind, ...]:
        """What it reads."""
        return (self.reads,) if self.reads else ()  # type: ignore[return-value]

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """The live checkpoint, and the artifact that was named or the newest."""
        line = workspace.settings.workspace.line
        live = store.alias(line, "live")
        if live is None:
            raise InputMissingError("nothing is live", hint="rtrl init")
        found = {"live": live}
        if self.reads:
            found[self.reads] = store.resolve(refs.get(self.reads, f"{self.reads}@latest"), line)
        return found

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """How far the spool has grown."""
        return {"use": self.use}

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Write what was read, or move the alias."""
        self.runs += 1
        ctx.progress.start(self.name)
        self.before()
        if self.name == "deploy":
            _deploy(ctx, inputs["checkpoint"])
            return Outcome(metrics={"at": time.time()})
        folder = out_dir / self.makes
        folder.mkdir(parents=True)
        read = sorted(artifact.digest for artifact in inputs.values())
        (folder / "read.txt").write_text("\n".join([self.name, str(extra["use"]), *read]))
        meta = {"parent": inputs["live"].digest} if self.makes == "checkpoint" else {}
        kind: Kind = self.makes  # type: ignore[assignment]
        return Outcome(self.verdict, {self.makes: Output(kind, meta)})


def _deploy(ctx: RunContext, checkpoint: Artifact) -> None:
    line = ctx.workspace.settings.workspace.line
    live = ctx.store.alias(line, "live")
    if live is None or live.digest != checkpoint.digest:
        ctx.store.move_alias(line, "live", checkpoint.digest, reason="stub")


def chain() -> dict[str, StubStage]:
    """The five stages of a cycle."""
    stages = (
        StubStage("collect", CollectConfig, "", "interactions"),
        StubStage("distill", DistillConfig, "interactions", "experience"),
        StubStage("train", TrainConfig, "experience", "checkpoint"),
        StubStage("eval", EvalConfig, "checkpoint", "report"),
        StubStage("deploy", DeployConfig, "checkpoint", ""),
    )
    return {stage.name: stage for stage in stages}
