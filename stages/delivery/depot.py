"""A store of checkpoints behind a URL (`file:///srv/weights`, `s3://bucket/weights`, `memory://x`).

Each artifact is a folder named by its digest, with its files and its `manifest.json`, as in the registry's
`objects/`. The manifest goes there last: what has one is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.registry.objects import MANIFEST, hash_file


class Depot:
    """One store. Raises DependencyDownError (13) from every method when it cannot be reached.

    Args:
        url: as fsspec has it; what a protocol needs besides (keys, endpoints) fsspec reads from its own
            configuration and the environment.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with self._reached():
            from fsspec.core import url_to_fs

            self._fs, self._root = url_to_fs(url)

    def has(self, digest: str) -> bool:
        """Whether the artifact is there, whole."""
        try:
            self.manifest(digest)
        except IntegrityError:
            return False
        return True

    def put(self, digest: str, folder: Path) -> int:
        """Copy an artifact's folder, the manifest last; the bytes copied."""
        manifest = (folder / MANIFEST).read_bytes()
        moved = 0
        with self._reached():
            for file in json.loads(manifest)["files"]:
                path = self._at(digest, file["path"])
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(folder / file["path"]), path)
                moved += int(file["bytes"])
            self._fs.makedirs(self._at(digest, ""), exist_ok=True)
            self._fs.pipe_file(self._at(digest, MANIFEST), manifest)
        return moved + len(manifest)

    def manifest(self, digest: str) -> dict[str, Any]:
        """Raises IntegrityError (12): not there, or not the one that the digest names."""
        try:
            with self._reached():
                self._fs.invalidate_cache()
                text = self._fs.cat_file(self._at(digest, MANIFEST))
        except FileNotFoundError as error:
            raise IntegrityError(
                f"{self.url} has no {digest}", hint="deploy it again: that copies it"
            ) from error
        if "sha256:" + hashlib.sha256(text).hexdigest() != digest:
            raise IntegrityError(f"the manifest of {digest} in {self.url} was changed")
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def get(self, digest: str, manifest: dict[str, Any], folder: Path) -> int:
        """Copy the artifact's files into `folder`, each checked; the bytes copied.

        Raises IntegrityError (12): a file is missing or not what the manifest says.
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
            except FileNotFoundError as error:
                raise IntegrityError(f"{self.url} lacks {name} of {digest}") from error
            if hash_file(target) != (file["bytes"], file["sha256"]):
                raise IntegrityError(f"{name} of {digest} in {self.url} was changed")
            moved += int(file["bytes"])
        return moved

    def _at(self, digest: str, name: str) -> str:
        return f"{self._root.rstrip('/')}/{digest.removeprefix('sha256:')}/{name}".rstrip("/")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (RtrlError, FileNotFoundError):
            raise
        except Exception as error:
            raise DependencyDownError(
                f"the store {self.url} cannot be used: {type(error).__name__}: {error}"[:500],
                hint="look at deploy.store and at what its protocol needs (docs/serving.md)",
            ) from error
