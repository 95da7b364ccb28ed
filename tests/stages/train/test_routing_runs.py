"""Runs on a mixture-of-experts model whose engine routes as it likes: replayed, told, refused, resumed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages import modelio
from stages.errors import IntegrityError
from stages.progress import Silent
from stages.train import attention
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.moments import NEW
from stages.train.routing import routers
from stages.train.update import TokenData, run_update
from tests.stages.train.moe import TOP_K, choice, forced, moe_model
from tests.stages.train.test_update import Quiet
from tests.stages.train.world import Told, TrainWorld

DECISIONS = 2 * TOP_K  # of a token: two layers have experts


def told(world: TrainWorld, count: int, *, seed: int = 0, turns: int = 1, prefix: str = "e") -> list[Told]:
    """Episodes of an engine whose routers choose by position."""
    with forced(world.model(world.live)):
        episodes = world.episodes(count, seed=seed, turns=turns, prefix=prefix, engine="forced")
    for episode in episodes:
        for turn in episode.turns:
            turn.experts = choice(len(turn.prompt) + len(turn.output) - 1)
    return episodes


@pytest.fixture(scope="module")
def _with_experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = TrainWorld(tmp_path_factory.mktemp("experts") / "world")
    world.promote(world.checkpoint(0, model=moe_model(0)).digest)
    world.store.move_alias("auto", "anchor", world.live, reason="test", by="test")
    return world.root


@pytest.fixture
def moe_world(_with_experts: Path, tmp_path: Path) -> TrainWorld:
    """A workspace whose live checkpoint has experts, copied from one that is made once."""
    return TrainWorld(Path(shutil.copytree(_with_experts, tmp_path / "world")))


def lines(world: TrainWorld, run_id: str, event: str) -> list[dict[str, Any]]:
    import json

    text = (world.workspace.store_dir / "logs" / f"{run_id}.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]


def test_a_run_replays_and_says_how_much_differed(moe_world: TrainWorld) -> None:
    episodes = told(moe_world, 12, turns=2)
    moe_world.experience(episodes)
    result = moe_world.train()
    (proof,) = result.metrics["proof"].values()
    assert proof["mean"] < 1e-5, "the engine's experts, the engine's logprobs"
    assert result.metrics["batch"]["sequences"] == 12
    found = result.metrics["routing"]
    inputs = sum(len(e.turns[-1].prompt) + len(e.turns[-1].output) - 1 for e in episodes)
    assert (found["sequences"], found["replayed_sequences"]) == (12, 12)
    assert (found["tokens"], found["replayed_tokens"]) == (inputs, inputs)
    assert found["decisions"] <= inputs * DECISIONS, "shared beginnings are computed once"
    assert 0.2 < found["differed"] / found["decisions"] < 0.95
    assert not [text for text in result.warnings if "routing" in text]
    (line,) = lines(moe_world, result.run_id, "train.routing")
    assert line["differed"] == found["differed"]
    steps = result.metrics["optimizer_steps"]
    assert steps[0]["ess"] == pytest.approx(1.0, abs=1e-4)
    assert all(0 < step["routing_differed"] < step["routing_decisions"] for step in steps)

    # gates and experts have moved; the checkpoint is in the layout it came in and loads elsewhere
    before, after = modelio.tensors(moe_world.store.resolve(moe_world.live).path), moe_world.weights(result)
    moved = {name for name, value in before if not torch.equal(value, after[name])}
    assert "model.layers.1.mlp.gate.weight" in moved
    assert "model.layers.2.mlp.experts.5.down_proj.weight" in moved
    child = modelio.load_model(moe_world.store.checkpoint_folder(result.outputs["checkpoint"]))
    assert len(routers(child)) == 2


def test_cut_over_processes_and_in_bfloat16_it_replays_as_well(moe_world: TrainWorld) -> None:
    """One process takes the path of many (FSDP2) when it computes in bfloat16."""
    moe_world.experience(told(moe_world, 12))
    exact = moe_world.train()
    rounded = moe_world.train("train.compute_dtype=bfloat16")
    for name in ("tokens", "replayed_tokens", "decisions"):
        assert rounded.metrics["routing"][name] == exact.metrics["routing"][name]
    (proof,) = rounded.metrics["proof"].values()
    assert 1e-5 < proof["mean"] < 0.05
    before = dict(modelio.tensors(moe_world.store.checkpoint_folder(moe_world.store.resolve(moe_world.live))))
    moved = moe_world.weights(rounded)
    assert not torch.equal(moved["model.layers.1.mlp.gate.weight"], before["model.layers.1.mlp.gate.weight"])


def test_without_replay_the_proof_fails(moe_world: TrainWorld) -> None:
    moe_world.experience(told(moe_world, 12))
    with pytest.raises(IntegrityError, match=r"on-policy proof.*routing was not replayed"):
        moe_world.train("train.router_replay=false")


def test_routing_that_is_not_told_is_said_not_to_be_replayed(moe_world: TrainWorld) -> None:
    moe_world.experience(moe_world.episodes(12))
    result = moe_world.train()
    assert result.metrics["routing"]["decisions"] == 0
    assert [text for text in result.warnings if text.startswith("routing was not replayed")]
    (line,) = lines(moe_world, result.run_id, "train.routing")
    assert line["replayed_sequences"] == 0
    assert "routing_decisions" not in result.metrics["optimizer_steps"][0]


def test_a_dense_model_says_nothing_of_routing(world: TrainWorld) -> None:
    world.experience(world.episodes(8))
    assert "routing" not in world.train().metrics


def test_a_chain_of_which_only_some_is_told_is_replayed_in_part(moe_world: TrainWorld) -> None:
    """As when one of the answers was streamed: its tokens' experts are those of the next prompt."""
    episodes = told(moe_world, 10, turns=2)
    for episode in episodes[:4]:
        episode.turns[1].experts = None
    moe_world.experience(episodes)
    with pytest.raises(IntegrityError, match=r"on-policy proof.*replayed for \d+ of \d+ tokens only"):
        moe_world.train()
    result = moe_world.train("train.proof_mean_tolerance=9", "train.proof_p99_tolerance=99")
    found = result.metrics["routing"]
    assert found["replayed_sequences"] == 10
    unknown = sum(
        len(e.turns[1].prompt) + len(e.turns[1].output) - len(e.turns[0].prompt) - len(e.turns[0].output)
        for e in episodes[:4]
    )
    assert found["tokens"] - found["replayed_tokens"] == unknown
    assert [text for text in result.warnings if "tokens only" in text]


def test_wrong_lengths_are_quarantined(moe_world: TrainWorld) -> None:
    episodes = told(moe_world, 10)
    for episode in episodes[:2]:
        episode.turns[0].experts = episode.turns[0].experts[:-1]  # type: ignore[index]
    moe_world.experience(episodes)
    batch = moe_world.train().metrics["batch"]
    assert batch["excluded_episodes"] == {"quarantined": 2}
    assert batch["masked_tokens"] == {"quarantined_generations": 2}


def test_a_killed_update_goes_on_to_the_same_weights(moe_world: TrainWorld, tmp_path: Path) -> None:
    world = moe_world
    batch = _batch(world)
    coefficient = np.random.default_rng(0).standard_normal(batch.tokens).astype(np.float32)
    data = TokenData(batch.logged, batch.logged, batch.logged, coefficient, batch.tokens / 3)

    def run(scratch: Path, config: TrainConfig, steps: int = 99) -> Any:
        model = modelio.load_model(world.store.resolve(world.live).path, attention=attention.register())
        scratch.mkdir(exist_ok=True)
        log = Quiet()

        class Killed(Exception):
            pass

        def write(event: str, **fields: Any) -> None:
            log.lines.append((event, fields))
            if event == "train.step" and fields["step"] > steps:
                raise Killed

        log.write = write  # type: ignore[method-assign]
        try:
            run_update(
                model, batch, data, config, moments=NEW, threads=2, seed=0,
                digest="d", scratch=scratch, log=log, progress=Silent(),
            )  # fmt: skip
        except Killed:
            return None
        return model.state_dict(), log.lines

    config = TrainConfig(optimizer_steps=3, learning_rate=1e-3, micro_batch_tokens=64)
    whole, _ = run(tmp_path / "whole", config)
    assert run(tmp_path / "killed", config, steps=1) is None
    again, told_lines = run(tmp_path / "killed", config)
    assert told_lines[0] == ("train.resumed", {"steps": 1})
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def _batch(world: TrainWorld) -> Batch:
    from stages.tokens import load_episodes, load_sequences
    from stages.train.batch import build_batch

    experience = world.experience(told(world, 9, turns=2))
    sequences = load_sequences(experience, world.store, world.vault)
    return build_batch(
        load_episodes(experience), sequences, consumed=set(), lag_of=lambda digest: 0, max_lag=1
    )
