"""The folders that people's files are in: whose owner was killed is removed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from evals.population.episode import scratch

HOLDING = """
import sys, time
from pathlib import Path
from evals.population.episode import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "case-1").mkdir()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_the_next_one_removes_what_the_killed_have_left_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, living = (Path(each.stdout.readline().strip()) for each in holders if each.stdout)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        fresh = tmp_path / "rtrl-people-fresh"
        fresh.mkdir()
        with scratch(tmp_path):
            assert killed.is_dir()  # so young that it might be somebody's who has not locked it yet
        for folder in (killed, living):
            os.utime(folder, (time.time() - 3600,) * 2)
        with scratch(tmp_path) as mine:
            assert set(tmp_path.iterdir()) == {living, fresh, mine}
            assert (living / "case-1").is_dir()
        assert not mine.exists()
    finally:
        for each in holders:
            each.kill()
            each.communicate()
