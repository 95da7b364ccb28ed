"""Whole folders of checkpoints whose weights are deltas: `store/rebuilt/<digest>/`, a cache.

`checkpoint_folder` is how everybody reads a checkpoint: a whole one lies in `objects/`; of a delta the
folder is rebuilt once and found again. A rebuilt folder is written under tmp/ by the holder of a run lock
(so that a sweep removes what a kill left), made durable, and renamed into place: it is whole or not there.

A reader marks what it was given as used. gc removes folders that nothing in use needs and nobody was given
for an hour; it holds the folder's own `flock` while it does, as a reader does while it marks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.files import sync
from stages import faults, locks
from stages.delta import SUFFIX
from stages.errors import DependencyDownError, IntegrityError, classified
from stages.registry.chain import chain, weights_of, whole_files
from stages.registry.objects import MANIFEST, files_of, hash_file, put_aside, remove_tree
from stages.registry.runs import new_run_id
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.delta.source import DeltaWeights, WholeWeights
    from stages.registry.store import Store

FOLDER = "rebuilt"
LOCK_S = 1800.0  # how long one waits for another process to rebuild
UNUSED_S = 3600.0  # what somebody was given more recently than this stays, whatever gc thinks of it


def is_delta(artifact: Artifact) -> bool:
    """Whether it is a checkpoint whose weights are a delta to another's."""
    return artifact.kind == "checkpoint" and artifact.base is not None


def folder_of(store: Store, digest: str) -> Path:
    """Where the rebuilt folder of a checkpoint is, or would be."""
    return store.dir / FOLDER / digest.removeprefix("sha256:")


def checkpoint_folder(store: Store, checkpoint: Artifact) -> Path:
    """A folder with the whole checkpoint, as transformers and vLLM load it. Read from it only.

    Several processes may ask at once: one rebuilds, the others wait for it.

    Raises:
        IntegrityError: (exit 12) delta or base are damaged or missing.
        DependencyDownError: (exit 13) the disk has no room for the weights.
        LockedError: (exit 11) another process has been rebuilding for half an hour.
    """
    if not is_delta(checkpoint):
        return checkpoint.path
    folder = folder_of(store, checkpoint.digest)
    if _mark_used(folder):
        return folder
    with (
        classified(),
        locks.hold(
            store.lock_path(FOLDER),
            what=f"rebuilding {checkpoint.ref}",
            timeout=LOCK_S,
            hint=locks.RUN_AGAIN,
        ),
    ):
        if not _mark_used(folder):
            _rebuild(store, checkpoint, folder)
    return folder


def present(store: Store, checkpoint: Artifact) -> Path | None:
    """The rebuilt folder if there is one."""
    folder = folder_of(store, checkpoint.digest)
    return folder if is_delta(checkpoint) and _mark_used(folder) else None


def check_rebuilt(store: Store, checkpoint: Artifact) -> bool:
    """Whether the rebuilt folder, if there is one, still has the bytes it was made with.

    One that has not is removed: the next reader rebuilds it.
    """
    folder = present(store, checkpoint)
    if folder is None or _is_sound(folder, checkpoint):
        return True
    with locks.hold(store.lock_path(FOLDER), what=folder.name, timeout=LOCK_S, hint=locks.RUN_AGAIN):
        _discard(store, folder)
    return False


def whole_weights(store: Store, checkpoint: Artifact) -> WholeWeights:
    """The weights of a checkpoint for a delta to it. Raises as `checkpoint_folder`."""
    from stages.delta.file import delta_files
    from stages.delta.source import WholeWeights

    if checkpoint.base is None:
        return WholeWeights(*whole_files(checkpoint))
    folder = checkpoint_folder(store, checkpoint)
    digests = {file.name: file.index.sha256 for file in delta_files(checkpoint.path)}
    return WholeWeights([folder / name for name in digests], digests)


def _is_sound(folder: Path, checkpoint: Artifact) -> bool:
    from stages.delta.file import delta_files

    expected = {file.name: file.index.sha256 for file in delta_files(checkpoint.path)}
    for path in files_of(checkpoint.path):
        if path.suffix != SUFFIX and path.name != MANIFEST:
            expected[path.relative_to(checkpoint.path).as_posix()] = hash_file(path)[1]
    there = {path.relative_to(folder).as_posix(): path for path in files_of(folder)}
    return there.keys() == expected.keys() and all(
        hash_file(path)[1] == expected[name] for name, path in there.items()
    )


def unneeded(store: Store, in_use: set[str], kept: set[str]) -> list[tuple[Path, int]]:
    """Rebuilt folders that may go, with their bytes. Changes nothing.

    Args:
        in_use: digests of checkpoints that are served, may be gone back to, or are read by a run.
        kept: digests of all checkpoints that are in the store.
    """
    found = []
    for folder in _folders(store):
        digest = f"sha256:{folder.name}"
        with contextlib.suppress(FileNotFoundError):  # another gc was faster
            if digest not in kept or (digest not in in_use and not _used_lately(folder)):
                found.append((folder, sum(path.stat().st_size for path in files_of(folder))))
    return found


def remove(store: Store, folder: Path, kept: set[str]) -> None:
    """Remove one that may go, unless somebody was given it meanwhile. `kept` as in `unneeded`."""
    with contextlib.suppress(FileNotFoundError), _locked(folder, fcntl.LOCK_EX):
        if f"sha256:{folder.name}" not in kept or not _used_lately(folder):
            _discard(store, folder)


def _folders(store: Store) -> list[Path]:
    parent = store.dir / FOLDER
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _used_lately(folder: Path) -> bool:
    return time.time() - folder.stat().st_mtime < UNUSED_S


def _mark_used(folder: Path) -> bool:
    """Whether the folder is there; if so gc will leave it alone for a while."""
    try:
        with _locked(folder, fcntl.LOCK_SH) as fd:
            if not os.path.samestat(os.fstat(fd), folder.stat()):
                return False  # gc took it away before the lock was ours
            os.utime(fd)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield fd
    finally:
        os.close(fd)


def _discard(store: Store, folder: Path) -> None:
    trash = store.dir / "trash" / f"{new_run_id(FOLDER)}-{folder.name[:12]}"
    faults.point("rebuilt.discard.before")
    with contextlib.suppress(FileNotFoundError):  # another process does it at this moment
        trash = put_aside(folder, trash)
    faults.point("rebuilt.discard.after")
    remove_tree(trash)


def _rebuild(store: Store, checkpoint: Artifact, folder: Path) -> None:
    """Make the folder. The lock is held, so nobody else makes it."""
    build = new_run_id(FOLDER)
    work = store.dir / "tmp" / build
    with locks.hold(store.run_lock_path(build), what=f"rebuilding {checkpoint.ref}", run=build):
        try:
            _write(store, checkpoint, work)
            folder.parent.mkdir(exist_ok=True)
            faults.point("rebuilt.rename.before")
            work.rename(folder)
            faults.point("rebuilt.rename.after")
            sync(folder.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            store.run_lock_path(build).unlink(missing_ok=True)


def _write(store: Store, checkpoint: Artifact, work: Path) -> None:
    from stages.delta.rebuild import rebuild

    try:
        weights = weights_of(store, checkpoint, lambda artifact: present(store, artifact))
        _require_room(store, checkpoint, weights)
        work.mkdir()
        rebuild(weights, work)
    except IntegrityError:
        # a rebuilt folder below may have rotted: it is only a copy, the chain in objects/ decides
        for below in chain(store, checkpoint)[1:]:
            if (copy := present(store, below)) is not None and not _is_sound(copy, below):
                _discard(store, copy)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        rebuild(weights_of(store, checkpoint), work)
    for path in files_of(checkpoint.path):
        name = path.relative_to(checkpoint.path)
        if path.suffix != SUFFIX and path.name != MANIFEST:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, work / name)
    for path in files_of(work):
        faults.point("rebuilt.fsync.before")
        sync(path)
        path.chmod(0o444)
    sync(work)


def _require_room(store: Store, checkpoint: Artifact, weights: DeltaWeights) -> None:
    needed = sum(file.index.size for file in weights.files)
    free = shutil.disk_usage(store.dir).free
    if needed > free:
        raise DependencyDownError(
            f"no room to rebuild {checkpoint.ref}: its weights take {needed:,} bytes, {free:,} are free",
            hint="free space (`rtrl gc`) and run again",
        )
