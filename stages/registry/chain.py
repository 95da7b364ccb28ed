"""Checkpoints whose weights are deltas: which one each is a delta to, down to one whose weights are whole.

The base of a delta is the artifact's `base` (in its manifest and its row); gc keeps bases. Not here: where
rebuilt weights are kept (`rebuilt.py`), what a delta is (`stages/delta/`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import IntegrityError
from stages.registry.objects import read_manifest
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.delta.source import DeltaWeights, Weights
    from stages.registry.store import Store

WEIGHTS = ".safetensors"
HINT = "`rtrl verify --full` says what is missing; restore it from a copy of objects/ (docs/registry.md)"


def chain(store: Store, checkpoint: Artifact) -> list[Artifact]:
    """The checkpoint, its base, the base's base, ... down to the first whose weights are whole.

    Raises:
        IntegrityError: (exit 12) a base is not in the store.
    """
    found = [checkpoint]
    while (base := found[-1].base) is not None:
        artifact = store.artifact(base)
        if artifact is None or base in {one.digest for one in found}:
            raise IntegrityError(
                f"{found[-1].ref} is a delta to {base}, which is not in the store", hint=HINT
            )
        found.append(artifact)
    return found


def weights_of(
    store: Store, checkpoint: Artifact, whole: Callable[[Artifact], Path | None] = lambda _: None
) -> DeltaWeights:
    """The weights of a checkpoint that is a delta, read through its chain.

    Args:
        whole: a folder with the rebuilt weights of a checkpoint further down, where there is one; the
            chain is followed no further then.

    Raises:
        IntegrityError: (exit 12) a file of the chain is missing or damaged, or does not fit the next.
    """
    from stages.delta.file import delta_files
    from stages.delta.source import DeltaWeights, WholeWeights

    deltas = []
    weights: Weights | None = None
    try:
        for artifact in chain(store, checkpoint):
            if artifact.base is None:
                weights = WholeWeights(*whole_files(artifact))
                break
            files = delta_files(artifact.path)
            if not files:
                raise IntegrityError(f"{artifact.ref} has no delta file", hint=HINT)
            if artifact is not checkpoint and (folder := whole(artifact)) is not None:
                digests = {file.name: file.index.sha256 for file in files}
                weights = WholeWeights([folder / name for name in digests], digests)
                break
            deltas.append(files)
    except FileNotFoundError as error:
        raise IntegrityError(f"{error.filename} is missing", hint=HINT) from error
    assert weights is not None
    found: DeltaWeights | None = None
    for files in reversed(deltas):
        found = DeltaWeights(files, found or weights)
    assert found is not None, f"{checkpoint.ref} is no delta"
    return found


def whole_files(artifact: Artifact) -> tuple[list[Path], dict[str, str]]:
    """The weights files of a whole checkpoint, and their sha256 as its manifest has them."""
    files = read_manifest(artifact.path, artifact.digest)["files"]
    digests = {str(file["path"]): str(file["sha256"]) for file in files if _is_weights(str(file["path"]))}
    return [artifact.path / name for name in sorted(digests)], digests


def _is_weights(name: str) -> bool:
    """Not those in folders of their own: an adapter beside the weights is none of them."""
    return name.endswith(WEIGHTS) and "/" not in name
