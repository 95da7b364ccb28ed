"""Whole weights files out of deltas, checked against the sha256 that each delta file carries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from stages.delta.file import HINT, DeltaFile
from stages.delta.source import DeltaWeights
from stages.delta.threads import in_order
from stages.errors import IntegrityError


def content(weights: DeltaWeights, file: DeltaFile) -> Iterator[bytes]:
    """The bytes of the weights file that `file`, one of `weights`, stands for, piece by piece.

    Raises:
        IntegrityError: (exit 12) after the last piece, when they are not the bytes that the delta was
            made from; or earlier, when a payload cannot be read.
    """
    digest = hashlib.sha256(file.index.head)
    yield file.index.head
    for piece in in_order(lambda block: weights.decoded(file, block), file.blocks()):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != file.index.sha256:
        raise IntegrityError(
            f"{file.path} does not rebuild {file.name}: it or the weights below it were changed", hint=HINT
        )


def rebuild(weights: DeltaWeights, folder: Path) -> list[Path]:
    """Write the whole weights files into `folder`, byte for byte what they were, and return their paths.

    Raises IntegrityError (exit 12) as `content`; what was written then is no checkpoint.
    """
    paths = []
    for file in weights.files:
        paths.append(folder / file.name)
        with paths[-1].open("wb") as target:
            for piece in content(weights, file):
                target.write(piece)
    return paths


def check(weights: DeltaWeights) -> int:
    """Rebuild and keep nothing; the bytes that were made. Raises IntegrityError (exit 12) as `content`."""
    return sum(len(piece) for file in weights.files for piece in content(weights, file))
