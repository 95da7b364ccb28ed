"""Checking one artifact on disk against its manifest. The whole store is `verify.py`'s."""

from __future__ import annotations

from typing import Any

from stages.errors import IntegrityError
from stages.registry.objects import MANIFEST, files_of, hash_files, read_manifest
from stages.stage import Artifact


def check_files(artifact: Artifact) -> list[dict[str, Any]]:
    """The files the manifest names; all are there, of their size, and there are no others.

    Raises:
        IntegrityError: (exit 12) names the first that is not so.
    """
    if not artifact.path.is_dir():
        raise IntegrityError(f"{artifact.path} is missing", hint="restore it from a backup, or `rtrl gc` it")
    files: list[dict[str, Any]] = read_manifest(artifact.path, artifact.digest)["files"]
    there = {path.relative_to(artifact.path).as_posix(): path for path in files_of(artifact.path)}
    there.pop(MANIFEST)
    for file in files:
        path = there.pop(file["path"], None)
        if path is None:
            raise IntegrityError(f"file {file['path']} is missing")
        if path.stat().st_size != file["bytes"]:
            raise IntegrityError(f"file {file['path']} has {path.stat().st_size} bytes, not {file['bytes']}")
    if there:
        raise IntegrityError(f"file {min(there)} does not belong to it")
    return files


def check_artifact(artifact: Artifact) -> None:
    """All files and all bytes of one artifact. Raises IntegrityError (exit 12)."""
    hint = "`rtrl verify --full` looks at everything; restore the file, or name another input"
    try:
        files = check_files(artifact)
    except IntegrityError as error:
        raise IntegrityError(f"{artifact.ref}: {error.message}", hint=error.hint or hint) from error
    found = hash_files([artifact.path / file["path"] for file in files])
    for file, (_, sha256) in zip(files, found, strict=True):
        if sha256 != file["sha256"]:
            raise IntegrityError(f"{artifact.ref}: the bytes of {file['path']} were changed", hint=hint)
