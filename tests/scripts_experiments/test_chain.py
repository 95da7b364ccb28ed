"""A chain of two cycles with the real stages; killed at awkward moments it goes on to the same place."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from experimenting.chain import Chain
from experimenting.plan import DEFAULT, FAST, Size
from experimenting.results import Run
from safetensors.torch import load_file

from cursorbench.errors import UsageError
from stages.init import seed_folder
from tests.scripts_experiments.torch_engine import TorchEngine

SIZE = Size(seeds=1, cycles=2, users=4, requests=8, heldout=4, heldout_ends=4)
SETUP = replace(DEFAULT, settings=("train.min_episodes=2",)).setup(1, SIZE)


class PowerCutError(Exception):
    """Stands for a SIGKILL: nothing of the chain's own code runs after it."""


class Cut(Chain):
    """A chain that dies in one place, once."""

    where = ""

    def _hold(self, workspace: Any, store: Any, checkpoint: Any) -> None:
        super()._hold(workspace, store, checkpoint)
        if self.where == "measuring" and self.finished == 0 and self._engine.loads[1:]:  # type: ignore[union-attr]
            raise PowerCutError

    def _restore_spool(self, workspace: Any, number: int) -> None:
        super()._restore_spool(workspace, number)
        if self.where == "day" and number == 2:
            (workspace.spool_dir / "torn").write_text("half a day")
            raise PowerCutError


def start(workspace: Any, folder: Path) -> TorchEngine:
    return TorchEngine(folder)


@pytest.mark.slow
def test_cut_in_two_places_it_ends_with_the_weights_of_one_that_was_not(tmp_path: Path) -> None:
    whole = Chain(SETUP, tmp_path / "whole", start)
    engine = whole.run()
    for where in ("measuring", "day", ""):
        chain = Cut(SETUP, tmp_path / "cut", start)
        chain.where = where
        with pytest.raises(PowerCutError) if where else nullcontext():
            chain.run(None if where else engine)
    assert whole.complete
    assert chain.complete
    one, two = Run(SETUP, whole.folder), Run(SETUP, chain.folder)
    assert one.done == two.done == 2
    for before, after in zip(one.cycles, two.cycles, strict=True):
        assert before["heldout"] == after["heldout"]
        assert before.get("use") == after.get("use")
    assert len({cycle["checkpoint"] for cycle in two.cycles}) == 3
    first = load_file(seed_folder() / "model.safetensors")
    here, there = (load_file(one.folder / "last/model.safetensors") for one in (whole, chain))
    assert any(not torch.equal(here[name], first[name].float()) for name in here)
    assert all(torch.equal(here[name], there[name]) for name in here), "to the bit"
    assert not (chain.folder / "work").exists()
    with pytest.raises(UsageError, match="another chain"):
        Chain(DEFAULT.setup(2, SIZE), chain.folder, start)._take_folder()


@pytest.mark.slow
def test_behind_a_gate_an_update_that_goes_too_far_is_not_served(tmp_path: Path) -> None:
    settings = (
        "train.min_episodes=2",
        "train.learning_rate=0.05",
        "eval.requests=4",
        'eval.suites=["harness"]',
    )
    setup = replace(FAST, settings=settings, cycles=1).setup(1, SIZE)
    gated = Chain(setup, tmp_path / "fast", start)
    gated.run()
    first, last = Run(setup, gated.folder).cycles
    assert last["checkpoint"] == first["checkpoint"]
    assert last["stopped"]


@pytest.mark.slow
def test_a_policy_that_a_reward_has_emptied_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.train.phases.is_degenerate", lambda *_: "all 8 rewards are 0")
    chain = Chain(replace(SETUP, cycles=1), tmp_path / "empty", start)
    chain.run()
    first, last = Run(chain.setup, chain.folder).cycles
    assert last["checkpoint"] == first["checkpoint"]
    assert last["stopped"].startswith("train: the batch teaches nothing")
