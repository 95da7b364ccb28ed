"""Where the tensors of a safetensors file lie: 8 bytes with the length of a JSON head, the head, the data.

The format is that of https://github.com/huggingface/safetensors: the tensors' offsets cover the data
without holes. Not for: values of tensors (the library reads those); here are only their bytes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from stages.errors import IntegrityError

HINT = "rtrl verify --full"
_LENGTH = struct.Struct("<Q")
_LONGEST_HEAD = 100_000_000  # bytes, the library's own limit
_WIDTHS = {"16": 2, "32": 4, "64": 8}  # bytes of an element by the bits in its dtype's name; else 1


@dataclass(frozen=True)
class Tensor:
    """One tensor: its name, dtype as the file says it ("BF16"), and where its bytes lie in the file."""

    name: str
    dtype: str
    begin: int
    end: int

    @property
    def width(self) -> int:
        """Bytes of the elements to compare: of the dtype, 1 for those of a byte or less, and unknown ones."""
        width = _WIDTHS.get(self.dtype.lstrip("BCFIU"), 1)
        return width if (self.end - self.begin) % width == 0 else 1


@dataclass(frozen=True)
class Layout:
    """A file's head, its size in bytes, and its tensors in the order of their bytes."""

    head: bytes
    size: int
    tensors: tuple[Tensor, ...]


def read_layout(path: Path) -> Layout:
    """The layout of a safetensors file. Raises IntegrityError (exit 12) when it is not one."""
    with path.open("rb") as file:
        first = file.read(_LENGTH.size)
        length = _LENGTH.unpack(first)[0] if len(first) == _LENGTH.size else _LONGEST_HEAD + 1
        head = first + file.read(length) if length <= _LONGEST_HEAD else first
    return parse(head, path.stat().st_size, str(path))


def parse(head: bytes, size: int, what: str) -> Layout:
    """The layout that `head` (length and JSON) describes, of a file of `size` bytes called `what`.

    Raises IntegrityError (exit 12) when it is damaged or its tensors do not cover the file.
    """
    try:
        (length,) = _LENGTH.unpack_from(head)
        if len(head) != _LENGTH.size + length:
            raise ValueError("its head is cut short")
        described = json.loads(head[_LENGTH.size :])
        tensors = [
            Tensor(name, str(one["dtype"]), *(len(head) + int(offset) for offset in one["data_offsets"]))
            for name, one in described.items()
            if name != "__metadata__"
        ]
        tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
        at = len(head)
        for tensor in tensors:
            if tensor.begin != at or tensor.end < at:
                raise ValueError(f"tensor {tensor.name} does not begin where the one before ends")
            at = tensor.end
        if at != size:
            raise ValueError(f"its tensors end at byte {at} of {size}")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"{what} is no safetensors file: {error}", hint=HINT) from error
    return Layout(head, size, tuple(tensors))
