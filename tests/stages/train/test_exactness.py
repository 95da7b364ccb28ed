"""What must come out the same: packed and padded, a chain and its generations apart, restarts and none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from stages import modelio
from stages.progress import Silent
from stages.records import Sampling
from stages.sequences import GenerationInfo
from stages.train import attention
from stages.train.batch import Batch, Row
from stages.train.config import TrainConfig
from stages.train.correction import correction_of
from stages.train.forward import Budget, assemble, score
from stages.train.forward import logprobs as packed_logprobs
from stages.train.loss import policy_loss
from stages.train.moments import NEW, Moments
from stages.train.objective import build_objective
from stages.train.update import TokenData, run_update
from tests.stages.train import naive
from tests.stages.train.test_explain import explained, tokens_of
from tests.stages.train.test_update import TABLE, Quiet, make_batch
from tests.stages.train.tiny import tiny_model, write_tokenizer
from tests.stages.train.world import TrainWorld, Turn, other_model

BUDGET = Budget(10_000, 64)
CORRECTION = correction_of(TrainConfig())


def gradients(model: Any, logp: Tensor, batch: Batch, coefficient: Tensor) -> dict[str, Tensor]:
    sequence = torch.from_numpy(batch.row_of)
    logged = torch.from_numpy(batch.logged)
    loss, _ = policy_loss(logp, logged, coefficient, sequence, correction=CORRECTION, constant=11.0)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def padded_logprobs(model: Any, batch: Batch) -> Tensor:
    """As a plain trainer has it: all sequences padded on the right to the longest, masked, one forward."""
    longest = max(len(row.token_ids) for row in batch.rows)
    ids = torch.zeros(len(batch.rows), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(batch.rows):
        ids[number, : len(row.token_ids)] = torch.from_numpy(row.token_ids.astype(np.int64))
        mask[number, : len(row.token_ids)] = 1
    logp = model(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
    parts = [
        logp[number, row.targets - 1, row.token_ids[row.targets].astype(np.int64)]
        for number, row in enumerate(batch.rows)
    ]
    return torch.cat(parts)


def test_packed_is_padded() -> None:
    model = tiny_model(1).double()
    batch = make_batch(tiny_model(1))
    coefficient = torch.randn(batch.tokens, generator=torch.Generator().manual_seed(0))
    plain = padded_logprobs(model, batch)
    expected = gradients(model, plain, batch, coefficient)
    model.set_attn_implementation(attention.register())
    micro = assemble(batch.rows)
    assert micro.pack.tokens < max(len(row.token_ids) for row in batch.rows) * len(batch.rows)
    packed, _ = packed_logprobs(model, micro, BUDGET)
    found = gradients(model, packed, batch, coefficient)
    assert (packed - plain).abs().max() < 1e-6
    for name, gradient in found.items():
        assert (gradient - expected[name]).abs().max() <= 1e-6 * expected[name].abs().max(), name


def generations_apart(batch: Batch) -> Batch:
    """The batch with a row of its own for every generation, as if none extended another."""
    rows: list[Row] = []
    for row in batch.rows:
        for index in np.unique(row.generation):
            part = row.only(row.generation == index)
            end = int(part.targets[-1]) + 1
            first = rows[-1].first + len(rows[-1].targets) if rows else 0
            rows.append(replace(part, token_ids=row.token_ids[:end], first=first))
    return replace(batch, rows=rows)


def test_a_chain_as_one_sequence_is_its_generations_apart_for_less() -> None:
    """Chain credit: every generation of the chain has the episode's advantage, the KL is of all of them."""
    model, anchor = tiny_model(1), tiny_model(2)
    batch = make_batch(model)
    apart = generations_apart(batch)
    assert (len(batch.rows), len(apart.rows)) == (10, 20)
    assert batch.context_tokens < 0.7 * apart.context_tokens
    for each in (model, anchor):
        each.set_attn_implementation(attention.register())
    found = []
    for one in (batch, apart):
        parent = score(model, one.rows, one.tokens, BUDGET)[0]
        far = score(anchor, one.rows, one.tokens, BUDGET)[0]
        objective = build_objective(one, parent, far, TABLE, TrainConfig(kl_coefficient=0.3))
        for episode in range(10):
            assert float(np.ptp(objective.coefficient[one.episode_of == episode])) < 1e-5  # weights round
        logp, _ = packed_logprobs(model, assemble(one.rows), BUDGET)
        found.append(gradients(model, logp, one, torch.from_numpy(objective.coefficient)))
    for name, gradient in found[0].items():
        assert torch.allclose(found[1][name], gradient, atol=1e-5 * float(gradient.abs().max())), name


def test_every_span_of_an_answer_is_proven_by_its_own_sampler_and_masked_by_its_own_lag(
    world: TrainWorld,
) -> None:
    """The weights changed in the middle of each answer, as the gateway records it."""
    old, told = world.live, world.episodes(10)
    world.promote(world.checkpoint(1, parent=old, model=other_model(world, 1)).digest)
    generator = torch.Generator().manual_seed(0)
    for episode in told:
        (turn,) = episode.turns
        output, logged = naive.sample(
            world.model(world.live), [*turn.prompt, *turn.output.tolist()], 5, generator
        )
        whole, both = np.append(turn.output, output), np.append(turn.logprobs, logged)
        episode.turns = [Turn(turn.prompt, whole, both, world.live, switch=len(turn.output), before=old)]
    begun = sum(episode.turns[0].switch for episode in told)
    world.experience(told)
    both_spans = world.train().metrics
    assert both_spans["batch"]["tokens_by_lag"] == {"1": begun, "0": 50}
    assert {proof["lag"]: proof["tokens"] for proof in both_spans["proof"].values()} == {1: begun, 0: 50}
    assert all(proof["largest"] < 1e-4 for proof in both_spans["proof"].values())
    near = world.train("train.max_lag=0").metrics["batch"]
    assert (near["trained_tokens"], near["masked_tokens"]) == (50, {"lag": begun})


def test_an_episode_that_went_on_after_a_self_summary_is_credited_as_one(world: TrainWorld) -> None:
    """The third generation begins with a summary in place of what was said: a sequence of its own."""
    told = world.episodes(8, turns=3)
    for episode in told:
        last = episode.turns[2]
        output, logged = naive.sample(
            world.model(world.live), last.prompt[-6:], 5, torch.Generator().manual_seed(len(last.prompt))
        )
        episode.turns[2] = Turn(last.prompt[-6:], output, logged, last.checkpoint)
    world.experience(told)
    found = explained(world, "e3")
    assert [sequence["generations"] for sequence in found["sequences"]] == [("e3-g0", "e3-g1"), ("e3-g2",)]
    tokens = tokens_of(found)
    assert {token["generation"] for token in tokens} == {"e3-g0", "e3-g1", "e3-g2"}
    assert len(tokens) == sum(len(turn.output) for turn in told[3].turns)
    assert len({token["coefficient"] for token in tokens}) == 1


def test_logprobs_are_those_of_transformers_with_temperature_top_p_and_repetition_penalty() -> None:
    """An independent reference for what `tests/e2e/test_train_exact.py` asks of vLLM."""
    sampling = Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.3)
    processors = LogitsProcessorList(
        [RepetitionPenaltyLogitsProcessor(1.3), TemperatureLogitsWarper(0.7), TopPLogitsWarper(0.9)]
    )
    model, generator, rows, expected = tiny_model(4), torch.Generator().manual_seed(0), [], []
    for number in range(6):
        ids = torch.randint(4, 64, (1, 8 + number), generator=generator)
        start = ids.shape[1]
        for _ in range(20):
            with torch.no_grad():
                logp = processors(ids, model(ids).logits[:, -1].float()).log_softmax(-1)
            drawn = torch.multinomial(logp.exp(), 1, generator=generator)
            expected.append(float(logp[0, drawn[0, 0]]))
            ids = torch.cat([ids, drawn], 1)
        zeros = np.zeros(20, dtype=np.int64)
        info = GenerationInfo(str(number), start, start + 20, sampling)
        rows.append(
            Row(
                episode=number,
                token_ids=ids[0].numpy().astype(np.int32),
                targets=np.arange(start, start + 20),
                logged=np.array(expected[-20:], np.float32),
                sampler=zeros,
                generation=zeros,
                generations=(info,),
                first=20 * number,
            )
        )
    model.set_attn_implementation(attention.register())
    logp, _ = score(model, rows, 120, BUDGET)
    assert np.abs(logp - np.array(expected)).max() < 1e-4
    assert np.std(expected) > 0.3


RESTARTS = 50
WITHOUT = 10  # restarts of the control, which has no masters


def test_a_bfloat16_model_with_tiny_steps_moves_over_50_restarts_as_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    """What is served is bfloat16 after each of 50 cycles; a step is 1e-6, far below its resolution."""
    batch = make_batch(tiny_model(1, num_hidden_layers=1), count=3)
    coefficient = np.random.default_rng(0).standard_normal(batch.tokens).astype(np.float32)
    data = TokenData(batch.logged, batch.logged, batch.logged, coefficient, batch.tokens / 1)
    config = TrainConfig(optimizer_steps=1, learning_rate=1e-6)
    name, kept = attention.register(), tmp_path / "masters.safetensors"
    write_tokenizer(tmp_path)
    modelio.save_checkpoint(
        tiny_model(1, num_hidden_layers=1), tmp_path / "0", companions=tmp_path, dtype="bfloat16"
    )

    def weights(model: Any) -> dict[str, Tensor]:
        return {key: value.detach().clone() for key, value in model.named_parameters()}

    def step(model: Any, moments: Moments, digest: str) -> Moments:
        return run_update(
            model, batch, data, config, moments=moments, threads=1, seed=0, digest=digest,
            scratch=tmp_path, log=Quiet(), progress=Silent(),
        ).moments  # fmt: skip

    def restarted(times: int, masters: bool) -> Any:
        moments = NEW
        for cycle in range(times):
            model = modelio.load_model(tmp_path / str(cycle), attention=name)
            if masters and cycle:
                modelio.load_masters(model, kept)
            moments = step(model, moments, f"{masters} {cycle}")
            modelio.save_checkpoint(model, tmp_path / str(cycle + 1), companions=tmp_path, dtype="bfloat16")
            save_file({key: value.detach().contiguous() for key, value in model.named_parameters()}, kept)
        return model

    undisturbed, moments = modelio.load_model(tmp_path / "0", attention=name), NEW
    start, moved = weights(undisturbed), {}
    for cycle in range(RESTARTS):
        moments = step(undisturbed, moments, f"undisturbed {cycle}")
        if cycle + 1 == WITHOUT:
            moved = {key: value - start[key] for key, value in weights(undisturbed).items()}
    found = weights(restarted(RESTARTS, masters=True))
    for key, value in weights(undisturbed).items():
        assert torch.equal(found[key], value), key

    restarted(WITHOUT, masters=False)
    served = weights(modelio.load_model(tmp_path / str(WITHOUT), attention=name))
    along = sum(float(((value - start[key]) * moved[key]).sum()) for key, value in served.items())
    assert along / sum(float((each**2).sum()) for each in moved.values()) < 0.2
