"""Every diagnosis that a failed on-policy proof can come to, each provoked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from stages import served_fingerprint
from stages.errors import IntegrityError
from stages.records import Sampling
from stages.train.batch import Batch
from stages.train.evidence import check_tokenizers
from stages.train.hypotheses import other_samplings
from tests.stages.train import naive
from tests.stages.train.strangers import stranger
from tests.stages.train.test_update import make_batch
from tests.stages.train.tiny import tiny_model
from tests.stages.train.world import Told, TrainWorld, Turn, other_model


def refused(world: TrainWorld, told: list[Told], *settings: str) -> IntegrityError:
    world.experience(told)
    with pytest.raises(IntegrityError) as caught:
        world.train(*settings)
    assert caught.value.code == 12
    assert caught.value.hint
    return caught.value


def attributed(told: list[Told], checkpoint: str, noise: float = 0.0) -> list[Told]:
    """The same tokens, recorded as sampled by another checkpoint, logprobs with noise added."""
    rng = np.random.default_rng(0)
    for episode in told:
        episode.turns = [
            changed(turn, checkpoint, turn.logprobs + noise * rng.standard_normal(len(turn.output)))
            for turn in episode.turns
        ]
    return told


def changed(turn: Turn, checkpoint: str, logprobs: np.ndarray) -> Turn:
    return Turn(
        turn.prompt, turn.output, logprobs.astype(np.float32), checkpoint, turn.sampling, turn.extends
    )


def test_diagnosis_tokenizer(world: TrainWorld) -> None:
    told = world.episodes(8)
    told[3].turns[0].output[0] = 64  # the vocabulary has 64 ids
    assert "tokenizer" in refused(world, told).message
    # a tokenizer.json that is not the one the checkpoint was made with
    parent = world.store.resolve(world.live)
    batch = make_batch(tiny_model(1))
    check_tokenizers(replace_samplers(batch, parent.digest), parent, world.store)
    foreign = replace(parent, meta={**parent.meta, "tokenizer": "0" * 64})
    with pytest.raises(IntegrityError, match=r"another tokenizer\.json") as caught:
        check_tokenizers(replace_samplers(batch, parent.digest), foreign, world.store)
    assert caught.value.code == 12


def replace_samplers(batch: Batch, digest: str) -> Batch:
    batch.samplers[:] = [digest]
    return batch


def test_diagnosis_sampling_parameters(world: TrainWorld) -> None:
    # the engine logs the unscaled distribution while it samples at 0.7
    told = world.episodes(12)
    for episode in told:
        episode.turns[0].sampling = Sampling(temperature=0.7)
    message = refused(world, told).message
    assert "sampling parameters" in message
    assert "raw logits" in message
    hot = world.episodes(12, sampling=Sampling(temperature=1.5), prefix="hot")
    for episode in hot:
        episode.turns[0].sampling = Sampling()
    assert "fit temperature 1.5" in refused(world, hot).message


def test_diagnosis_stale_engine(world: TrainWorld) -> None:
    old = world.live
    child = world.checkpoint(1, parent=old, model=other_model(world, 1)).digest
    world.promote(child)
    told = attributed(world.episodes(12, checkpoint=old), child)
    message = refused(world, told).message
    assert "stale engine" in message
    assert world.store.resolve(old).ref in message


def test_diagnosis_wrong_checkpoint_of_the_store(world: TrainWorld) -> None:
    other = world.checkpoint(1, parent=world.live, model=other_model(world, 1)).digest
    told = attributed(world.episodes(12, checkpoint=other), world.live)
    message = refused(world, told).message
    assert "wrong checkpoint" in message
    assert world.store.resolve(other).ref in message


def test_diagnosis_wrong_checkpoint_from_elsewhere(world: TrainWorld) -> None:
    world.models["elsewhere"] = tiny_model(5)
    told = attributed(world.episodes(12, checkpoint="elsewhere"), world.live)
    world.checkpoint(6, model=tiny_model(6, vocab_size=40))  # has not all of the ids: an IndexError
    world.checkpoint(7, model=stranger("gemma2", {"head_dim": 8}))  # is not packed: that was the error
    message = refused(world, told).message
    assert "wrong checkpoint" in message
    assert "no checkpoint of this store" in message


def test_a_longer_prompt_than_the_model_has_positions_for_is_no_hypothesis(world: TrainWorld) -> None:
    """Of an answer up to the context's end; learned positions end there, and the run with an IndexError."""
    world.models["elsewhere"] = tiny_model(5)
    told = world.episodes(12, checkpoint="elsewhere")
    longest = max(len(turn.prompt) + len(turn.output) for episode in told for turn in episode.turns)
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": longest - 1}
    world.promote(world.checkpoint(1, model=stranger("gpt2", gpt2)).digest)
    world.store.move_alias("auto", "anchor", world.live, reason="test")
    assert "wrong checkpoint" in refused(world, attributed(told, world.live)).message


def test_diagnosis_dtype(world: TrainWorld) -> None:
    told = attributed(world.episodes(24), world.live, noise=0.03)
    assert ": dtype." in refused(world, told).message
    # in a workspace that says so, the same noise is what bfloat16 is known for
    assert world.train("engine.dtype=bfloat16").status == "succeeded"


def test_diagnosis_dtype_of_a_quantised_engine(world: TrainWorld) -> None:
    told = attributed(world.episodes(24), world.live, noise=0.1)
    message = refused(world, told, "engine.dtype=bfloat16").message
    assert ": dtype." in message
    assert "larger than bfloat16's" in message


def test_diagnosis_of_a_few_answers_that_a_late_engine_sampled(world: TrainWorld) -> None:
    """Deployed while the engine went on with the old weights for a while: most answers are in order."""
    old = world.live
    child = world.checkpoint(1, parent=old, model=other_model(world, 1)).digest
    world.promote(child)
    late = attributed(world.episodes(4, checkpoint=old, prefix="late"), child)
    assert "stale engine" in refused(world, [*world.episodes(20, seed=1), *late]).message


def test_diagnosis_of_answers_that_were_under_way_when_the_weights_changed(world: TrainWorld) -> None:
    old = world.live
    child = world.checkpoint(1, parent=old, model=other_model(world, 1)).digest
    world.promote(child)
    begun, told = world.episodes(12, checkpoint=old), []
    generator = torch.Generator().manual_seed(0)
    for episode in begun:
        (turn,) = episode.turns
        prompt = [*turn.prompt, *turn.output.tolist()]
        output, logged = naive.sample(world.model(child), prompt, 5, generator)
        turn = Turn(turn.prompt, np.append(turn.output, output), np.append(turn.logprobs, logged), child)
        told.append(replace(episode, turns=[turn]))
    message = refused(world, told).message
    assert "stale engine" in message
    assert "begin as" in message


def test_diagnosis_of_sampling_parameters_that_the_engine_put_in(world: TrainWorld) -> None:
    """Requests that name nothing, and an engine that takes generation_config.json for what is not named."""
    model = other_model(world, 1)
    model.generation_config = GenerationConfig(temperature=0.6, top_k=8, do_sample=True)
    world.promote(world.checkpoint(1, parent=world.live, model=model).digest)
    names = [name for name, _ in other_samplings(world.store.resolve(world.live).path)]
    assert "the defaults of generation_config.json (temperature 0.6, top_k 8)" in names
    told = world.episodes(12)
    generator = torch.Generator().manual_seed(0)
    for episode in told:
        turn = episode.turns[0]
        output, logged = sample_top_k(model, turn.prompt, 6, generator, temperature=0.6, top_k=8)
        episode.turns[0] = Turn(turn.prompt, output, logged, turn.checkpoint)
    message = refused(world, told).message
    assert "sampling parameters" in message
    assert "defaults of generation_config.json" in message


def sample_top_k(
    model: Any, prompt: list[int], count: int, generator: torch.Generator, temperature: float, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    ids, logged = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            kept = (model(torch.tensor([ids])).logits[0, -1] / temperature).topk(top_k)
            logp = kept.values.log_softmax(-1)
            drawn = int(torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(int(kept.indices[drawn]))
            logged.append(float(logp[drawn]))
    return np.array(ids[len(prompt) :], np.int32), np.array(logged, np.float32)


def test_diagnosis_of_a_prompt_that_the_engine_rendered_otherwise(world: TrainWorld) -> None:
    """The engine's template begins the answer, the recorded prompt does not (it ends before token 2)."""
    told = world.episodes(12)
    for episode in told:
        turn = episode.turns[0]
        episode.turns[0] = Turn(turn.prompt[:-1], turn.output, turn.logprobs, turn.checkpoint)
    message = refused(world, told).message
    assert ": template." in message
    assert "with the template's beginning of an answer behind them" in message


def test_diagnosis_of_a_prompt_that_begins_otherwise(world: TrainWorld) -> None:
    told = world.episodes(12)
    for episode in told:
        turn = episode.turns[0]
        episode.turns[0] = Turn([3, *turn.prompt], turn.output, turn.logprobs, turn.checkpoint)
    message = refused(world, told).message
    assert ": template." in message
    assert "without their first token" in message


def test_a_model_that_gives_no_numbers_is_named(world: TrainWorld, monkeypatch: Any) -> None:
    """A damaged anchor, of a version that published such: its KL must not count as nothing."""
    told = world.episodes(8)
    world.experience(told)
    broken = other_model(world, 1)
    with torch.no_grad():
        broken.lm_head.weight.fill_(3e38)  # finite, and overflows
    with monkeypatch.context() as patch:
        patch.setattr(served_fingerprint, "_refuse_no_numbers", lambda values: None)
        anchor = world.checkpoint(1, parent=world.live, model=broken)
    world.store.move_alias("auto", "anchor", anchor.digest, reason="test", by="test")
    with pytest.raises(IntegrityError, match=f"{anchor.ref} gives .* not a number") as caught:
        world.train()
    assert caught.value.code == 12


def test_diagnosis_template(world: TrainWorld) -> None:
    world.models["elsewhere"] = tiny_model(5)
    told = attributed(world.episodes(12, checkpoint="elsewhere"), world.live)
    for episode in told:
        episode.turns[0].prompt[-1] = 3  # not the <assistant> that the checkpoint's template puts there
    assert ": template." in refused(world, told).message
