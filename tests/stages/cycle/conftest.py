from __future__ import annotations

from pathlib import Path

import pytest

from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.cycle.cycle_world import make


@pytest.fixture
def world(tmp_path: Path) -> tuple[Workspace, Store]:
    return make(tmp_path)
