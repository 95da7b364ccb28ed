"""An empty workspace per test, copied from one that is made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stages.registry.store import Store
from stages.workspace import Workspace


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Workspace.create(tmp_path_factory.mktemp("template") / "w", "").root


@pytest.fixture
def workspace(template: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(template, tmp_path / "w")))


@pytest.fixture
def store(workspace: Workspace) -> Store:
    return Store.open(workspace.store_dir)
