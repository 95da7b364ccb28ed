"""Distributions that were cut within rounding of an id, on either side of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stages.errors import IntegrityError
from stages.records import Sampling
from stages.train.edges import MOVED, _moved
from stages.train.sampling import Processing, processed_logits
from tests.stages.train.world import TrainWorld, Turn

EDGE = 3  # the fourth likeliest id lies on the threshold


def on_the_edge(world: TrainWorld, turn: Turn, kind: str, moved: float) -> Turn:
    """An answer of one token: recorded `moved` (relative) on one side of the id, cut as far on the other."""
    with torch.no_grad():
        logits = world.model(world.live)(torch.tensor([turn.prompt])).logits[0, -1:]
    shares, ids = logits.double().softmax(-1)[0].sort(descending=True)
    if kind == "min_p":
        edge = float(shares[EDGE] / shares[0])
        recorded, engine = Sampling(min_p=edge * (1 - moved)), Sampling(min_p=edge * (1 + moved))
    else:
        edge = float(shares[EDGE:].sum())
        recorded, engine = Sampling(top_p=1 - edge * (1 - moved)), Sampling(top_p=1 - edge * (1 + moved))
    logp = processed_logits(logits, Processing.of([engine])).log_softmax(-1)[0, ids[0]]
    output = ids[:1].numpy().astype(np.int32)
    return Turn(turn.prompt, output, np.array([float(logp)], np.float32), turn.checkpoint, recorded)


def edges(world: TrainWorld, kind: str, moved: float) -> int:
    """How many tokens of a run were cut on the edge; one of its answers is."""
    told = world.episodes(30)
    told[0].turns = [on_the_edge(world, told[0].turns[0], kind, moved)]
    world.experience(told)
    (figures,) = world.train().metrics["proof"].values()
    assert figures["largest"] < 1e-4
    return int(figures["edges"])


@pytest.mark.parametrize(("kind", "moved"), [("min_p", -4e-6), ("top_p", 4e-6)])
def test_the_log_says_on_which_side_of_the_edge_the_engine_cut(
    world: TrainWorld, kind: str, moved: float
) -> None:
    assert edges(world, kind, moved) == 1


def test_what_is_cut_off_is_moved_by_hand() -> None:
    closer = _moved(1 - MOVED)
    assert closer(Sampling(top_p=0.8)).top_p == pytest.approx(0.8 + 0.2 * MOVED, abs=1e-9)
    assert closer(Sampling(top_p=0.99)).top_p == pytest.approx(0.99 + 0.1 * MOVED, abs=1e-9)  # see there
    assert closer(Sampling(min_p=0.3)) == Sampling(min_p=0.3 * (1 - MOVED))


def test_further_away_it_is_another_threshold(world: TrainWorld) -> None:
    with pytest.raises(IntegrityError, match="proof"):
        edges(world, "min_p", -1e-3)
