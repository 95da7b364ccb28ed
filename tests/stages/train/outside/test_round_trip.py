"""Out and in again with nothing of ours in between: a plain transformers loop on the embedded seed model.

Export to Parquet, one AdamW step on advantage times importance weight times log-likelihood, save_pretrained,
import; then the gate's and the roll-out's inputs resolve, and the same requests are not trained on again.
The command line is used as a person would.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rtrl_cli import main
from stages.deploy.choose import default_candidate
from stages.eval.run import STAGE as EVAL
from stages.init import init_tiny
from stages.registry.store import Store
from tests.stages.train.world import TrainWorld

Rtrl = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def rtrl(capsys: pytest.CaptureFixture[str]) -> Rtrl:
    """The command line in this process: exit status, the JSON document, what was said on stderr."""

    def run(world: TrainWorld, *arguments: str) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        code = main.run([*arguments, "--json", "-w", str(world.workspace.root)])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run


@pytest.fixture
def seed_world(tmp_path: Path) -> TrainWorld:
    """A workspace of `rtrl init --tiny` with eight episodes that its model really sampled."""
    made = init_tiny(tmp_path / "ws")
    world = TrainWorld(tmp_path)
    assert world.live == made.checkpoint.digest
    world.experience(world.episodes(8))
    return world


def their_trainer(data: Path, parent: Path, out: Path) -> None:
    """What a team might have: no line of it is ours."""
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(parent, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for row in load_dataset("parquet", data_files=str(data), split="train", cache_dir=str(out.parent / "hf")):
        ids, mask = torch.tensor([row["token_ids"]]), torch.tensor(row["mask"])[1:]
        logp = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        ratio = (logp.detach() - torch.tensor(row["logprobs"])[1:]).exp()
        assert (ratio[mask] - 1).abs().max() < 1e-3  # what was logged is what this model says
        (-(row["advantage"] * ratio.clamp(max=4.0) * logp)[mask].sum()).backward()
    optimizer.step()
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(parent).save_pretrained(out)


def test_what_another_trainer_made_goes_to_the_gate(
    seed_world: TrainWorld, tmp_path: Path, rtrl: Rtrl
) -> None:
    world = seed_world
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    code, said, messages = rtrl(world, "export", "experience@latest", "--to", "parquet", "--out", str(out))
    assert (code, said["status"], said["metrics"]["rows"]) == (0, "succeeded", 8)
    assert "unsealed" in messages
    assert "unsealed" in said["warnings"][0]
    assert said["inputs"]["parent"] == "checkpoint@v1"

    their_trainer(out / "train.parquet", world.store.resolve(world.live).path, theirs)

    flags = (
        "train",
        "--import",
        str(theirs),
        "--parent",
        said["inputs"]["parent"],
        "--consumed",
        "experience@v1",
    )
    code, planned, _ = rtrl(world, *flags, "--dry-run")
    assert (code, planned["metrics"]["plan"]["import"]["consumed_episodes"]) == (0, 8)
    code, trained, _ = rtrl(world, *flags)
    assert (code, trained["status"]) == (0, "succeeded"), trained["error"]
    assert trained["metrics"]["probe_logprob_change"] > 1e-5
    assert rtrl(world, *flags)[1]["status"] == "noop"

    store = Store.open(world.workspace.store_dir)
    child = store.resolve(trained["outputs"]["checkpoint"]["ref"])
    assert EVAL.resolve(world.workspace, store, {})["candidate"].digest == child.digest
    live = store.alias("auto", "live")
    assert default_candidate(store, "auto", live).digest == child.digest
    assert store.lag(world.live, child.digest) == 1
    world.promote(child.digest)
    code, refused, _ = rtrl(world, "train", "--input", "experience@v1")
    assert (code, refused["error"]["kind"]) == (5, "input_missing")
    assert "consumed 8" in refused["error"]["message"]


def test_errors_have_their_exit_codes(world: TrainWorld, tmp_path: Path, rtrl: Rtrl) -> None:
    world.experience(world.episodes(2))
    code, said, _ = rtrl(world, "export", "experience@v7", "--to", "trl")
    assert (code, said["error"]["code"]) == (5, 5)
    code, said, _ = rtrl(world, "export", "experience@v1", "--to", "csv")
    assert (code, said["error"]["kind"]) == (2, "usage")
    code, said, _ = rtrl(world, "train", "--import", str(tmp_path / "none"))
    assert (code, "--parent" in said["error"]["message"]) == (2, True)
    code, said, _ = rtrl(world, "train", "--import", str(tmp_path / "none"), "--parent", "checkpoint@live")
    assert code == 5
