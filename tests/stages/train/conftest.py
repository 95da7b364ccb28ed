"""One thread: the models here are tiny, and two threads waiting for one another are slower.

Numbers drawn without a generator of one's own are the same whatever tests came before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.stages.train.world import TrainWorld


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def steps_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs write a micro-checkpoint after every step, as they do by default."""
    monkeypatch.setenv("RTRL_TRAIN__MICRO_CHECKPOINTS", "1")


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TrainWorld(tmp_path_factory.mktemp("train-world")).root


@pytest.fixture
def world(_template: Path, tmp_path: Path) -> TrainWorld:
    """A workspace with a live checkpoint and nothing else, copied from one that is made once."""
    return TrainWorld(Path(shutil.copytree(_template, tmp_path / "world")))
