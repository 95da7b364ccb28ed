"""A short kill sweep: the same script as the long one, few scenarios, few kills, no failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.tiny import write_checkpoint

ROOT = Path(__file__).resolve().parents[2]


def killsweep(folder: Path, *arguments: str) -> dict[str, object]:
    """Figures by id of one sweep from a random tiny model."""
    model = folder / "model"
    if not model.exists():
        write_checkpoint(model, seed=0)
    done = subprocess.run(
        [sys.executable, "scripts/killsweep.py", "--json", "--model", str(model), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert figures[1]["failures"] == [], done.stderr
    return {figure["id"]: figure["value"] for figure in figures}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_short_sweep_loses_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path / "sweep"))
    scenarios = [word for name in ("gateway", "sweep-verify", "cycle") for word in ("--scenario", name)]
    found = killsweep(tmp_path, "--aimed", "3", "--random", "2", "--seed", "1", *scenarios, *folder)
    assert found == {"killsweep.kills": 5, "killsweep.failures": 0}
    for _ in range(2):  # the second time it is done already
        more = killsweep(tmp_path, "--only", "collect/publish.rename.after:1", *folder)
        assert more == {"killsweep.kills": 6, "killsweep.failures": 0}
