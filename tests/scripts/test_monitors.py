"""The script that calibrates the monitors, on a line of each kind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stages.monitor.charts import Rules


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "monitors.py"
    spec = importlib.util.spec_from_file_location("monitors_script", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_line_of_each_kind_is_quiet(script: ModuleType) -> None:
    for kind in script.CLEAN:
        assert script.clean(kind, np.random.default_rng(0), 8, Rules()) == [False] * 4


def test_a_planted_rise_is_caught(script: ModuleType) -> None:
    assert script.caught("comment_share", np.random.default_rng(1000), Rules())


def test_a_row_has_its_interval(script: ModuleType) -> None:
    row = script._row("x", 5, 10)
    assert (row["share"], round(row["low"], 3), round(row["high"], 3)) == (0.5, 0.237, 0.763)
