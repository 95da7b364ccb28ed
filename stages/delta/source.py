"""Weights that a delta is written against or rebuilt from: whole files, or deltas on further weights.

A chain of deltas is read through, a block at a time: no checkpoint in the middle is ever whole, in memory
or on disk. A tensor that the base lacks, or has in another dtype, counts as zeros; one that was longer or
shorter there counts as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cursorbench.files import sha256_of
from stages.delta import blocks
from stages.delta.file import Block, DeltaFile
from stages.delta.layout import Tensor, read_layout
from stages.delta.pieces import Pieces
from stages.errors import IntegrityError


class Weights(Protocol):
    """Tensors' bytes by name. Reads from several threads at a time."""

    @property
    def digests(self) -> Mapping[str, str]:
        """sha256 (hex) of the weights files by name: which weights these are."""

    def read(self, name: str, dtype: str, begin: int, end: int) -> bytes:
        """Bytes `begin` to `end` of a tensor of that name and dtype, zeros where there are none."""


class WholeWeights:
    """Whole safetensors files.

    Args:
        digests: sha256 of each by name, where the caller knows them; else the files are read once more.

    Raises: IntegrityError (exit 12) when one is no safetensors file.
    """

    def __init__(self, files: Iterable[Path], digests: Mapping[str, str] | None = None) -> None:
        self._tensors: dict[str, tuple[Pieces, Tensor]] = {}
        paths = list(files)
        for path in paths:
            pieces = Pieces(path)
            self._tensors |= {tensor.name: (pieces, tensor) for tensor in read_layout(path).tensors}
        self.digests = digests or {path.name: sha256_of(path) for path in paths}

    def read(self, name: str, dtype: str, begin: int, end: int) -> bytes:
        """See `Weights`."""
        pieces, tensor = self._tensors.get(name, (None, None))
        if pieces is None or tensor is None or tensor.dtype != dtype:
            return bytes(end - begin)
        first = min(tensor.begin + begin, tensor.end)
        return pieces.read(first, min(tensor.begin + end, tensor.end)).ljust(end - begin, b"\0")


class DeltaWeights:
    """What delta files make of `base`.

    Raises: IntegrityError (exit 12) when they were made against other weights than these.
    """

    def __init__(self, files: Sequence[DeltaFile], base: Weights) -> None:
        for file in files:
            if file.index.base != dict(base.digests):
                raise IntegrityError(
                    f"{file.path} is the difference to other weights than those of its base",
                    hint="name the checkpoint that it was made against; if that is this one, it was damaged: "
                    "`rtrl verify --full`",
                )
        self.files, self._base = tuple(files), base
        self.digests: Mapping[str, str] = {file.name: file.index.sha256 for file in files}

    def read(self, name: str, dtype: str, begin: int, end: int) -> bytes:
        """See `Weights`. Raises IntegrityError (exit 12) on a payload that was changed."""
        for file in self.files:
            tensor = file.tensor(name)
            if tensor is not None and tensor.dtype == dtype:
                return self._part(file, tensor, begin, end).ljust(end - begin, b"\0")
        return bytes(end - begin)

    def _part(self, file: DeltaFile, tensor: Tensor, begin: int, end: int) -> bytes:
        end = min(end, tensor.end - tensor.begin)
        parts = []
        while begin < end:
            block = file.block(tensor, begin)
            parts.append(self.decoded(file, block)[begin - block.begin : end - block.begin])
            begin = block.end
        return b"".join(parts)

    def decoded(self, file: DeltaFile, block: Block) -> bytes:
        """One block of one of the files, as it is in the rebuilt file."""
        tensor = block.tensor
        kind, payload = file.payload(block)
        base = self._base.read(tensor.name, tensor.dtype, block.begin, block.end)
        try:
            return blocks.decode(kind, payload, base, tensor.width)
        except blocks.DamagedBlockError as error:
            raise file.damaged(str(error)) from error
