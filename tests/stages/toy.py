"""A stage that writes two small files, for tests of what all stages have in common."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from stages.collect.config import CollectConfig
from stages.linestate import LineState
from stages.registry.store import Store
from stages.stage import Artifact, Kind, Outcome, Output, RunContext
from stages.workspace import Workspace


class Toy:
    """Writes `text` into an `interactions`, and a `report` that refers to it.

    It borrows the name and settings of collect: a stage's settings are a section of the workspace's.
    """

    name = "collect"
    config: type[BaseModel] = CollectConfig
    takes: tuple[Kind, ...] = get_args(Kind)

    def __init__(
        self,
        text: str = "hello",
        status: str = "succeeded",
        error: BaseException | None = None,
        inputs: Mapping[str, Artifact] | None = None,
        during: Callable[[RunContext], None] | None = None,
    ) -> None:
        self.text, self.status, self.error, self.during = text, status, error, during
        self.inputs = dict(inputs or {})
        self.runs = 0
        self.warned = f"{status} for a reason"

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """The inputs it was made with, and those the user named."""
        return {**self.inputs, **{kind: store.resolve(ref) for kind, ref in refs.items()}}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The text decides the result."""
        return {"text": self.text}

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Write, or fail as asked."""
        self.runs += 1
        (ctx.scratch / "seen").write_text("x")
        if self.during:
            self.during(ctx)
        if self.error:
            raise self.error
        for name in ("data", "report"):
            (out_dir / name / "deep").mkdir(parents=True)
            (out_dir / name / "deep" / "text.txt").write_text(f"{name} {extra['text']}")
            (out_dir / name / "seed.txt").write_text(str(ctx.seed))
        outputs = {
            "report": Output("report", {"of": "output:data"}),
            "data": Output("interactions", {"length": len(extra["text"])}),
        }
        metrics = {"length": len(extra["text"])}
        warned = [] if self.status == "succeeded" else [self.warned]
        return Outcome(self.status, outputs, metrics=metrics, warnings=warned)  # type: ignore[arg-type]


def checkpoint(store: Store, folder: Path, text: str, parent: str | None = None) -> Artifact:
    """Publish a checkpoint made of one word, and an empty line state."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text)
    state = folder.with_name(f"{folder.name}-state")
    LineState().save(state)
    published = store.publish_external(
        {
            "checkpoint": (Output("checkpoint", {"parent": parent}), folder),
            "line_state": (Output("line_state", {"checkpoint": "output:checkpoint"}), state),
        },
        line="auto",
    )
    return published["checkpoint"]
