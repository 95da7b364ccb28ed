"""Several processes: the sums of one, one publisher, and a death that is named and recovered from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from stages.train import crew, shard, update
from stages.train.forward import Budget
from stages.train.loss import policy_loss
from stages.train.parallel import placed
from stages.train.shard import Sharded
from tests import processes
from tests.stages.train.test_update import make_batch, scored
from tests.stages.train.tiny import tiny_model
from tests.stages.train.world import TrainWorld

TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2", "-m", "rtrl_cli.main")


def arguments(world: TrainWorld, *options: str) -> tuple[str, ...]:
    return ("train", "-w", str(world.workspace.root), "--json", "--force", *options)


def far_apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((value - other[name]).abs().max()) for name, value in one.items())


@pytest.mark.usefixtures("steps_kept")
def test_two_processes_of_torchrun_train_what_one_does_and_one_of_them_publishes(world: TrainWorld) -> None:
    world.experience(world.episodes(24))
    alone = world.train("train.micro_batch_tokens=16")
    options = arguments(world, "--set", "train.micro_batch_tokens=16")
    done = processes.python(*TORCHRUN, *options, env={"GLOO_SOCKET_IFNAME": "lo"})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["metrics"]["processes"] == 2
    for one, two in zip(
        alone.metrics["optimizer_steps"], document["metrics"]["optimizer_steps"], strict=True
    ):
        for name in ("loss", "grad_norm", "kl_parent", "entropy", "ess"):
            assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-6), name
    published = world.store.resolve(document["outputs"]["checkpoint"]["digest"])
    assert len(list((world.store.dir / "logs").glob("train-*.jsonl"))) == 2  # runs: not one per process
    from stages import modelio

    assert (
        far_apart(world.weights(alone), dict(modelio.tensors(world.store.checkpoint_folder(published))))
        < 1e-6
    )


def said_of_two(world: TrainWorld, fault: str) -> str:
    """The error of a run of two processes of which one is killed at a fault."""
    dead = processes.rtrl(*arguments(world, "--set", "train.processes=2"), env={"RTRL_FAULT": fault})
    assert dead.returncode == 13, dead.stderr
    error = json.loads(dead.stdout)["error"]
    assert "goes on" in error["hint"]
    return str(error["message"])


@pytest.mark.usefixtures("steps_kept")
def test_a_dead_process_ends_the_run_by_name_and_one_process_goes_on(world: TrainWorld) -> None:
    world.experience(world.episodes(24))
    undisturbed = world.train()
    # not --force's folder of scratch: the same fingerprint as with one process
    assert "rank 1 ended with -9" in said_of_two(world, "train.rank1.step.before:3")
    resumed = world.train(force=True)
    log = (world.store.dir / "logs" / f"{resumed.run_id}.jsonl").read_text()
    assert '"train.resumed"' in log
    assert '"steps": 2' in log
    assert far_apart(world.weights(undisturbed), world.weights(resumed)) < 1e-6


def test_a_process_that_dies_before_it_has_joined_is_named_as_well(world: TrainWorld) -> None:
    """Rank 0 waited for it where it heard nothing, and ended with SIGKILL and without a word."""
    world.experience(world.episodes(8))
    assert "rank 1 ended with -9 (killed: out of memory?): it said nothing" in said_of_two(
        world, "train.rank1.join.before"
    )


def test_the_others_do_not_wait_for_a_run_where_one_is_only_explained(world: TrainWorld) -> None:
    """They did for twelve hours, and torchrun with them."""
    import torch.distributed as dist

    world.experience(world.episodes(8))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    agents = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    root = str(world.workspace.root)
    done = processes.rtrl("train", "-w", root, "--explain", "e3", env=first | agents)
    assert done.returncode == 0, done.stderr
    told = dist.PrefixStore("rtrl/0", store)
    assert told.check([crew.JOB_KEY])
    assert told.get(crew.JOB_KEY) == b""


def test_threads_are_those_of_the_settings_in_shards_too(world: TrainWorld, monkeypatch: Any) -> None:
    world.experience(world.episodes(8))
    used = set()

    def watched(*args: Any, **kwargs: Any) -> Any:
        used.add(torch.get_num_threads())
        return policy_loss(*args, **kwargs)

    monkeypatch.setattr(update, "policy_loss", watched)
    world.train("train.compute_dtype=bfloat16", "train.threads=3")
    assert used == {3}


class OneProcess:
    """A process group of one, as `compute_dtype = "bfloat16"` makes it."""

    def __enter__(self) -> None:
        import torch.distributed as dist

        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)

    def __exit__(self, *_: object) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_sharded_model_scores_and_sums_as_a_plain_one(checkpointing: bool) -> None:
    batch, plain, model = make_batch(tiny_model(1)), tiny_model(2), tiny_model(2)
    expected = scored(plain, batch)
    with OneProcess():
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            for layer in shard.layers(model):
                layer.training = True
        from stages.train import attention
        from stages.train.forward import assemble, cost, logprobs, plan, score

        model.set_attn_implementation(attention.register())
        plain.set_attn_implementation(attention.register())
        shard.shard(model, torch.float32)
        budget = Budget(40, 64)
        logp, _ = score(model, batch.rows, batch.tokens, budget)
        assert np.allclose(logp, expected, atol=1e-6)
        for each in (plain, model):
            with placed(each, 1, 1) as workers:
                assert isinstance(workers, Sharded) == (each is model)
                workers.map(
                    lambda one, rows, weight: (
                        logprobs(one, assemble(rows), budget)[0].sum() * weight
                    ).backward(),
                    plan(batch.rows, budget),
                    cost,
                )
        for (name, one), (_, other) in zip(plain.named_parameters(), model.named_parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert torch.allclose(shard.whole(other.grad), one.grad, rtol=1e-4, atol=1e-5), name


def test_bfloat16_compute_keeps_float32_masters(world: TrainWorld) -> None:
    world.experience(world.episodes(12))
    result = world.train("train.compute_dtype=bfloat16", "train.learning_rate=1e-6")
    assert result.metrics["compute_dtype"] == "bfloat16"
    parent = world.model(world.live).state_dict()
    for name, value in world.weights(result).items():
        assert value.dtype == torch.float32
        moved = (value - parent[name]).abs().max()
        # four steps of 1e-6 each: a bfloat16 weight of 0.3 could not move at all
        assert 0 < float(moved) < 1e-5, name
