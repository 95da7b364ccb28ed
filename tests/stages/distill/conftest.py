from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stages.distill.distill_world import SPEC
from tests.stages.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, '[collect]\nclock = "events"\n[distill]\nspec = "spec.toml"\n')
    (world.root / "ws" / "spec.toml").write_text(SPEC)
    yield world
    world.close()
