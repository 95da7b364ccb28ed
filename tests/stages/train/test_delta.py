"""`rtrl train` publishes the smaller of whole weights and their delta to the parent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stages import modelio
from stages.progress import Silent
from stages.registry.chain import chain
from stages.registry.verify import verify
from stages.stage import Artifact
from stages.train.delta import as_delta
from tests.stages.delta.safetensors_files import save
from tests.stages.train.world import TrainWorld


def trained(world: TrainWorld, *overrides: str) -> tuple[Artifact, dict[str, object]]:
    """The live checkpoint's child, made live."""
    world.experience(world.episodes(12, prefix=f"{world.live[-6:]}-"))
    result = world.train(*overrides)
    child = result.outputs["checkpoint"]
    world.promote(child.digest)
    return child, result.metrics["weights"]


def test_chains_end_in_whole_weights_and_every_link_is_what_was_trained(world: TrainWorld) -> None:
    links = []
    for _ in range(4):
        child, figures = trained(world, "train.delta_chain=2", "train.learning_rate=1e-6")
        links.append((figures["chain"], child.base is not None))
        assert (figures["bytes"] < figures["whole_bytes"]) == (child.base is not None)  # type: ignore[operator]
        assert child.base in (None, child.meta["parent"])
        assert child.meta["parameters"] == sum(
            value.numel() for _, value in modelio.tensors(world.store.checkpoint_folder(child))
        )
    assert links == [(1, True), (2, True), (0, False), (1, True)]
    assert [len(chain(world.store, one)) for one in world.store.all_of("checkpoint")] == [2, 1, 3, 2, 1]
    assert verify(world.store, "full", Silent()).problems == []


def test_no_chain_is_wanted(world: TrainWorld) -> None:
    child, figures = trained(world, "train.delta_chain=0")
    assert child.base is None
    assert (child.path / "model.safetensors").is_file()
    assert figures["bytes"] == figures["whole_bytes"]


def test_what_would_not_be_smaller_stays_whole(world: TrainWorld, tmp_path: Path) -> None:
    """Weights of nothing but random bits have no smaller form."""
    noise = np.random.default_rng(0).bytes(4000)
    whole = save(tmp_path / "model.safetensors", {"w": ("F32", (1000,), noise)}).read_bytes()
    found = as_delta(tmp_path, world.store.resolve(world.live), world.store, 8)
    assert found.base is None
    assert found.bytes == found.whole_bytes == len(whole)
    assert [path.name for path in tmp_path.glob("*.safetensors*")] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == whole


def test_bfloat16_is_smaller_still(world: TrainWorld) -> None:
    rounded = ("train.export_dtype=bfloat16", "train.learning_rate=1e-6")
    trained(world, *rounded)
    _, figures = trained(world, *rounded)
    assert figures["chain"] == 2
    assert figures["bytes"] < 0.5 * figures["whole_bytes"]  # type: ignore[operator]


def test_a_repeated_run_reads_deltas_of_the_real_store_and_changes_nothing_there(world: TrainWorld) -> None:
    trained(world)
    world.experience(world.episodes(12, prefix="again-"))
    made = world.train()
    assert made.outputs["checkpoint"].base == world.live
    before = sorted(path.name for path in (world.store.dir / "rebuilt").iterdir())
    again = world.train(from_run=made.run_id)
    assert again.outputs["checkpoint"].digest == made.outputs["checkpoint"].digest
    assert sorted(path.name for path in (world.store.dir / "rebuilt").iterdir()) == before
