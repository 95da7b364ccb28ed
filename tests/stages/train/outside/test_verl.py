"""verl's own dataset, protocol and agent loop output take an export as it is. Needs verl."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.progress import Silent
from stages.train.outside.handover import export_experience
from tests.stages.train.world import TrainWorld


def test_verl_reads_the_file_and_gives_back_what_was_sampled(world: TrainWorld, tmp_path: Path) -> None:
    reader = pytest.importorskip("verl.utils.dataset.rl_dataset", exc_type=ImportError)
    loops = pytest.importorskip("verl.experimental.agent_loop.agent_loop", exc_type=ImportError)
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.protocol import DataProto

    told = world.episodes(6, turns=2)
    world.experience(told)
    result = export_experience(
        world.workspace, world.store, "experience@latest", "verl", out=tmp_path / "for-verl",
        parent="checkpoint@live", by="test", progress=Silent(),
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(world.store.resolve(world.live).path)
    config = OmegaConf.create({"filter_overlong_prompts": False, "cache_dir": str(tmp_path / "cache")})
    dataset = reader.RLHFDataset(str(result.folder / "train.parquet"), tokenizer, config)
    batch = DataProto.from_single_dict(reader.collate_fn([dataset[n] for n in range(6)]))
    assert list(batch.non_tensor_batch["agent_name"]) == ["rtrl_replay"] * 6
    for rollout, episode in zip(batch.non_tensor_batch["rollout"], told, strict=True):
        output = loops.AgentLoopOutput(**rollout, num_turns=2, metrics=loops.AgentLoopMetrics())
        assert output.prompt_ids == episode.turns[0].prompt
        assert output.reward_score == episode.reward
        assert sum(output.response_mask) == sum(len(turn.output) for turn in episode.turns)
        assert len(output.response_logprobs) == len(output.response_ids)
