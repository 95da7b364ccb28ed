"""The on-policy proof, and every diagnosis it can come to, each provoked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stages.errors import IntegrityError
from stages.records import Sampling
from stages.sequences import GenerationInfo, Sequence
from stages.train.batch import Batch
from stages.train.evidence import check_tokenizers
from stages.train.masks import check_lengths, lag_reason, trained_tokens
from stages.train.proof import TOLERANCES, prove
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


def test_figures_by_hand() -> None:
    logp = np.array([-1.0, -2.0, -3.0, -np.inf], np.float32)
    logged = np.array([-1.0, -2.5, -2.9, -1.0], np.float32)
    proof, off = prove(logp, logged, np.array([0, 0, 1, 1]), 2, TOLERANCES["bfloat16"])
    assert proof.mean == pytest.approx(0.2)
    assert proof.median == pytest.approx(0.1)
    assert proof.largest == pytest.approx(0.5)
    assert proof.signed_mean == pytest.approx(0.4 / 3)
    assert proof.ruled_out == 0.25
    assert off.tolist() == [False, False]
    names = proof.failures(TOLERANCES["bfloat16"])
    assert [name.split(" is ")[0] for name in names[:2]] == [
        "mean |logp - logged|",
        "99th percentile of |logp - logged|",
    ]
    assert "ruled out" in names[2]


def test_noise_within_the_dtype_passes_and_nan_never() -> None:
    rng = np.random.default_rng(0)
    logged = rng.normal(-1, 1, 500).astype(np.float32)
    rows = np.repeat(np.arange(50), 10)
    exact = logged + rng.normal(0, 1e-5, 500).astype(np.float32)
    rounded = logged + rng.normal(0, 0.03, 500).astype(np.float32)
    assert prove(exact, logged, rows, 50, TOLERANCES["float32"])[0].failures(TOLERANCES["float32"]) == []
    assert prove(rounded, logged, rows, 50, TOLERANCES["bfloat16"])[0].failures(TOLERANCES["bfloat16"]) == []
    assert prove(rounded, logged, rows, 50, TOLERANCES["float32"])[0].failures(TOLERANCES["float32"])
    exact[3] = np.nan
    assert prove(exact, logged, rows, 50, TOLERANCES["float32"])[0].failures(TOLERANCES["float32"])


def test_masks_leave_out_by_reason() -> None:
    sampled = np.array([False, False, True, True, False, True, True])
    sequence = Sequence(
        episode_id="e", user="u", token_ids=np.arange(7, dtype=np.int32),
        logprobs=np.zeros(7, np.float32), sampled=sampled,
        checkpoint_index=np.array([-1, -1, 0, 1, -1, 2, 1], np.int16), checkpoints=("near", "far", "alien"),
        generation_index=np.array([-1, -1, 0, 0, -1, 1, 1], np.int16),
        generations=(GenerationInfo("g0", 2, 4, Sampling()), GenerationInfo("g1", 5, 7, Sampling())),
    )  # fmt: skip
    check_lengths(sequence)
    mask, left_out = trained_tokens(sequence, {"near": 1, "far": 2, "alien": None}, max_lag=1)
    assert mask.tolist() == [False, False, True, False, False, False, False]
    assert left_out == {"lag": 2, "unrelated_checkpoint": 1}
    assert lag_reason(0, 0) == ""


def test_arrays_of_wrong_length_are_an_integrity_error() -> None:
    sequence = Sequence(
        "e", "u", np.zeros(3, np.int32), np.zeros(2, np.float32), np.ones(3, bool), np.zeros(3, np.int16),
        ("c",), np.zeros(3, np.int16), (),
    )  # fmt: skip
    with pytest.raises(IntegrityError, match="2 logprobs for 3 tokens") as caught:
        check_lengths(sequence)
    assert caught.value.code == 12


def test_logprobs_of_wrong_length_are_quarantined_and_counted(world: TrainWorld) -> None:
    told = world.episodes(8)
    turn = told[0].turns[0]
    told[0].turns[0] = Turn(turn.prompt, turn.output, turn.logprobs[:-1], turn.checkpoint)
    world.experience(told)
    assert world.train().metrics["batch"]["excluded_episodes"] == {"quarantined": 1}


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
    message = refused(world, told).message
    assert "wrong checkpoint" in message
    assert "no checkpoint of this store" in message


def test_diagnosis_dtype(world: TrainWorld) -> None:
    told = attributed(world.episodes(24), world.live, noise=0.03)
    assert ": dtype." in refused(world, told).message
    # in a workspace that says so, the same noise is what bfloat16 is known for
    assert world.train("engine.dtype=bfloat16").status == "succeeded"


def test_diagnosis_template(world: TrainWorld) -> None:
    world.models["elsewhere"] = tiny_model(5)
    told = attributed(world.episodes(12, checkpoint="elsewhere"), world.live)
    for episode in told:
        episode.turns[0].prompt[-1] = 3  # not the <assistant> that the checkpoint's template puts there
    assert ": template." in refused(world, told).message


def test_a_sampler_that_is_gone_is_metrics_only(world: TrainWorld) -> None:
    told = world.episodes(10)
    attributed(told[:4], "sha256:" + "f" * 64)
    world.experience(told)
    assert world.train().metrics["batch"]["excluded_episodes"] == {"unrelated_checkpoint": 4}
