"""Writing what a child's weights files are as deltas to a base.

Not here: whether that is what gets published (`stages/train/export.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from stages import faults
from stages.delta import SUFFIX, blocks
from stages.delta.file import SCHEMA, Block, Index, begin_file, blocks_of, end_file
from stages.delta.layout import read_layout
from stages.delta.pieces import Pieces
from stages.delta.source import Weights
from stages.delta.threads import in_order

BLOCK = 1 << 22  # bytes; a multiple of every element's width


def write_delta(child: Path, base: Weights, *, block: int = BLOCK) -> Path:
    """Write `<child>.delta` beside a safetensors file and return its path. The child stays as it is.

    Args:
        block: bytes of a block, a multiple of 8. A few blocks a core are in memory at a time.

    Raises:
        IntegrityError: (exit 12) the child is no safetensors file, or the base is damaged.
        OSError: the disk is full.
    """
    layout = read_layout(child)
    target = child.with_name(child.name + SUFFIX)
    digest = hashlib.sha256(layout.head)
    kinds, lengths = bytearray(), []
    pieces = Pieces(child)

    def encoded(one: Block) -> tuple[bytes, int, bytes]:
        tensor = one.tensor
        mine = pieces.read(tensor.begin + one.begin, tensor.begin + one.end)
        theirs = base.read(tensor.name, tensor.dtype, one.begin, one.end)
        return mine, *blocks.encode(mine, theirs, tensor.width)

    faults.point("delta.write.before")
    with target.open("wb") as file:
        begin_file(file)
        for mine, kind, payload in in_order(encoded, blocks_of(layout, block)):
            digest.update(mine)
            kinds.append(kind)
            lengths.append(len(payload))
            file.write(payload)
        end_file(
            file,
            Index(
                schema=SCHEMA,
                block=block,
                size=layout.size,
                sha256=digest.hexdigest(),
                head=layout.head,
                base=dict(base.digests),
                kinds=bytes(kinds),
                lengths=lengths,
            ),
        )
    faults.point("delta.write.after")
    return target


def size_of(files: Sequence[Path]) -> int:
    """Bytes of all files together."""
    return sum(path.stat().st_size for path in files)
