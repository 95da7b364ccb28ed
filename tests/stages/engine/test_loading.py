"""What is imported for an engine stays out of the garbage collector's sight, and the collector goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import gc, sys
from stages.engine.loading import load
try:
    load(sys.argv[1])
except ImportError as error:
    print(error.name)
print(gc.isenabled(), len(gc.get_objects()) < 100 < gc.get_freeze_count())
"""


@pytest.mark.parametrize("name", ["statistics", "not_there"])
def test_after_an_import_and_after_one_that_failed(name: str) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", CODE, name], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.split() == [*(["not_there"] if name == "not_there" else []), "True", "True"]
