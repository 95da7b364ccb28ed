"""Another checkpoint's folder, found from one's own by where the store puts them: the registry is not asked.

For whoever serves a checkpoint and needs its base, also while the registry is busy. Not for a checkpoint
whose whole folder would have to be rebuilt first (`rebuilt.py` does that).
"""

from __future__ import annotations

from pathlib import Path

from stages.registry.objects import object_path
from stages.registry.rebuilt import FOLDER


def whole_neighbour(folder: Path, digest: str) -> Path | None:
    """The folder of the checkpoint `digest` with its weights, in the store that `folder` is of; else None."""
    rebuilt = folder.parent.name == FOLDER
    if not rebuilt and len(folder.parents) < 4:
        return None
    store = folder.parents[1] if rebuilt else folder.parents[3]
    found = object_path(store / "objects", digest), store / FOLDER / digest.removeprefix("sha256:")
    return next((each for each in found if any(each.glob("*.safetensors"))), None)
