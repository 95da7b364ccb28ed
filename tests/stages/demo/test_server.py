"""The demo's `rtrl serve` does not outlive it, not even where it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stages.serving.detach import serving_pid
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_lifecycle import gone
from tests.stages.serving.test_running import wait_for

DEMO = """
import sys, time
from pathlib import Path
from stages.demo.run import SilentView
from stages.demo.server import serving
from stages.workspace import Workspace
with serving(Workspace.find(Path(sys.argv[1])), SilentView()):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("starting", [True, False])
def test_killed_it_leaves_no_server_behind(tmp_path: Path, starting: bool) -> None:
    """It stayed for good, and the same demo again ended with 11 while it started."""
    world = StubWorld(tmp_path)
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(world.workspace.root)], stdout=subprocess.PIPE, text=True
    )
    try:
        if not starting:
            assert demo.stdout is not None
            assert demo.stdout.readline() == "up\n"
        assert wait_for(lambda: serving_pid(world.workspace) is not None)
        pid = serving_pid(world.workspace)
    finally:
        demo.kill()
        demo.communicate()
    assert pid is not None
    try:
        assert wait_for(lambda: gone(pid))
        assert wait_for(lambda: serving_pid(world.workspace) is None)  # its last thread has the lock
    finally:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)
