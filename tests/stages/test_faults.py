from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CODE = "from stages import faults\nfor name in 'aabab': faults.point(name)\nprint('alive')"


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_happens_by_default() -> None:
    assert run().stdout == "alive\n"


def test_points_are_listed_up_to_the_death(tmp_path: Path) -> None:
    log = tmp_path / "points"
    done = run(RTRL_FAULT="a:3", RTRL_FAULT_LIST=str(log))
    assert done.returncode == -signal.SIGKILL
    assert log.read_text().split() == ["a", "a", "b", "a"]
    assert run(RTRL_FAULT="c").stdout == "alive\n"
