"""How much of what a line consumed its next state lists."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stages.stage import Artifact
from stages.train.config import TrainConfig
from stages.train.export import _farthest


def artifact(kind: Any, run: str, **meta: Any) -> Artifact:
    return Artifact(kind, f"sha256:{run}", 1, "auto", 0, "", run, meta, Path("/no"))


def test_collect_may_reach_farther_than_training() -> None:
    """Or it would take for figures, once more, what an update took beyond the list."""
    made = {"distill-1": [artifact("interactions", "collect-1", max_lag=20), artifact("line_state", "init")]}
    store: Any = SimpleNamespace(inputs_of=made.__getitem__)
    inputs = {"parent": artifact("checkpoint", "x"), "experience": artifact("experience", "distill-1")}
    assert _farthest(inputs, TrainConfig(max_lag=2), store) == 20
    assert _farthest(inputs, TrainConfig(max_lag=30), store) == 30
    assert _farthest({"parent": inputs["parent"]}, TrainConfig(max_lag=2), store) == 2
