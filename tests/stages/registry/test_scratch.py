"""Stores beside the store: their owner's alone, and gone with whoever only reads them for a while."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from stages.registry.scratch import passing_scratch
from stages.registry.store import Store
from stages.registry.sweep import sweep
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint

KILLED = """
import os, signal, sys
from pathlib import Path
from stages.registry.scratch import passing_scratch
from stages.registry.store import Store
with passing_scratch(Store.open(Path(sys.argv[1])), "ab"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_repeated_run_is_its_owners_alone(workspace: Workspace, store: Store) -> None:
    """It holds what people wrote; the folder of before is closed too."""
    workspace.debug_dir.mkdir(mode=0o755)
    first = run_stage(workspace, store, Toy())
    seen: list[Path] = []
    umask = os.umask(0)
    try:
        toy = Toy(during=lambda ctx: seen.append(ctx.store.dir))
        run_stage(workspace, store, toy, from_run=first.run_id)
    finally:
        os.umask(umask)
    assert seen[0].parent == workspace.debug_dir
    assert (mode(workspace.debug_dir), mode(seen[0])) == (0o700, 0o700)
    workspace.debug_dir.chmod(0o755)
    workspace.close_to_others()
    assert mode(workspace.debug_dir) == 0o700


def test_a_passing_store_is_private_and_gone_after_its_block(store: Store, tmp_path: Path) -> None:
    made = checkpoint(store, tmp_path / "c", "one")
    umask = os.umask(0)
    try:
        with passing_scratch(store, "ab") as scratch:
            sweep(store)  # of another command
            assert scratch.resolve("checkpoint@v1").path == made.path, "reads the original's objects"
            assert mode(scratch.dir) == 0o700
    finally:
        os.umask(umask)
    assert list((store.dir / "tmp").iterdir()) == []
    assert list((store.dir / "locks").glob("run-ab-*")) == []


def test_what_a_kill_leaves_of_it_is_swept(store: Store) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(store.dir)], check=False)
    assert len(list((store.dir / "tmp").iterdir())) == 1
    sweep(store)
    assert list((store.dir / "tmp").iterdir()) == []
    assert list((store.dir / "locks").glob("run-ab-*")) == []
