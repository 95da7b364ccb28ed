"""One turn of the product's own stages: collect, distill, train, and eval where there is a gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cursorbench.harness.chat import ChatRequest
from experimenting.edge import Engine
from experimenting.monitored import recorded
from experimenting.setup import Setup
from experimenting.without import without
from stages.eval.subjects import ChatEngine

if TYPE_CHECKING:
    from evals.suites.base import TextRequest
    from stages.registry.store import Store
    from stages.result import StageResult
    from stages.stage import Stage
    from stages.workspace import Workspace


class LoadingEngine(Engine, ChatEngine, Protocol):
    """What lives the days and, where there is a gate, what `eval` asks."""


def learn(
    workspace: Workspace,
    store: Store,
    setup: Setup,
    engine: LoadingEngine,
    timed: Callable[[str], Any],
    cycle: Path,
) -> tuple[dict[str, StageResult], str]:
    """Results by stage; and why no new checkpoint goes live, "" when one does.

    Without a gate only a day that teaches nothing leaves the checkpoint as it is: a policy that a bad reward
    has emptied gets the same reward for all it does.

    `cycle` is where what the monitors are told is written.
    """
    from cursorbench.errors import RtrlError
    from stages.collect.run import STAGE as COLLECT
    from stages.distill.run import STAGE as DISTILL
    from stages.errors import InconclusiveError
    from stages.eval.run import EvalStage
    from stages.runner import run_stage
    from stages.train.run import STAGE as TRAIN

    gate = EvalStage(lambda _, folder: _Lent(engine, folder))
    results: dict[str, StageResult] = {}
    refs: list[str] = []
    stages: list[Stage] = [COLLECT, DISTILL, TRAIN, *([gate] if setup.gate else [])]
    for stage in stages:
        try:
            with timed(stage.name), without(setup.without if stage is TRAIN else ""), recorded(cycle):
                result = run_stage(workspace, store, stage, refs, seed=setup.seed)
        except RtrlError as error:
            empty = stage is TRAIN and isinstance(error, InconclusiveError)
            if not empty and (not setup.gate or stage not in (TRAIN, gate)):
                raise
            return results, f"{stage.name}: {error.message}"
        results[stage.name] = result
        if stage is gate and result.status != "succeeded":
            return results, f"gate: {result.status}: {'; '.join(result.warnings)}"
        named = ("interactions", "experience", "checkpoint")
        refs = [result.outputs[name].digest for name in named if name in result.outputs]
    return results, ""


@dataclass
class _Lent:
    """The chain's engine in the hands of `eval`, which may not close it."""

    engine: LoadingEngine
    checkpoint_dir: Path

    def __post_init__(self) -> None:
        self.load_weights(self.checkpoint_dir)

    @property
    def context(self) -> int:
        return self.engine.context

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        return self.engine.chat(batch, seed=seed)

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        return self.engine.ranked(sequences)

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        return self.engine.continued(requests)

    def load_weights(self, checkpoint_dir: Path) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.engine.load_weights(checkpoint_dir)

    def close(self) -> None:
        """It is used again."""
