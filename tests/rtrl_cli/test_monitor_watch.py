"""`rtrl monitor --watch` ends where no later look could do any better."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stages.world import World

MONITOR = [sys.executable, "-m", "rtrl_cli.main", "monitor", "--watch", "--every", "1"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    world = World(tmp_path)
    yield world.workspace.root
    world.close()


def test_a_watch_ends_with_who_reads_it(root: Path) -> None:
    """`rtrl monitor --watch | head` never ended: it took the broken pipe for a look that failed, and told
    the healthcheck so each time."""
    command = [*MONITOR, "-w", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        try:
            assert watch.stdout.readline().startswith(b"line auto")
            watch.stdout.close()
            assert watch.wait(60) == 0
            assert watch.stderr.read() == b""
        finally:
            watch.kill()


def test_a_picture_that_cannot_be_written_is_refused_before_the_first_look(root: Path) -> None:
    """Each look failed by it, and the next one was tried."""
    command = [*MONITOR, "-w", str(root), "--plot", "charts.jpg"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "charts.jpg is no picture" in done.stderr
