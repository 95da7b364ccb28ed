"""`rtrl train` from experience to checkpoint, with a real store, vault and (tiny) model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stages import served_fingerprint
from stages.errors import DependencyDownError, InconclusiveError, InputMissingError
from stages.gateway.keys import ApiKeys
from stages.linestate import LineState
from stages.records import Sampling
from stages.train import update
from tests.stages.train import naive
from tests.stages.train.world import SPEC, TrainWorld, Turn, other_model
from tests.stages.world import consumed_episodes


def test_an_update_moves_the_policy_towards_reward_and_is_published_whole(world: TrainWorld) -> None:
    told = world.episodes(60)
    world.experience(told)
    result = world.train()
    assert result.status == "succeeded"
    child, state = result.outputs["checkpoint"], result.outputs["line_state"]
    assert child.meta["parent"] == world.live
    assert child.meta["generation"] == 1
    assert state.meta == {"checkpoint": child.digest, "stage": "train"}
    assert consumed_episodes(state.path) == {episode.id for episode in told}
    assert served_fingerprint.read_fingerprint(child.path)["logprobs"]["parent"] is not None
    table = LineState.load(state.path).baselines[SPEC]
    assert table["*"].weight == 60
    assert table["*"].value == pytest.approx(np.mean([episode.reward for episode in told]))

    # better episodes have become likelier, worse ones less likely
    parent, now, gain = world.model(world.live), world.model(child.digest), 0.0
    mean = float(np.mean([episode.reward for episode in told]))
    for episode in told:
        turn = episode.turns[0]
        ids = np.array([*turn.prompt, *turn.output], np.int32)
        moved = naive.logprobs(now, ids, len(turn.prompt)) - naive.logprobs(parent, ids, len(turn.prompt))
        gain += (episode.reward - mean) * float(moved.sum().detach())
    assert gain > 0.1


def test_the_metrics_account_for_every_episode_and_term(world: TrainWorld) -> None:
    world.experience(world.episodes(20))
    metrics = world.train().metrics
    assert metrics["batch"]["trained_episodes"] == metrics["trained_episodes"] == 20
    assert metrics["batch"]["users"] == 7
    assert sum(step["episodes"] for step in metrics["optimizer_steps"]) == 20
    first = metrics["optimizer_steps"][0]
    assert first["ess"] == pytest.approx(1.0, abs=1e-4)
    assert first["kl_parent"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["optimizer_steps"][-1]["kl_parent"] > 0
    (proof,) = metrics["proof"].values()
    assert proof["mean"] < 1e-5
    assert proof["lag"] == 0


def test_the_same_run_again_is_a_noop_and_another_seed_is_not(world: TrainWorld) -> None:
    world.experience(world.episodes(12))
    first = world.train()
    assert world.train().status == "noop"
    second = world.train(seed=1)
    assert second.status == "succeeded"
    assert second.outputs["checkpoint"].digest != first.outputs["checkpoint"].digest
    again = world.train(force=True)
    assert again.outputs["checkpoint"].digest == first.outputs["checkpoint"].digest


def test_a_recorded_run_is_repeated_elsewhere_with_the_same_result(world: TrainWorld) -> None:
    world.experience(world.episodes(12))
    first = world.train()
    world.promote(first.outputs["checkpoint"].digest)
    again = world.train(from_run=first.run_id)
    assert again.outputs["checkpoint"].digest == first.outputs["checkpoint"].digest
    assert again.outputs["line_state"].digest == first.outputs["line_state"].digest


def test_a_named_parent_is_trained_in_place_of_the_live_one(world: TrainWorld) -> None:
    first = world.live
    world.experience(world.episodes(12))
    world.promote(world.checkpoint(seed=1, parent=first).digest)
    result = world.train(refs=["checkpoint@v1"])
    assert result.outputs["checkpoint"].meta["parent"] == first


def test_dry_run_shows_the_batch_and_changes_nothing(world: TrainWorld) -> None:
    told = world.episodes(10)
    told[0].reward, told[1].why_not = None, "invalid_span"
    told[2].turns[0].sampling = Sampling(temperature=0.0)
    world.experience(told)
    result = world.train(dry_run=True)
    batch = result.metrics["plan"]["batch"]
    assert batch["episodes"] == 10
    assert batch["trained_episodes"] == 7
    assert batch["excluded_episodes"] == {"greedy": 1, "invalid_span": 1, "reward_unknown": 1}
    assert world.store.latest("checkpoint").digest == world.live  # type: ignore[union-attr]


def test_episodes_are_never_trained_on_twice_in_one_ancestry(world: TrainWorld) -> None:
    told = world.episodes(12)
    world.experience(told)
    first = world.train()
    world.promote(first.outputs["checkpoint"].digest)
    with pytest.raises(InputMissingError, match="consumed 12") as caught:
        world.train()
    assert caught.value.code == 5
    # new episodes of the child, old ones again beside them
    fresh = world.episodes(5, seed=9, prefix="n")
    world.experience([*told, *fresh])
    second = world.train()
    assert second.metrics["batch"]["excluded_episodes"] == {"consumed": 12}
    assert consumed_episodes(second.outputs["line_state"].path) == {e.id for e in [*told, *fresh]}


def test_a_rejected_candidate_leaves_its_episodes_usable(world: TrainWorld) -> None:
    told = world.episodes(12)
    world.experience(told)
    world.train()  # never promoted
    world.experience([*told, *world.episodes(3, seed=5, prefix="n")])
    assert world.train().metrics["trained_episodes"] == 15


def test_baselines_are_of_one_source_of_a_teams_signals(world: TrainWorld) -> None:
    """It gave 1 and gives 10 since: every reward was far above the baseline of before."""
    tables = []
    for seed, source in ((1, "sha256:a"), (2, "sha256:b"), (3, "sha256:b")):
        world.experience(world.episodes(12, seed=seed, prefix=f"s{seed}"), own=source)
        result = world.train()
        world.promote(result.outputs["checkpoint"].digest)
        baselines = LineState.load(result.outputs["line_state"].path).baselines
        tables.append({name: round(table["*"].weight) for name, table in baselines.items()})
    first, second = tables[-1]
    assert tables == [{first: 12}, {first: 12, second: 12}, {first: 12, second: 24}]
    assert SPEC not in tables[-1]


def test_moments_and_baselines_are_carried_on(world: TrainWorld) -> None:
    told, more = world.episodes(12), world.episodes(12, seed=3, prefix="n")
    world.experience(told)
    first = world.train()
    world.promote(first.outputs["checkpoint"].digest)
    world.experience(more)
    second = world.train("train.warmup_steps=3")
    line = LineState.load(second.outputs["line_state"].path).baselines[SPEC]["*"]
    earlier, later = (sum(one.reward or 0.0 for one in part) for part in (told, more))
    faded = 0.5 ** (12 / 500)  # the rewards as they are: no KL, no cap
    assert line.weight == pytest.approx(12 * faded + 12)
    assert line.value == pytest.approx((faded * earlier + later) / (12 * faded + 12))
    from stages.train.moments import read_moments

    moments = second.outputs["line_state"].path / "optimizer.safetensors"
    assert read_moments(moments).step == 8
    assert second.metrics["optimizer_steps"][0]["learning_rate"] == 1e-3  # they are warm
    anew = world.train("train.warmup_steps=3", "train.carry_moments=false")
    assert anew.metrics["optimizer_steps"][0]["learning_rate"] == pytest.approx(1e-3 / 3)
    assert not (anew.outputs["line_state"].path / moments.name).exists()


def test_old_data_within_max_lag_is_corrected_for_and_older_is_counted(world: TrainWorld) -> None:
    old = world.live
    lagged = world.episodes(6, prefix="old")
    world.experience(world.episodes(12))
    child = world.train().outputs["checkpoint"].digest
    world.promote(child)
    world.experience([*lagged, *world.episodes(6, seed=2, prefix="new")])
    result = world.train()
    assert result.metrics["batch"]["tokens_by_lag"].keys() == {"0", "1"}
    by_lag = {figures["lag"]: figures for figures in result.metrics["proof"].values()}
    assert by_lag[1]["mean"] < 1e-5  # scored by its own sampler
    assert by_lag[1]["lag_mean"] > 1e-4  # and the parent has moved away from it
    strict = world.train("train.max_lag=0")
    assert strict.metrics["batch"]["excluded_episodes"] == {"lag": 6}
    *left, trained = strict.metrics["audit"]
    assert [(row["exit"], row["by"], row["episodes"], row["verdict"]) for row in left] == [
        ("lag", "clock", 6, "same")
    ]
    assert trained["exit"] == "trained"
    assert old in world.store.ancestors(child)


def test_turns_that_leave_an_episode_that_stays_are_in_the_audit(world: TrainWorld) -> None:
    """Of 12 episodes the last two turns are a sequence of their own; of 4 the last of all cannot be read, and
    takes the one before along. Of 3 others the first turn is of too old a checkpoint. What distill left out
    of another is no matter of train."""
    old = world.live
    aged = world.episodes(3, prefix="old", turns=2)
    world.promote(world.checkpoint(1, parent=old, model=other_model(world, 1)).digest)
    told = [*world.episodes(12, turns=3), *world.episodes(3, seed=5, prefix="old", turns=2)]
    for number, episode in enumerate(told[:12]):
        episode.turns[1].extends = False
        if number % 3 == 0:
            last = episode.turns[2]
            episode.turns[2] = replace(last, logprobs=last.logprobs[:-1])
    told[1].turns[0] = replace(told[1].turns[0], planned=False)
    for before, episode in zip(aged, told[12:], strict=True):
        first, second = before.turns[0], episode.turns[1]
        episode.turns = [first, replace(second, extends=False)]
    world.experience(told)
    result = world.train("train.max_lag=0")
    lag, part, trained = result.metrics["audit"]
    assert (lag["exit"], lag["by"], lag["episodes"], lag["lost_turns"]) == ("part:lag", "clock", 3, 3)
    assert (part["exit"], part["by"]) == ("part:quarantined", "infrastructure")
    assert (part["episodes"], part["lost_turns"], part["share"]) == (4, 8, round(4 / 15, 6))
    assert part["shifts"]["turns_before"]["removed"] == 2.0  # the one at fault, not what went with it
    # what stays: of 11 episodes the first turn, of 8 both others, of 3 the second
    assert part["shifts"]["turns_before"]["kept"] == round((8 * (1 + 2) + 3) / (11 + 16 + 3), 6)
    assert (trained["exit"], trained["episodes"]) == ("trained", 15)


def test_a_way_out_for_a_turn_is_warned_of(world: TrainWorld) -> None:
    """Half of the second turns cannot be read: those of the episodes that are worth nothing."""
    told = world.episodes(40, turns=2)
    for number, episode in enumerate(told):
        bad, logged = number % 2 == 0, episode.turns[1].logprobs
        episode.turns[1] = replace(episode.turns[1], extends=False, logprobs=logged[:-1] if bad else logged)
        episode.reward, episode.user = -2.0 if bad else 1.0 + number / 100, "ada"
    world.experience(told)
    (text,) = [text for text in world.train().warnings if "by chance" in text]
    assert text.startswith(
        "part:quarantined took 20 model calls out of 20 episodes (50.0%) that stay, and not by chance: "
    )
    assert "reward -2 against" in text


def test_an_experience_of_a_distant_checkpoint_is_refused(world: TrainWorld) -> None:
    world.experience(world.episodes(6))
    for _ in range(2):
        world.promote(world.checkpoint(seed=1, parent=world.live, model=None).digest)
    with pytest.raises(InputMissingError, match=r"2 steps away .*max_lag 1"):
        world.train()


def test_batches_that_cannot_teach_are_refused(world: TrainWorld) -> None:
    with pytest.raises(InputMissingError, match="no experience"):
        world.train()
    told = world.episodes(6)
    for episode in told:
        episode.reward = 0.25
    world.experience(told)
    with pytest.raises(InconclusiveError, match=r"all 6 rewards are 0\.25") as caught:
        world.train()
    assert caught.value.code == 4
    for number, episode in enumerate(told):  # rewards differ, but not within a group
        episode.reward, episode.group = float(number // 2), f"g{number // 2}"
    world.experience(told)
    with pytest.raises(InconclusiveError, match="all 6 advantages are 0"):
        world.train()
    with pytest.raises(InconclusiveError, match=r"6 trainable episodes of 6; train\.min_episodes is 8"):
        world.train("train.min_episodes=8")
    for episode in told:
        episode.why_not = "unknown:edit_persistence"
    world.experience(told)
    with pytest.raises(InputMissingError, match="unknown:edit_persistence 6"):
        world.train()


def test_a_forgotten_users_episodes_are_counted_and_left_out(world: TrainWorld) -> None:
    world.experience(world.episodes(14))
    world.vault.forget("u3")
    result = world.train()
    assert result.metrics["batch"]["excluded_episodes"] == {"forgotten": 2}


def test_a_loud_user_is_capped_and_named(world: TrainWorld) -> None:
    told = world.episodes(40)
    for number, episode in enumerate(told):
        episode.user = "loud" if number < 20 else f"u{number}"
    world.experience(told)
    result = world.train("train.user_cap=0.3")
    assert list(result.metrics["users_capped"]) == ["loud"]
    assert any("reached the cap" in warning for warning in result.warnings)


def test_a_loud_key_is_capped_whatever_its_users_are_called(world: TrainWorld) -> None:
    told = world.episodes(40)
    for number, episode in enumerate(told):
        episode.user = f"u{number}"
        episode.key = "loud" if number < 30 else f"k{number}"
    world.experience(told)
    result = world.train("train.user_cap=0.5")
    assert list(result.metrics["keys_capped"]) == ["loud"]
    assert result.metrics["users_capped"] == {}
    assert result.metrics["key_cap"] == 0.25
    assert result.metrics["batch"]["largest_key_share"] == 0.75
    assert any("1 API key reached the cap of 25%" in warning for warning in result.warnings)


def test_a_batch_that_is_nearly_all_one_personal_keys_relaxes_the_caps_and_says_so(world: TrainWorld) -> None:
    told = world.episodes(80)
    for number, episode in enumerate(told):
        episode.user = f"u{number}"
        episode.key = "mine" if number < 78 else f"k{number}"
    world.experience(told)
    result = world.train()
    assert result.metrics["kept"] == pytest.approx(0.1, abs=0.02)
    assert any("came from few" in text and "rtrl keys set" in text for text in result.warnings)


def test_a_key_marked_as_shared_is_not_capped_and_the_mark_is_in_the_fingerprint(world: TrainWorld) -> None:
    ApiKeys.create(world.workspace.keys_dir, "product")
    (key,) = ApiKeys.listed(world.workspace.keys_dir)
    told = world.episodes(80)
    for number, episode in enumerate(told):
        episode.user = f"u{number}"
        episode.key = key.id if number < 60 else f"k{number}"
    world.experience(told)
    before = world.train()
    assert list(before.metrics["keys_capped"]) == [key.id]
    assert before.metrics["kept"] == pytest.approx(1 / 3, abs=0.1)
    ApiKeys.change(world.workspace.keys_dir, "product", shared=True)
    after = world.train()
    assert after.run_id != before.run_id
    assert after.metrics["keys_capped"] == {}
    assert after.metrics["kept"] == 1.0


def test_a_chain_of_turns_is_one_sequence_with_one_advantage(world: TrainWorld) -> None:
    told = world.episodes(8, turns=3)
    world.experience(told)
    batch = world.train().metrics["batch"]
    assert batch["sequences"] == 8
    assert batch["trained_tokens"] == sum(len(turn.output) for e in told for turn in e.turns)


def test_other_temperatures_are_reproduced(world: TrainWorld) -> None:
    world.experience(world.episodes(8, sampling=Sampling(temperature=0.7)))
    (proof,) = world.train().metrics["proof"].values()
    assert proof["largest"] < 1e-4


def test_masters_are_carried_when_the_checkpoint_is_rounded(world: TrainWorld) -> None:
    world.experience(world.episodes(8))
    result = world.train("train.export_dtype=bfloat16")
    child, state = result.outputs["checkpoint"], result.outputs["line_state"]
    assert child.meta["dtype"] == "bfloat16"
    assert LineState.load(state.path).masters == "masters.safetensors"
    exact = world.train("train.export_dtype=float32", force=True)
    from safetensors.torch import load_file

    masters = load_file(state.path / "masters.safetensors")
    for name, value in world.weights(exact).items():
        assert torch.equal(masters[name], value)
    world.promote(child.digest)
    world.experience(world.episodes(8, seed=4, prefix="n"))
    assert world.train("train.export_dtype=bfloat16").status == "succeeded"


@pytest.mark.parametrize(("off", "settings"), [(0.05, ("train.proof_mean_tolerance=0.001",)), (1.0, ())])
def test_a_broken_sequence_among_many_is_left_out(
    world: TrainWorld, off: float, settings: tuple[str, ...]
) -> None:
    """One that was off by more than 200 times the tolerance made the mean of all the others fail."""
    told = world.episodes(210)
    turn = told[7].turns[0]
    told[7].turns[0] = Turn(turn.prompt, turn.output, turn.logprobs - off, turn.checkpoint)
    world.experience(told)
    result = world.train(*settings)
    assert result.metrics["trained_episodes"] == 209
    assert any("1 episode left out" in warning for warning in result.warnings)
    assert result.metrics["proof"]["checkpoint@v1"]["mean"] < 1e-5


def test_too_little_memory_is_no_bug_and_the_next_run_goes_on(world: TrainWorld, monkeypatch: Any) -> None:
    world.experience(world.episodes(12))
    with monkeypatch.context() as patch:
        patch.setattr(update, "policy_loss", lambda *_, **__: torch.empty(1 << 45))  # 128 TiB
        with pytest.raises(DependencyDownError, match="not enough memory") as met:
            world.train()
    assert met.value.code == 13
    assert "train.micro_batch_tokens" in met.value.hint
    assert world.train().status == "succeeded"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_memory_of_a_gpu_and_pythons_own_are_told_alike(
    world: TrainWorld, monkeypatch: Any, error: Exception
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    world.experience(world.episodes(8))
    monkeypatch.setattr(update, "policy_loss", full)
    with pytest.raises(DependencyDownError, match="not enough memory"):
        world.train()
