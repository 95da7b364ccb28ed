"""A child checkpoint as its difference to its parent, where that is smaller.

Not here: the difference itself (`stages/delta/`), who rebuilds it (`Store.checkpoint_folder`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import modelio
from stages.delta.file import delta_files
from stages.delta.rebuild import check
from stages.delta.source import DeltaWeights
from stages.delta.write import size_of, write_delta
from stages.registry.chain import chain
from stages.registry.rebuilt import whole_weights
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store


@dataclass(frozen=True)
class Published:
    """How a checkpoint's weights are published.

    Attributes:
        base: digest of the checkpoint that they are a delta to; None for whole ones.
        chain: deltas in a row, this one included, down to whole weights.
        bytes, whole_bytes: of what is published, and of the whole weights files.
        seconds: that writing the delta and rebuilding it took.
    """

    base: str | None
    chain: int
    bytes: int
    whole_bytes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For metrics and logs."""
        return asdict(self)


def as_delta(folder: Path, parent: Artifact, store: Store, longest: int) -> Published:
    """Replace the weights files of `folder` by their deltas to the parent, if that makes them smaller.

    What is kept was rebuilt before the whole files went, and had their sha256. The files stay whole when
    the chain would be longer than `longest` (0: always) or the deltas are not smaller.

    Raises:
        IntegrityError: (exit 12) the parent is damaged, or a delta does not rebuild its file.
        OSError: the disk is full.
    """
    began = time.monotonic()
    whole = modelio.weight_files(folder)
    size, links = size_of(whole), len(chain(store, parent))
    if links > longest:
        return Published(None, 0, size, size, 0.0)
    base = whole_weights(store, parent)
    deltas = [write_delta(path, base) for path in whole]
    smaller = size_of(deltas) < size
    if smaller:
        check(DeltaWeights(delta_files(folder), base))
    for path in whole if smaller else deltas:
        path.unlink()
    seconds = time.monotonic() - began
    if not smaller:
        return Published(None, 0, size, size, seconds)
    return Published(parent.digest, links, size_of(deltas), size, seconds)
