"""The on-policy proof and the masks, against numbers computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stages.errors import IntegrityError
from stages.records import Sampling
from stages.sequences import GenerationInfo, Sequence
from stages.tokens import ExperienceEpisode
from stages.train.batch import build_batch, why_not
from stages.train.masks import check_lengths, lag_reason, lost_generations, trained_tokens
from stages.train.proof import TOLERANCES, prove
from tests.stages.train.test_diagnosis import attributed
from tests.stages.train.world import TrainWorld, Turn


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


def test_a_sequence_that_is_mostly_ruled_out_is_off_and_a_batch_that_is_proves_nothing() -> None:
    logged, rows = np.full(5, -1.0, np.float32), np.array([0, 0, 0, 1, 1])
    logp = np.array([-np.inf, -np.inf, -1.0, -np.inf, -1.0], np.float32)
    assert prove(logp, logged, rows, 2, TOLERANCES["bfloat16"])[1].tolist() == [True, False]
    nothing, off = prove(np.full(5, -np.inf, np.float32), logged, rows, 2, TOLERANCES["bfloat16"])
    assert off.all()
    assert len(nothing.failures(TOLERANCES["bfloat16"])) == 4  # mean, quantile, tokens, sequences


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


def test_the_figures_are_of_what_stays_and_one_row_in_two_hundred_may_leave() -> None:
    logged = np.full(400, -1.0, np.float32)
    logp = logged + np.float32(1e-5)
    logp[:2] = -4.0
    rows, tolerance = np.repeat(np.arange(200), 2), TOLERANCES["float32"]
    proof, off = prove(logp, logged, rows, 200, tolerance)
    assert (np.flatnonzero(off).tolist(), proof.sequences_off, proof.tokens) == ([0], 0.005, 398)
    assert proof.largest == pytest.approx(1e-5, rel=0.02)
    assert proof.failures(tolerance) == []
    proof, off = prove(logp[:-2], logged[:-2], rows[:-2], 199, tolerance)
    assert (np.flatnonzero(off).tolist(), proof.tokens) == ([0], 398)
    assert proof.largest == pytest.approx(3.0)
    assert [name.split(" is ")[0] for name in proof.failures(tolerance)][:1] == ["mean |logp - logged|"]
    assert "0.5% of the sequences are off" in proof.failures(tolerance)[-1]


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
    # of the first generation a token is left; of the second none
    assert lost_generations(sequence, mask, {"near": 1, "far": 2, "alien": None}, 1) == {"g1": "lag"}
    assert lag_reason(0, 0) == ""
    whole = ExperienceEpisode("e", "u", "k", "a", 0.5, True, "", "")
    gone = build_batch(
        [whole], [sequence], consumed=set(),
        lag_of={"near": 2, "far": 2, "alien": None}.get, max_lag=1,
    )  # fmt: skip
    assert (gone.tokens, gone.masked) == (0, {"lag": 3, "unrelated_checkpoint": 1})
    assert gone.left == {"e": "lag"}, "by what most of its tokens are left out for"
    near = build_batch([whole], [sequence], consumed=set(), lag_of=lambda _: 1, max_lag=1)
    assert near.rows[0].token_ids.tolist() == list(range(7))
    only = build_batch(
        [whole], [sequence], consumed=set(), lag_of={"near": 1, "far": 2, "alien": None}.get, max_lag=1
    )
    assert only.rows[0].token_ids.tolist() == [0, 1, 2], "up to the last token that is trained on"


def test_why_an_episode_is_not_trained_on() -> None:
    fine = ExperienceEpisode("e", "u", "k", "a", 0.5, True, "", "")
    assert why_not(fine, {"other"}) == ""
    assert why_not(fine, {"e"}) == "consumed"
    assert why_not(replace(fine, reward=None), {"e"}) == "reward_unknown"
    assert why_not(replace(fine, reward=float("nan")), set()) == "reward_not_finite"
    assert why_not(replace(fine, trainable=False), set()) == "not_trainable"
    assert why_not(replace(fine, trainable=False, why_not="no_train"), set()) == "no_train"


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
    result = world.train()
    assert result.metrics["batch"]["excluded_episodes"] == {"quarantined": 1}
    lines = (world.store.dir / "logs" / f"{result.run_id}.jsonl").read_text().splitlines()
    (said,) = (one for one in map(json.loads, lines) if one["event"] == "train.quarantined")
    assert "logprobs" in said["reason"], "that it was left out was counted, and why was nowhere"
    assert said["generation"]


def test_a_sampler_that_is_gone_is_metrics_only(world: TrainWorld) -> None:
    told = world.episodes(10)
    attributed(told[:4], "sha256:" + "f" * 64)
    world.experience(told)
    assert world.train().metrics["batch"]["excluded_episodes"] == {"unrelated_checkpoint": 4}
