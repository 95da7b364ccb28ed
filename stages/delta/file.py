"""The delta file: one weights file (`model.safetensors`) as its difference to a base's tensors.

    magic | payloads of the blocks | index | sha256 of the index | its length | magic

Each tensor is cut into blocks of `Index.block` bytes from its own beginning, the tensors in the order of
the rebuilt file. The index (msgpack, compressed) holds that file's head as it stands, its sha256, the
sha256 of the base's weights files, and kind and length of every payload. It comes last, so that nothing
is held while the payloads are written, and can be fetched alone.

Not here: what a payload means (`blocks.py`), where the base comes from (`source.py`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from stages.delta import SUFFIX
from stages.delta.layout import Layout, Tensor, parse
from stages.delta.pieces import Pieces
from stages.errors import IntegrityError

SCHEMA = "rtrl-delta/1"
HINT = "`rtrl verify --full` names what is damaged; restore it from a copy of objects/ (docs/registry.md)"
_MAGIC = b"rtrl\xcedlt"
_TAIL = struct.Struct("<32sQ8s")
_LONGEST_INDEX = 1 << 32


class Index(msgspec.Struct, frozen=True):
    """What a delta file says of itself.

    Attributes:
        block: bytes of a block; the last one of a tensor may be shorter.
        size, sha256: of the weights file that is rebuilt.
        head: its head, length and JSON.
        base: sha256 (hex) of the base's weights files by name.
        kinds: one byte a block, see `blocks.py`.
        lengths: bytes of each block's payload.
    """

    schema: str
    block: int
    size: int
    sha256: str
    head: bytes
    base: dict[str, str]
    kinds: bytes
    lengths: list[int]


@dataclass(frozen=True)
class Block:
    """Bytes `begin` to `end` of a tensor, counted from its first; `number` counts the file's blocks."""

    tensor: Tensor
    number: int
    begin: int
    end: int


def blocks_of(layout: Layout, size: int) -> Iterator[Block]:
    """The blocks of at most `size` bytes of all tensors, in the order of the file."""
    number = 0
    for tensor in layout.tensors:
        for begin in range(0, tensor.end - tensor.begin, size):
            yield Block(tensor, number, begin, min(begin + size, tensor.end - tensor.begin))
            number += 1


def begin_file(file: BinaryIO) -> None:
    """What comes before the first payload."""
    file.write(_MAGIC)


def end_file(file: BinaryIO, index: Index) -> None:
    """What comes after the last payload."""
    packed = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(index))
    file.write(packed + _TAIL.pack(hashlib.sha256(packed).digest(), len(packed), _MAGIC))


class DeltaFile:
    """An open delta file. Safe to read from several threads.

    Raises (opening): IntegrityError (exit 12) when it is torn, changed, or of another schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pieces = Pieces(path)
        self.index = self._read_index()
        self.layout = parse(self.index.head, self.index.size, f"what {path} stands for")
        blocks = list(blocks_of(self.layout, self.index.block))
        self._first = {block.tensor.name: block.number for block in reversed(blocks)}
        self._tensors = {tensor.name: tensor for tensor in self.layout.tensors}
        lengths = self.index.lengths
        self._at = list(accumulate(lengths, initial=len(_MAGIC)))
        whole = len(blocks) == len(lengths) == len(self.index.kinds) and self._at[-1] == self._payloads_end
        if not whole or min(lengths, default=0) < 0:
            raise self.damaged("its index does not fit its payloads")

    def _read_index(self) -> Index:
        read, tail = self._pieces.read, self._pieces.size - _TAIL.size
        if tail < len(_MAGIC) or read(0, len(_MAGIC)) != _MAGIC:
            raise self.damaged("it is no delta file, or cut short")
        digest, length, magic = _TAIL.unpack(read(tail, tail + _TAIL.size))
        self._payloads_end = tail - length
        if magic != _MAGIC or length > _LONGEST_INDEX or self._payloads_end < len(_MAGIC):
            raise self.damaged("it is cut short")
        packed = read(self._payloads_end, tail)
        if hashlib.sha256(packed).digest() != digest:
            raise self.damaged("its index was changed")
        try:
            index = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(packed), type=Index)
        except (ValueError, zstandard.ZstdError) as error:
            raise self.damaged(f"its index cannot be read ({error})") from error
        if index.schema != SCHEMA or index.block < 8 or index.block % 8:
            raise self.damaged(f"it is of schema {index.schema!r}, not {SCHEMA!r}")
        return index

    @property
    def name(self) -> str:
        """The weights file that it stands for."""
        return self.path.name.removesuffix(SUFFIX)

    def tensor(self, name: str) -> Tensor | None:
        """The tensor of that name in the rebuilt file."""
        return self._tensors.get(name)

    def blocks(self) -> Iterator[Block]:
        """All blocks in the order of the rebuilt file."""
        return blocks_of(self.layout, self.index.block)

    def block(self, tensor: Tensor, begin: int) -> Block:
        """The block of a tensor that holds its byte `begin`."""
        size = self.index.block
        start = begin - begin % size
        number = self._first[tensor.name] + start // size
        return Block(tensor, number, start, min(start + size, tensor.end - tensor.begin))

    def payload(self, block: Block) -> tuple[int, bytes]:
        """Kind and payload of a block."""
        at = self._at[block.number]
        return self.index.kinds[block.number], self._pieces.read(at, at + self.index.lengths[block.number])

    def damaged(self, why: str) -> IntegrityError:
        """The error (exit 12) that says so."""
        return IntegrityError(f"{self.path} is damaged: {why}", hint=HINT)


def delta_files(folder: Path) -> list[DeltaFile]:
    """The delta files of a checkpoint folder, in the order of their names; none for whole weights.

    Raises IntegrityError (exit 12) when one is damaged.
    """
    return [DeltaFile(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
