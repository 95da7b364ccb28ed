"""One block of a tensor as its difference to the same block of the base, and back, bit by bit.

Three ways to say what changed; `encode` takes the smallest (of the last two the one that is smaller for a
part of the block: they are the same work, and no block is worth doing it twice):

    SPARSE       the positions that changed, as gaps to the one before, and the XOR of the bits there
    XOR          the XOR of all elements
    DIFFERENCE   child minus base of the bits as unsigned integers modulo 2**bits, zigzag: small steps of
                 a float stay small where a carry would turn many bits (`0x3f7fffff` to `0x3f800000`)

All are split into byte planes (first the low bytes of all elements, last the high ones) and compressed
with zstd: where weights move little, the planes of sign and exponent are nearly all zero.

Elements are what the file's bytes are, unsigned integers of the element's width: NaNs keep their
payload, and no dtype needs to be known to numpy.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

SAME, SPARSE, XOR, DIFFERENCE = range(4)
LEVEL = 3  # of zstd: what is left after it are random bits, which no level makes smaller
_SPARSE_BELOW = 0.5  # share of changed elements above which positions cost more than they save
_PART = 1 << 15  # elements by which XOR or DIFFERENCE is chosen
_HEAD = struct.Struct("<IB")  # of SPARSE: number of changed elements, bytes of a gap

Bits = NDArray[Any]


class DamagedBlockError(ValueError):
    """A payload that no block was encoded to."""


def encode(child: bytes, base: bytes, width: int) -> tuple[int, bytes]:
    """How `child` follows from `base`, in few bytes.

    Args:
        child, base: equally many bytes, a multiple of `width`.
        width: bytes of an element: 1, 2, 4 or 8.

    Returns:
        The kind (SAME, SPARSE, XOR, DIFFERENCE) and its payload.
    """
    if child == base:
        return SAME, b""
    mine, theirs = _bits(child, width), _bits(base, width)
    changed = mine ^ theirs
    part = slice(0, _PART)
    xor, difference = _planes(changed[part]), _planes(_zigzag(mine[part] - theirs[part]))
    kind = XOR if len(_pack(xor)) < len(_pack(difference)) else DIFFERENCE
    found = [(kind, _pack(_planes(changed if kind == XOR else _zigzag(mine - theirs))))]
    if np.count_nonzero(changed) < _SPARSE_BELOW * changed.size:
        found.append((SPARSE, _encode_sparse(changed)))
    return min(found, key=lambda each: len(each[1]))


def decode(kind: int, payload: bytes, base: bytes, width: int) -> bytes:
    """The child's block. Raises DamagedBlockError when the payload is not of such a block."""
    if kind == SAME:
        if payload:
            raise DamagedBlockError("an unchanged block has a payload")
        return base
    theirs = _bits(base, width)
    if kind == SPARSE:
        return _decode_sparse(payload, theirs).tobytes()
    if kind not in (XOR, DIFFERENCE):
        raise DamagedBlockError(f"a block is of unknown kind {kind}")
    values = _from_planes(_unpack(payload, len(base)), theirs.dtype)
    return bytes((values ^ theirs if kind == XOR else theirs + _unzigzag(values)).tobytes())


def _bits(data: bytes, width: int) -> Bits:
    return np.frombuffer(data, f"<u{width}")


def _planes(values: Bits) -> bytes:
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize).T).tobytes()


def _from_planes(planes: bytes, dtype: np.dtype[Any]) -> Bits:
    found = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(found.T).reshape(-1).view(dtype)


def _zigzag(difference: Bits) -> Bits:
    """0, -1, 1, -2, ... to 0, 1, 2, 3, ...: a small step either way is a small number."""
    signed = difference.view(f"<i{difference.itemsize}")
    return ((signed << 1) ^ (signed >> (8 * signed.itemsize - 1))).view(difference.dtype)


def _unzigzag(values: Bits) -> Bits:
    one = values.dtype.type(1)
    return np.asarray((values >> one) ^ (~(values & one) + one), values.dtype)


def _encode_sparse(changed: Bits) -> bytes:
    where = np.flatnonzero(changed)
    gaps = np.diff(where, prepend=-1) - 1
    width = next(width for width in (1, 2, 4) if int(gaps.max()) < 1 << (8 * width))
    packed = _pack(_planes(gaps.astype(f"<u{width}")) + _planes(changed[where]))
    return _HEAD.pack(where.size, width) + packed


def _decode_sparse(payload: bytes, theirs: Bits) -> Bits:
    if len(payload) < _HEAD.size:
        raise DamagedBlockError("a block's list of changes is cut short")
    count, width = _HEAD.unpack_from(payload)
    if width not in (1, 2, 4) or not 0 < count <= theirs.size:
        raise DamagedBlockError("a block's list of changes has no such form")
    planes = _unpack(payload[_HEAD.size :], count * (width + theirs.itemsize))
    gaps = _from_planes(planes[: count * width], np.dtype(f"<u{width}"))
    where = np.cumsum(gaps.astype(np.int64) + 1) - 1
    if where[-1] >= theirs.size:
        raise DamagedBlockError("a change lies outside of its block")
    child = theirs.copy()
    child[where] ^= _from_planes(planes[count * width :], theirs.dtype)
    return child


def _pack(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data)


def _unpack(payload: bytes, size: int) -> bytes:
    try:
        if zstandard.frame_content_size(payload) != size:  # else a damaged length could ask for any memory
            raise DamagedBlockError("a block has another size")
        return zstandard.ZstdDecompressor().decompress(payload)
    except zstandard.ZstdError as error:
        raise DamagedBlockError(f"a block does not decompress: {error}") from error
