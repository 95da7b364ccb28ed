"""Object folders on disk: sealing what a run wrote, and where a digest lives.

An object is a folder of plain files and a `manifest.json`. The digest is the sha256 of the manifest,
which is canonical JSON and names every file with its size and sha256, so that it covers all bytes.

Not for: the registry's rows (`publish.py` writes both, in an order that survives SIGKILL).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorbench.files import sync
from stages import faults
from stages.errors import IntegrityError
from stages.registry.canonical import canonical

MANIFEST = "manifest.json"
READS_FROM = "reads-from"  # in a scratch store: path of the store whose objects it reads too
SCHEMA = "rtrl-artifact/1"
CHUNK = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]+")
_RESTORE = "restore it from a copy of the store's objects; docs/registry.md says how"


@dataclass(frozen=True)
class Sealed:
    """A folder that is durable and named by its content."""

    digest: str
    bytes: int  # of all files, manifest not counted


def object_path(objects: Path, digest: str) -> Path:
    """`objects/sha256/ab/<hex>` of `sha256:<hex>`.

    Raises IntegrityError (exit 12) for what is no digest: it comes from a registry, maybe a stranger's, and
    what nobody owns is deleted where it says.
    """
    if not _DIGEST.fullmatch(digest):
        raise IntegrityError(f"{digest!r} in the registry is no digest", hint=_RESTORE)
    algorithm, _, hexdigest = digest.partition(":")
    return objects / algorithm / hexdigest[:2] / hexdigest


def path_in(store_dir: Path, digest: str) -> Path:
    """The folder of an object of a store: of a scratch store without it, in the one that it reads from."""
    path = object_path(store_dir / "objects", digest)
    pointer = store_dir / READS_FROM
    if path.exists() or not pointer.exists():
        return path
    return object_path(Path(pointer.read_text(encoding="utf-8")) / "objects", digest)


def files_of(folder: Path) -> Iterator[Path]:
    """All files under `folder`, in the order of their names.

    Raises:
        IntegrityError: (exit 12) something that is neither file nor folder (links could leave the object).
    """
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from files_of(path)
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise IntegrityError(f"{path} is neither file nor folder", hint="artifacts hold plain files only")


def hash_file(
    path: Path, *, durable: bool = False, stopped: threading.Event | None = None
) -> tuple[int, str]:
    """Size and sha256 (hex) of a file; `durable` also fsyncs it. Once `stopped` is set, CancelledError."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if stopped and stopped.is_set():
                raise CancelledError
            digest.update(chunk)
            size += len(chunk)
        if durable:
            faults.point("publish.file.fsync.before")
            os.fsync(file.fileno())
            faults.point("publish.file.fsync.after")
    return size, digest.hexdigest()


def hash_files(paths: Sequence[Path], *, durable: bool = False) -> Iterator[tuple[int, str]]:
    """`hash_file` of each, in order, side by side: hashing lets other threads run.

    A signal, or the error of one file, ends it at once: the others may be gigabytes.
    """
    stopped = threading.Event()
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as threads:
        try:
            yield from threads.map(lambda path: hash_file(path, durable=durable, stopped=stopped), paths)
        finally:
            stopped.set()


def seal(folder: Path, *, kind: str, line: str, meta: Mapping[str, Any], base: str | None) -> Sealed:
    """Hash and fsync every file, write the manifest, fsync the folders; files become read-only.

    Raises:
        IntegrityError: (exit 12) the folder is missing or holds a link or a `manifest.json`.
    """
    if not folder.is_dir():
        raise IntegrityError(f"the run declared an output {folder.name!r} and did not write it")
    if (folder / MANIFEST).exists():
        raise IntegrityError(f"output {folder.name!r} has a file {MANIFEST}, which is the registry's name")
    files = []
    total = 0
    paths = list(files_of(folder))
    for path, (size, hexdigest) in zip(paths, hash_files(paths, durable=True), strict=True):
        path.chmod(0o444)
        total += size
        files.append({"path": path.relative_to(folder).as_posix(), "bytes": size, "sha256": hexdigest})
    manifest = {
        "schema": SCHEMA,
        "kind": kind,
        "line": line,
        "meta": dict(meta),
        "base": base,
        "files": files,
    }
    text = canonical(manifest, what=f"meta of {kind}").encode()
    _write_manifest(folder / MANIFEST, text)
    for subfolder in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        sync(subfolder)
    sync(folder)
    faults.point("publish.folder.fsync.after")
    return Sealed("sha256:" + hashlib.sha256(text).hexdigest(), total)


def _write_manifest(path: Path, text: bytes) -> None:
    faults.point("publish.manifest.write.before")
    with path.open("wb") as file:
        file.write(text)
        file.flush()
        faults.point("publish.manifest.fsync.before")
        os.fsync(file.fileno())
    path.chmod(0o444)
    faults.point("publish.manifest.fsync.after")


def remove_tree(folder: Path) -> bool:
    """Delete a folder and all below it, also while another process does. Whether it was there."""
    was_there = False
    while folder.exists():
        was_there = True
        with contextlib.suppress(FileNotFoundError):  # the other was faster
            shutil.rmtree(folder)
    return was_there


def put_aside(folder: Path, trash: Path) -> Path:
    """Take a folder out of its place in one step, to be deleted; where it lies then.

    That is where it lay in a workspace that is part of a container's image: overlayfs renames no folder of a
    lower layer. What a kill then leaves of it, whoever comes next deletes as well.
    """
    try:
        return folder.rename(trash)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return folder


def read_manifest(folder: Path, digest: str) -> dict[str, Any]:
    """The manifest of an object, checked against its digest.

    Raises:
        IntegrityError: (exit 12) missing, or not the one the digest names.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise IntegrityError(
            f"{digest} has no readable manifest ({error.strerror})", hint=_RESTORE
        ) from error
    if "sha256:" + hashlib.sha256(text).hexdigest() != digest:
        raise IntegrityError(f"the manifest of {digest} was changed", hint=_RESTORE)
    manifest = json.loads(text)
    assert isinstance(manifest, dict)
    return manifest
