"""Safetensors files of any dtype, out of raw bytes: what numpy and torch have no type for too."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st
from safetensors import safe_open

Raw = tuple[str, tuple[int, ...], bytes]  # dtype, shape, bytes

WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip


def save(path: Path, tensors: Mapping[str, Raw], metadata: Mapping[str, str] | None = None) -> Path:
    """Write the file; the library must accept it."""
    head: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with safe_open(path, framework="np") as file:
        assert set(file.keys()) == set(tensors)
    return path


@st.composite
def raw_tensors(draw: st.DrawFn) -> Raw:
    """Any dtype, scalars and empty ones among them, any bytes: NaNs with every payload."""
    dtype = draw(st.sampled_from(sorted(WIDTHS)))
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    size = WIDTHS[dtype]
    for length in shape:
        size *= length
    if draw(st.booleans()):  # long runs and few values, as in real weights; else any
        return dtype, shape, (draw(st.binary(min_size=1, max_size=8)) * (size + 1))[:size]
    return dtype, shape, draw(st.binary(min_size=size, max_size=size))


@st.composite
def families(draw: st.DrawFn) -> tuple[dict[str, Raw], ...]:
    """Two to four generations: each keeps, changes, reshapes, drops and adds tensors."""
    names = st.sampled_from(["a", "b.weight", "c", "ü", "layers.0"])
    current = draw(st.dictionaries(names, raw_tensors(), max_size=4))
    found = [current]
    for _ in range(draw(st.integers(1, 3))):
        current = {name: _changed(draw, raw) for name, raw in current.items() if draw(st.integers(0, 4))}
        current |= draw(st.dictionaries(names, raw_tensors(), max_size=1))
        found.append(dict(draw(st.permutations(list(current.items())))))
    return tuple(found)


def _changed(draw: st.DrawFn, raw: Raw) -> Raw:
    dtype, shape, data = raw
    if not data or draw(st.booleans()):
        return raw
    new = bytearray(data)
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=5)):
        new[place] = draw(st.integers(0, 255))
    if draw(st.integers(0, 4)) == 0:  # a row more: a larger vocabulary
        row = len(data) // shape[0] if shape else 0
        return dtype, (shape[0] + 1, *shape[1:]) if row else shape, bytes(new) + bytes(new[:row])
    return dtype, shape, bytes(new)
