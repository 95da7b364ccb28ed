"""A base is found beside a checkpoint, wherever the store has put each."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.registry.neighbour import whole_neighbour
from stages.registry.objects import object_path
from stages.registry.rebuilt import FOLDER

CHILD, BASE = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


def places(store: Path, digest: str) -> list[Path]:
    return [object_path(store / "objects", digest), store / FOLDER / digest.removeprefix("sha256:")]


@pytest.mark.parametrize("child", [0, 1])
@pytest.mark.parametrize("base", [0, 1])
def test_whole_and_rebuilt_ones_are_found(tmp_path: Path, child: int, base: int) -> None:
    found = places(tmp_path, BASE)[base]
    found.mkdir(parents=True)
    own = places(tmp_path, CHILD)[child]
    assert whole_neighbour(own, BASE) is None, "a delta alone, or nothing"
    (found / "model.safetensors").touch()
    assert whole_neighbour(own, BASE) == found


def test_a_folder_outside_of_a_store_has_none(tmp_path: Path) -> None:
    assert whole_neighbour(tmp_path / "model", BASE) is None
    assert whole_neighbour(Path("model"), BASE) is None
