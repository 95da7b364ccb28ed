"""The whole update against a naive implementation of the same formulas, and against being killed."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.errors import IntegrityError
from stages.linestate import Baseline
from stages.progress import Silent
from stages.sequences import GenerationInfo, Sequence
from stages.tokens import ExperienceEpisode
from stages.train import attention
from stages.train.batch import Batch, build_batch, without_episodes
from stages.train.config import TrainConfig
from stages.train.forward import Budget, score
from stages.train.moments import NEW
from stages.train.objective import build_objective
from stages.train.parallel import copies_for
from stages.train.update import TokenData, Updated, deal, learning_rate, run_update
from tests import processes
from tests.stages.train import naive
from tests.stages.train.tiny import tiny_model
from tests.stages.train.world import TrainWorld

TABLE = {"*": Baseline(0.4, 50.0), "a": Baseline(0.6, 16.0)}


class Quiet:
    """A run log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))


def make_batch(sampler: Any, count: int = 10, seed: int = 0) -> Batch:
    """Two generations in one sequence per episode, with a tool output between; rewards 0, .5, 1."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    episodes, sequences = [], []
    for number in range(count):
        first = [1, *rng.integers(4, 64, 5).tolist(), 2]
        out1, log1 = naive.sample(sampler, first, 4, generator)
        second = [*first, *out1.tolist(), 0, *rng.integers(4, 64, 2).tolist(), 2]
        out2, log2 = naive.sample(sampler, second, int(rng.integers(1, 7)), generator)
        ids = np.array([*second, *out2], np.int32)
        sampled = np.zeros(len(ids), bool)
        logged = np.zeros(len(ids), np.float32)
        generation = np.full(len(ids), -1, np.int16)
        spans = ((len(first), out1, log1), (len(second), out2, log2))
        for index, (start, out, log) in enumerate(spans):
            where = slice(start, start + len(out))
            sampled[where], logged[where], generation[where] = True, log, index
        infos = tuple(
            GenerationInfo(f"{number}-{index}", start, start + len(out), naive.PLAIN)
            for index, (start, out, _) in enumerate(spans)
        )
        user, checkpoint = f"u{number % 3}", np.where(sampled, 0, -1).astype(np.int16)
        whole = (ids, logged, sampled, checkpoint, ("sampler",), generation, infos)
        sequences.append(Sequence(f"e{number}", user, *whole))
        reward = number % 3 / 2
        episodes.append(ExperienceEpisode(f"e{number}", user, "k", "ab"[number % 2], reward, True, "", ""))
    return build_batch(episodes, sequences, consumed=set(), lag_of=lambda digest: 0, max_lag=1)


def scored(model: Any, batch: Batch) -> np.ndarray:
    model.set_attn_implementation(attention.register())
    logp, _ = score(model, batch.rows, batch.tokens, Budget(64, 64))
    model.set_attn_implementation("sdpa")
    return logp


def update(
    model: Any,
    batch: Batch,
    anchor: Any,
    config: TrainConfig,
    scratch: Path,
    threads: int = 1,
    digest: str = "d",
) -> Updated:
    parent, far = scored(model, batch), scored(anchor, batch)
    objective = build_objective(batch, parent, far, TABLE, config)
    model.set_attn_implementation(attention.register())
    data = TokenData(batch.logged, parent, far, objective.coefficient, batch.tokens / config.optimizer_steps)
    return run_update(
        model, batch, data, config,
        moments=NEW, threads=threads, seed=0, digest=digest, scratch=scratch, log=Quiet(), progress=Silent(),
    )  # fmt: skip


def naive_gradient(model: Any, batch: Batch, anchor: Any, config: TrainConfig) -> dict[str, torch.Tensor]:
    """The gradient of the objective, formula by formula."""
    advantage, kl, own, logps = [], [], [], []
    for row, episode in zip(batch.rows, batch.episodes, strict=True):
        start = int(row.targets[0])
        logp = naive.logprobs(model, row.token_ids, start)[row.targets - start]
        ref = naive.logprobs(anchor, row.token_ids, start)[row.targets - start]
        logged = torch.from_numpy(row.logged)
        weight = (logp.detach() - logged).exp().clamp(max=config.importance_cap)
        baseline = (16 * 0.6 + config.baseline_shrinkage * 0.4) / (16 + config.baseline_shrinkage)
        advantage.append((episode.reward or 0.0) - (baseline if episode.stratum == "a" else 0.4))
        each = (logp - ref).detach()
        own.append(each)  # weighed by the loss
        kl.append(weight * each)
        logps.append((weight, logp))
    loss = torch.zeros(())
    for number, (weight, logp) in enumerate(logps):
        others = [float(each.sum()) for index, each in enumerate(kl) if index != number]
        if config.kl_credit == "episode":
            penalty = kl[number].sum() - kl[number] + own[number] - sum(others) / len(others)
        else:
            penalty = own[number]
        coefficient = advantage[number] - config.kl_coefficient * penalty
        loss = loss - (weight * coefficient * logp).sum() / batch.tokens
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("credit", ["episode", "token"])
def test_the_gradient_is_that_of_the_naive_objective(tmp_path: Path, credit: str) -> None:
    sampler, model, anchor = tiny_model(1), tiny_model(1), tiny_model(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)  # off-policy: weights differ from 1, some are capped
    batch = make_batch(sampler)
    config = TrainConfig(
        optimizer_steps=1, max_grad_norm=1e9, micro_batch_tokens=40, kl_coefficient=0.3, kl_credit=credit,
        user_cap=1.0, importance_cap=1.2, learning_rate=1e-12,
    )  # fmt: skip
    expected = naive_gradient(model, batch, anchor, config)
    result = update(model, batch, anchor, config, tmp_path)
    assert result.steps[0]["clipped"] > 0.05
    for name, parameter in model.named_parameters():
        scale = expected[name].abs().max()
        assert torch.allclose(parameter.grad / scale, expected[name] / scale, atol=1e-5), name
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in expected.values()))
    assert result.steps[0]["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_a_token_that_the_anchor_rules_out_is_charged_nothing() -> None:
    batch = make_batch(tiny_model(1), count=4)
    parent = batch.logged.copy()
    anchor = parent - 0.5
    plain = build_objective(batch, parent, anchor, TABLE, TrainConfig(kl_credit="token", kl_coefficient=0.3))
    anchor[2] = -np.inf
    found = build_objective(batch, parent, anchor, TABLE, TrainConfig(kl_credit="token", kl_coefficient=0.3))
    assert (plain.kl[2], found.kl[2], found.penalty[2]) == (pytest.approx(0.5), 0.0, 0.0)
    whole = build_objective(batch, parent, anchor, TABLE, TrainConfig(kl_credit="episode"))
    assert np.isfinite(whole.coefficient).all()


def test_the_size_of_micro_batches_does_not_change_the_result(tmp_path: Path) -> None:
    weights = []
    for budget in (30, 10_000):
        model = tiny_model(1)
        config = TrainConfig(optimizer_steps=2, learning_rate=1e-3, micro_batch_tokens=budget)
        (tmp_path / str(budget)).mkdir()
        update(model, make_batch(tiny_model(1)), tiny_model(2), config, tmp_path / str(budget))
        weights.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    # Adam's first steps are nearly signs: compare against the size of a step
    assert (weights[0] - weights[1]).abs().mean() < 1e-3 * 1e-3


def test_several_threads_add_up_to_the_same_gradient_every_time(tmp_path: Path) -> None:
    config = TrainConfig(optimizer_steps=1, micro_batch_tokens=30, max_grad_norm=1e9, learning_rate=1e-9)
    gradients = []
    for number, threads in enumerate((1, 3, 3)):
        model = tiny_model(1)
        (tmp_path / str(number)).mkdir()
        update(model, make_batch(tiny_model(1)), tiny_model(2), config, tmp_path / str(number), threads)
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, expected in gradients[0].items():
        assert torch.allclose(gradients[1][name], expected, atol=1e-6 * float(expected.abs().max())), name
        assert torch.equal(gradients[1][name], gradients[2][name])


def test_many_cores_do_not_mean_many_gradients() -> None:
    model = tiny_model(1)
    assert [copies_for(model, threads, 4) for threads in (1, 2, 4, 96)] == [1, 2, 4, 4]
    assert copies_for(model, 96, 1) == 1


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_not_finite_stops_the_run_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    model, batch = tiny_model(1), make_batch(tiny_model(1))
    config = TrainConfig(optimizer_steps=2, learning_rate=1e-3)
    good = update(model, batch, tiny_model(2), config, tmp_path)
    assert len(good.steps) == 2
    before = contents(tmp_path / "step-2")
    broken = tiny_model(1)
    data = TokenData(batch.logged, batch.logged, batch.logged, np.full(batch.tokens, np.nan, np.float32), 1.0)
    broken.set_attn_implementation(attention.register())
    with pytest.raises(IntegrityError, match="optimizer step 1: loss nan") as caught:
        run_update(
            broken, batch, data, config,
            moments=NEW, threads=1, seed=0, digest="other", scratch=tmp_path, log=Quiet(), progress=Silent(),
        )  # fmt: skip
    assert caught.value.code == 12
    assert contents(tmp_path / "step-2") == before


def test_a_step_that_makes_weights_infinite_is_never_kept(tmp_path: Path) -> None:
    batch = make_batch(tiny_model(1))
    update(tiny_model(1), batch, tiny_model(2), TrainConfig(optimizer_steps=1), tmp_path)
    before = {path.name: contents(path) for path in tmp_path.iterdir()}
    endless = TrainConfig(optimizer_steps=1, learning_rate=1e20, weight_decay=1e20)
    with pytest.raises(IntegrityError, match="step 1 made weights that are not finite") as caught:
        update(tiny_model(1), make_batch(tiny_model(1), seed=1), tiny_model(2), endless, tmp_path, digest="e")
    assert caught.value.code == 12
    assert {path.name: contents(path) for path in tmp_path.iterdir()} == before


def test_episodes_are_dealt_once_and_evenly() -> None:
    parts = deal(10, 4, seed=3)
    assert sorted(index for part in parts for index in part) == list(range(10))
    assert [len(part) for part in parts] == [3, 3, 2, 2]
    assert [len(part) for part in deal(2, 4, seed=3)] == [1, 1]


def test_the_learning_rate_warms_up_with_new_moments_only() -> None:
    config = TrainConfig(learning_rate=1.0, warmup_steps=4)
    assert [learning_rate(config, step) for step in (0, 1, 3, 4, 99)] == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_dropping_an_episode_keeps_the_flat_order_of_the_rest() -> None:
    batch = make_batch(tiny_model(1), count=4)
    smaller, kept = without_episodes(batch, {1}, "proof_outlier")
    assert [episode.episode_id for episode in smaller.episodes] == ["e0", "e2", "e3"]
    assert smaller.excluded["proof_outlier"] == 1
    assert np.array_equal(smaller.logged, batch.logged[kept])
    flat = np.concatenate([row.flat for row in smaller.rows])
    assert np.array_equal(flat, np.arange(smaller.tokens))
    assert smaller.episode_of.max() == 2


@pytest.mark.parametrize(
    "fault",
    [
        "train.step.rename.before:2",
        "train.run.after",
    ],
)
@pytest.mark.usefixtures("steps_kept")
def test_a_killed_run_goes_on_and_ends_with_the_same_bits(world: TrainWorld, fault: str) -> None:
    world.experience(world.episodes(16))
    killed = processes.python("tests.stages.train.world", str(world.root), env={"RTRL_FAULT": fault})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = world.train()
    assert resumed.status == "succeeded"
    undisturbed = world.train(force=True)
    assert undisturbed.outputs["checkpoint"].digest == resumed.outputs["checkpoint"].digest
    assert undisturbed.outputs["line_state"].digest == resumed.outputs["line_state"].digest
