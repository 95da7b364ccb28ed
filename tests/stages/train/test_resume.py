"""Micro-checkpoints: of this batch and whole, or none at all."""

from __future__ import annotations

import errno
import resource
import signal
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.cycle.deadline import Deadline
from stages.cycle_config import CycleConfig
from stages.errors import LateError
from stages.train import resume
from stages.train.config import TrainConfig
from stages.train.evidence import batch_digest, scores_key
from stages.train.load import load_batch
from tests import processes
from tests.stages.signalled import heard, ring
from tests.stages.train.world import TrainWorld


def read(scratch: Path, batch: str) -> tuple[dict[str, object] | None, torch.Tensor]:
    into = {"weight": torch.zeros(3)}
    return resume.load_step(scratch, batch, into), into["weight"]


def test_scores_are_of_this_batch_or_none(tmp_path: Path) -> None:
    """ "Of this batch" is: with a key that is made of it."""
    path, mine, other = tmp_path / resume.SCORES, bytes(32), bytes(31) + b"1"
    assert resume.load(path, mine) is None
    logp = torch.tensor([-0.25, -torch.inf])
    resume.save(path, mine, {"parent": logp}, {"batch": "mine", "proof": {"n": 2}})
    found = resume.load(path, mine)
    assert found is not None
    assert torch.equal(found[0]["parent"], logp)
    assert found[1] == {"batch": "mine", "proof": {"n": 2}}
    assert resume.load(path, other) is None
    assert logp.numpy().tobytes() not in path.read_bytes()
    path.write_bytes(path.read_bytes()[:-4])
    assert resume.load(path, mine) is None


def test_scores_are_in_memory_once_while_they_are_written_and_read(tmp_path: Path) -> None:
    """Three copies of them stood beside the models. Tensors are torch's memory, which is not counted here."""
    path, size = tmp_path / resume.SCORES, 32 << 20
    tensors = {name: torch.rand(size // 8) for name in ("parent", "anchor")}
    tracemalloc.start()
    try:
        resume.save(path, bytes(32), tensors, {"proof": {}})
        found = resume.load(path, bytes(32))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert all(torch.equal(found[0][name], value) for name, value in tensors.items())
    assert peak < size // 2


def test_scores_keep_their_kind_and_shape(tmp_path: Path) -> None:
    tensors = {
        "dropped": torch.tensor([], dtype=torch.int64),
        "one": torch.tensor(2.5, dtype=torch.float64),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    resume.save(tmp_path / resume.SCORES, bytes(32), tensors, {})
    found = resume.load(tmp_path / resume.SCORES, bytes(32))
    assert found is not None
    assert found[0].keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[0][name].dtype == value.dtype
        assert torch.equal(found[0][name], value)


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 30])
def test_scores_are_sealed_in_pieces_as_more_than_2_gib_cannot_be_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(resume, "_PIECE", piece)
    path, logp = tmp_path / resume.SCORES, torch.arange(5.0)
    resume.save(path, bytes(32), {"parent": logp}, {"proof": {"n": 2}})
    found = resume.load(path, bytes(32))
    assert found is not None
    assert torch.equal(found[0]["parent"], logp)
    data = path.read_bytes()
    whole = 12 + piece + 16
    cut = (b"", data[:whole], data[whole:], data[:-1], data + b"\0", data + data)
    for other in (*cut, data[whole:] + data[:whole]):
        path.write_bytes(other)
        assert (resume.load(path, bytes(32)) is None) == (other != data)


def test_the_last_step_of_this_batch_is_gone_on_with(tmp_path: Path) -> None:
    assert read(tmp_path, "mine")[0] is None
    for number in (1, 2):
        resume.save_step(tmp_path, number, {"weight": torch.full((3,), float(number))}, {"batch": "mine"})
    about, weight = read(tmp_path, "mine")
    assert (about, weight.tolist()) == ({"batch": "mine"}, [2.0] * 3)
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]
    assert read(tmp_path, "other")[0] is None
    resume.save_step(tmp_path, 1, {"weight": torch.ones(3)}, {"batch": "other"})
    assert read(tmp_path, "other")[0] == {"batch": "other"}
    assert read(tmp_path, "mine")[0] is None


def test_a_disk_that_takes_no_more_of_a_step_is_what_it_is_and_the_step_before_stays(tmp_path: Path) -> None:
    """torch's writer meets the system's error, and hides it behind one of its own at the end of its file."""
    values = {"weight": torch.ones(100_000)}
    resume.save_step(tmp_path, 1, values, {"batch": "mine"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011  the number says which
            resume.save_step(tmp_path, 2, values, {"batch": "mine"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"], (
        "what was written of it kept the disk full"
    )


def test_a_step_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    resume.save_step(tmp_path, 1, {"weight": torch.ones(3)}, {"batch": "mine"})
    for path in (tmp_path / "step-1").glob("*.distcp"):
        path.write_bytes(b"")
    assert read(tmp_path, "mine")[0] is None
    (tmp_path / "step-1" / resume.ABOUT).write_text("{")
    assert read(tmp_path, "mine")[0] is None


@pytest.mark.usefixtures("steps_kept")
def test_what_a_killed_run_leaves_of_its_scores_opens_with_the_whole_batch_only(
    world: TrainWorld,
) -> None:
    """With the checkpoint, a sampled token can be told by its logprob: a forgotten user's text was."""
    told = world.episodes(12)
    world.experience(told)
    inputs = world.train(dry_run=True).inputs
    fault = {"RTRL_FAULT": "train.step.rename.before"}
    killed = processes.python("tests.stages.train.world", str(world.root), env=fault)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    keys, config = world.workspace.keys_dir, TrainConfig()
    batch = load_batch(inputs, config, world.workspace, world.store)
    [path] = (world.workspace.store_dir / "scratch").glob(f"*/{resume.SCORES}")
    found = resume.load(path, scores_key(batch, keys))
    assert found is not None
    logp = found[0]["parent"].numpy()
    assert np.allclose(logp, batch.logged, atol=1e-3)
    left = [one.read_bytes() for one in path.parent.rglob("*") if one.is_file()]
    assert not any(logp[n : n + 2].tobytes() in data for data in left for n in range(len(logp) - 1))
    assert scores_key(batch, keys).hex() != world.vault.pseudonym(batch_digest(batch).encode())
    world.vault.forget(told[0].user)
    others = load_batch(inputs, config, world.workspace, world.store)
    assert len(others.episodes) == len(batch.episodes) - sum(one.user == told[0].user for one in told)
    assert resume.load(path, scores_key(others, keys)) is None


def test_what_a_version_before_left_of_its_scores_in_the_clear_goes_with_the_next_train(
    world: TrainWorld,
) -> None:
    """It stayed for a week, and for longer where somebody tried again."""
    world.experience(world.episodes(12))
    scratch = world.workspace.store_dir / "scratch"
    for name in ("scores.safetensors", ".scores.safetensors.tmp", "about.json"):
        (scratch / "killed").mkdir(parents=True, exist_ok=True)
        (scratch / "killed" / name).write_text("x")
    world.train()
    assert [path.name for path in (scratch / "killed").iterdir()] == ["about.json"]


def write(scratch: Path) -> object:
    return resume.save_step(scratch, 2, {"weight": torch.ones(3)}, {"batch": "mine"})


def read_back(scratch: Path) -> object:
    return read(scratch, "mine")


@pytest.mark.parametrize(("act", "at"), [(write, "torch.save"), (read_back, "torch.load")])
def test_a_signal_that_meets_a_step_ends_the_program_and_the_step_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], at: str
) -> None:
    """torch wraps every error that it meets; one that cannot be read is none, and the next begins anew."""
    resume.save_step(tmp_path, 1, {"weight": torch.ones(3)}, {"batch": "mine"})
    with monkeypatch.context() as patched, heard():
        patched.setattr(at, lambda *_args, **_kwargs: ring())
        with pytest.raises(SystemExit) as caught:
            act(tmp_path)
    assert caught.value.code == 143
    assert read(tmp_path, "mine")[0] == {"batch": "mine"}


@pytest.mark.parametrize(("act", "at"), [(write, "torch.save"), (read_back, "torch.load")])
def test_a_deadline_that_meets_a_step_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], at: str
) -> None:
    resume.save_step(tmp_path, 1, {"weight": torch.ones(3)}, {"batch": "mine"})
    monkeypatch.setattr(at, lambda *_args, **_kwargs: time.sleep(30))
    late = Deadline(10.0, CycleConfig().shares, started=time.monotonic() - 6.8)  # train: at 7 s
    with pytest.raises(LateError, match="train was stopped"), late.limit("train"):
        act(tmp_path)
