"""`rtrl gc` is what a full disk is told to run: it runs on one."""

from __future__ import annotations

import json
from pathlib import Path

from stages.registry import ballast
from tests import processes
from tests.e2e.small_disk import filled, small_disk

MAKE = """
import sys
from pathlib import Path
from stages.init import init_bare
from stages.registry.store import Store
from stages.stage import Output

workspace = init_bare(Path(sys.argv[1]))
store = Store.open(workspace.store_dir)
for number in range(2):
    folder = workspace.root / "made"
    folder.mkdir(exist_ok=True)
    (folder / "f").write_bytes(bytes([number]) * (2 << 20))
    store.publish_external({"x": (Output("interactions"), folder)}, line="auto")
"""


def test_gc_makes_room_on_a_disk_without_a_block_left(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 16_384) as disk:
        root = disk / "w"
        made = processes.python("-c", MAKE, str(root))
        assert made.returncode == 0, made.stderr
        laid = root / "store" / ballast.FILE
        with filled(disk):
            assert processes.rtrl("status", "-w", str(root)).returncode == 13
            planned = processes.rtrl("gc", "--keep-days", "0", "-w", str(root))
            assert "would remove 1 artifacts" in planned.stdout + planned.stderr
            done = processes.rtrl("gc", "--yes", "--keep-days", "0", "--json", "-w", str(root))
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["metrics"]["bytes"] >= 2 << 20
            assert laid.stat().st_blocks * 512 == ballast.BYTES
            assert processes.rtrl("status", "-w", str(root)).returncode == 0
