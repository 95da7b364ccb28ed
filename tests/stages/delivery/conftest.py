"""A line of checkpoints that was trained on, for one module of tests."""

from __future__ import annotations

import pytest

from tests.stages.delivery.family import Family


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    made = Family(tmp_path_factory.mktemp("family"))
    for _ in range(6):
        made.grow()
    return made
