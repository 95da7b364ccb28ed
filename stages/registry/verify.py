"""Checking a store, at three depths.

    present   the registry is sound; every committed artifact has its manifest and all its files, each
              of its size; nothing lies in objects/ that no artifact owns
    sampled   the same, and all bytes of a random share of the files
    full      the same, and all bytes of all files; the weights of every checkpoint that is a delta are
              rebuilt, and rebuilt folders still have the bytes they were made with

Not for: repairing. What dead processes left is swept first; what is then still wrong is reported.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sqlmodel import col, select

from stages.errors import IntegrityError
from stages.registry.chain import weights_of
from stages.registry.check import check_files
from stages.registry.migrate import check
from stages.registry.models import ArtifactRow
from stages.registry.objects import hash_file, object_path
from stages.registry.rebuilt import check_rebuilt
from stages.registry.sweep import Swept, sweep
from stages.wording import count

if TYPE_CHECKING:
    from pathlib import Path

    from stages.registry.store import Store
    from stages.stage import Artifact, Progress

    _File = tuple[Artifact, dict[str, Any]]  # of an artifact, as its manifest names it

Depth = Literal["present", "sampled", "full"]
SAMPLED_SHARE = 0.05
UNOWNED = "no artifact owns it"
SAMPLED_AT_LEAST = 20


@dataclass
class Verified:
    """What was looked at, and what is wrong with it."""

    depth: Depth
    artifacts: int = 0
    files: int = 0
    bytes_read: int = 0
    rebuilt: int = 0  # checkpoints whose weights were rebuilt from deltas
    swept: Swept = field(default_factory=Swept)
    problems: list[str] = field(default_factory=list)


def verify(store: Store, depth: Depth, progress: Progress, *, seed: int = 0) -> Verified:
    """Check the registry and its objects. Problems are collected, not raised."""
    result = Verified(depth)
    result.swept = sweep(store)
    result.problems += [f"registry: {problem}" for problem in check(store.dir)]
    with store.read() as session:
        rows = session.exec(
            select(ArtifactRow).where(ArtifactRow.state == "committed").order_by(col(ArtifactRow.id))
        ).all()
    progress.start(f"verifying {len(rows)} artifacts ({depth})", len(rows))
    hashed: list[_File] = []
    for row in rows:
        artifact = store.artifact_of(row)
        result.artifacts += 1
        with _told(store, artifact, result):
            files = check_files(artifact)
            result.files += len(files)
            hashed += [(artifact, file) for file in files]
        progress.advance()
    _check_bytes(_choose(hashed, depth, seed), store, result, progress)
    if depth == "full":
        deltas = [row for row in rows if row.base is not None and row.kind == "checkpoint"]
        _check_weights([store.artifact_of(row) for row in deltas], store, result, progress)
    result.problems += _strangers(store)
    return result


@contextmanager
def _told(store: Store, artifact: Artifact, result: Verified) -> Iterator[None]:
    """What a block finds wrong with an artifact is a problem, unless `rtrl gc` has removed that meanwhile."""
    try:
        yield
    except (IntegrityError, FileNotFoundError) as error:
        if store.is_committed(artifact.digest):
            what = error.message if isinstance(error, IntegrityError) else f"{error.filename} is missing"
            result.problems.append(f"{artifact.ref}: {what}")


def _choose(files: list[_File], depth: Depth, seed: int) -> list[_File]:
    if depth == "present":
        return []
    if depth == "full":
        return files
    count = min(len(files), max(SAMPLED_AT_LEAST, round(SAMPLED_SHARE * len(files))))
    return random.Random(seed).sample(files, count)


def _check_bytes(files: list[_File], store: Store, result: Verified, progress: Progress) -> None:
    if not files:
        return
    progress.start(f"reading {count(len(files), 'file')}", len(files))
    for artifact, file in files:
        with _told(store, artifact, result):
            size, hexdigest = hash_file(artifact.path / file["path"])
            result.bytes_read += size
            if hexdigest != file["sha256"]:
                raise IntegrityError(f"the bytes of {file['path']} were changed")
        progress.advance()


def _check_weights(deltas: list[Artifact], store: Store, result: Verified, progress: Progress) -> None:
    from stages.delta.rebuild import check

    if not deltas:
        return
    progress.start(f"rebuilding the weights of {len(deltas)} checkpoints", len(deltas))
    for checkpoint in deltas:
        with _told(store, checkpoint, result):
            result.bytes_read += check(weights_of(store, checkpoint))
            result.rebuilt += 1
            if not check_rebuilt(store, checkpoint) and store.is_committed(checkpoint.digest):
                result.problems.append(f"rebuilt folder of {checkpoint.ref}: it was changed; now removed")
        progress.advance()


def _strangers(store: Store) -> list[str]:
    """Objects that no artifact owns and that no sweep would find."""
    found: list[Path] = []
    for folder in (store.objects / "sha256").iterdir():
        found += folder.iterdir() if folder.is_dir() else [folder]
    known = set()  # read after looking: an object is in the registry before it is in its place
    with store.read() as session:
        query = select(ArtifactRow.digest).where(
            col(ArtifactRow.state).in_(("committed", "writing", "tombstoned"))
        )
        for digest in session.exec(query):
            if digest is not None:
                known.add(object_path(store.objects, digest).name)
    return [
        f"{path.relative_to(store.dir)}: {UNOWNED}"
        for path in found
        if path.name not in known and path.exists()
    ]
