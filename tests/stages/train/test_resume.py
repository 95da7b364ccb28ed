"""Micro-checkpoints: of this batch and whole, or none at all."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stages.cycle.deadline import Deadline
from stages.cycle_config import CycleConfig
from stages.errors import LateError
from stages.train import resume
from tests.stages.signalled import heard, ring


def read(scratch: Path, batch: str) -> tuple[dict[str, object] | None, torch.Tensor]:
    into = {"weight": torch.zeros(3)}
    return resume.load_step(scratch, batch, into), into["weight"]


def test_scores_are_of_this_batch_or_none(tmp_path: Path) -> None:
    path = tmp_path / resume.SCORES
    assert resume.load(path, "mine") is None
    logp = torch.tensor([-0.25, -torch.inf])
    resume.save(path, {"parent": logp}, {"batch": "mine", "proof": {"n": 2}})
    found = resume.load(path, "mine")
    assert found is not None
    assert torch.equal(found[0]["parent"], logp)
    assert found[1] == {"batch": "mine", "proof": {"n": 2}}
    assert resume.load(path, "other") is None
    path.write_bytes(path.read_bytes()[:-4])
    assert resume.load(path, "mine") is None


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
    assert (tmp_path / "step-1").is_dir()
    assert not (tmp_path / "step-2").exists()


def test_a_step_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    resume.save_step(tmp_path, 1, {"weight": torch.ones(3)}, {"batch": "mine"})
    for path in (tmp_path / "step-1").glob("*.distcp"):
        path.write_bytes(b"")
    assert read(tmp_path, "mine")[0] is None
    (tmp_path / "step-1" / resume.ABOUT).write_text("{")
    assert read(tmp_path, "mine")[0] is None


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
