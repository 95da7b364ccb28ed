"""A store of checkpoints behind a URL (`file:///srv/weights`, `s3://bucket/weights`, `memory://x`).

Each artifact is a folder named by its digest, with its files and its `manifest.json`, as in the registry's
`objects/`. The manifest goes there last: what has one was whole once. Not here: what is said when the store
cannot be used (`trouble.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from stages.delivery.trouble import explained, no_bucket
from stages.errors import IntegrityError, RtrlError
from stages.registry.objects import MANIFEST, hash_file

# Stores of objects know no folders: to make one is to make the bucket, which is not ours to do.
_WITHOUT_FOLDERS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"}


class LostError(IntegrityError):
    """What the store lacks, or has damaged: the artifact `digest`, which can be copied there again."""

    def __init__(self, digest: str, message: str, *, hint: str = "deploy it again: that copies it") -> None:
        super().__init__(message, hint=hint)
        self.digest = digest


class Depot:
    """One store.

    Every method raises DependencyDownError (13) when it cannot be used, the first use of a protocol
    InputMissingError (5) when its package is not installed.

    Args:
        url: as fsspec has it; what a protocol needs besides (credentials, endpoints) its library reads from
            the environment, anew for each Depot.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with self._reached():
            from fsspec.core import url_to_fs

            self._fs, self._root = url_to_fs(url, skip_instance_cache=True)
        protocol = self._fs.protocol
        self._folders = _WITHOUT_FOLDERS.isdisjoint([protocol] if isinstance(protocol, str) else protocol)

    def has(self, digest: str) -> bool:
        """Whether the artifact is there: its manifest, and every file at its length."""
        try:
            manifest = self.manifest(digest)
        except IntegrityError:
            return False
        return not self._lacking(digest, manifest["files"])

    def put(self, digest: str, folder: Path, *, again: bool = False) -> int:
        """Copy what is not there of an artifact's folder, the manifest last; the bytes copied.

        Args:
            again: copy all of it, over what is there.
        """
        manifest = (folder / MANIFEST).read_bytes()
        files = json.loads(manifest)["files"]
        moved = 0
        with self._reached():
            for file in files if again else self._lacking(digest, files):
                path = self._at(digest, file["path"])
                if self._folders:
                    self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(folder / file["path"]), path)
                moved += int(file["bytes"])
            if self._folders:
                self._fs.makedirs(self._at(digest, ""), exist_ok=True)
            self._fs.pipe_file(self._at(digest, MANIFEST), manifest)
        return moved + len(manifest)

    def manifest(self, digest: str) -> dict[str, Any]:
        """Raises LostError (12): not there, or not the one that the digest names."""
        try:
            with self._reached():
                self._fs.invalidate_cache()
                text = self._fs.cat_file(self._at(digest, MANIFEST))
        except FileNotFoundError:
            raise LostError(digest, f"{self.url} has no {digest}") from None
        if "sha256:" + hashlib.sha256(text).hexdigest() != digest:
            raise LostError(digest, f"the manifest of {digest} in {self.url} was changed")
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def get(self, digest: str, manifest: dict[str, Any], folder: Path) -> int:
        """Copy the artifact's files into `folder`, each checked; the bytes copied.

        Raises LostError (12): a file is missing or not what the manifest says.
        """
        moved = 0
        for file in manifest["files"]:
            name = PurePosixPath(file["path"])
            if name.is_absolute() or ".." in name.parts:
                raise IntegrityError(f"{digest} has a file outside of its folder: {name}")
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self._reached():
                    self._fs.get_file(self._at(digest, str(name)), str(target))
            except FileNotFoundError:
                raise LostError(digest, f"{self.url} lacks {name} of {digest}") from None
            if hash_file(target) != (file["bytes"], file["sha256"]):
                raise LostError(digest, f"{name} of {digest} in {self.url} was changed")
            moved += int(file["bytes"])
        return moved

    def _lacking(self, digest: str, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of `files` that are not there, or not at their length."""
        folder = self._at(digest, "")
        with self._reached():
            self._fs.invalidate_cache()
            found = self._fs.find(folder, detail=True)
        start = len(folder.lstrip("/")) + 1
        there = {name.lstrip("/")[start:]: int(info["size"]) for name, info in found.items()}
        return [file for file in files if there.get(file["path"]) != int(file["bytes"])]

    def _at(self, digest: str, name: str) -> str:
        return f"{self._root.rstrip('/')}/{digest.removeprefix('sha256:')}/{name}".rstrip("/")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except RtrlError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not no_bucket(error):
                raise  # the caller knows what that means
            raise explained(self.url, error) from None  # the library's own words may hold credentials
