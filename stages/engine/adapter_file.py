"""Is a checkpoint's merged weights file its base and its adapter? By their bytes, before it is served.

An engine that serves base and adapter never reads the merged weights, which are what was published, judged
and is trained on. Not here: what the engine holds (`adapter_held.py`) and answers (`verification.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.delta.layout import Tensor, read_layout
from stages.delta.pieces import Pieces
from stages.engine.adapter import WEIGHTS, Adapter
from stages.engine.verification import Fingerprint
from stages.engine.weights_file import as_float32
from stages.errors import IntegrityError

Array = NDArray[np.float32]
PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
# What rounding to a dtype may move a value by, as a share of it; float32 also sums in another order.
ROUNDING = {"F32": 2.0**-20, "BF16": 2.0**-8, "F16": 2.0**-11}
SLOPE_OFF = 0.05
ERRORS = 4.0  # standard errors of the slope that are allowed beside


@dataclass
class Slope:
    """Regression through the origin of what was added to the weights on what the adapter says, over all
    elements: 1 where all of it was, 0 where none was. It sees steps below the rounding of one value."""

    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    count: int = 0

    def add(self, said: Array, found: Array) -> None:
        """The elements of one matrix."""
        x, y = said.astype(np.float64).ravel(), found.astype(np.float64).ravel()
        self.xx, self.xy, self.yy = self.xx + float(x @ x), self.xy + float(x @ y), self.yy + float(y @ y)
        self.count += len(x)

    @property
    def value(self) -> float:
        return self.xy / self.xx

    @property
    def error(self) -> float:
        rest = max(self.yy - self.xy * self.value, 0.0)
        return math.sqrt(rest / max(self.count - 1, 1) / self.xx)


@dataclass
class Folder:
    """The tensors of a checkpoint's weights files, by name."""

    directory: Path
    at: dict[str, tuple[Pieces, Tensor, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.directory.glob("*.safetensors")):
            pieces, layout = Pieces(path), read_layout(path)
            head = json.loads(layout.head[8:])
            self.at |= {each.name: (pieces, each, head[each.name]["shape"]) for each in layout.tensors}

    def read(self, name: str) -> tuple[Array, str]:
        """Values as float32, and the dtype that they have in the file. Raises IntegrityError (12)."""
        if name not in self.at:
            raise IntegrityError(f"{self.directory} has no {name}", hint="run `rtrl verify --full`")
        pieces, tensor, shape = self.at[name]
        data = as_float32(pieces.read(tensor.begin, tensor.end), tensor.dtype)
        return np.frombuffer(data, "<f4").reshape(shape), tensor.dtype


def adapter_matrices(adapter: Adapter) -> dict[str, tuple[Array, Array]]:
    """A [rank, in] and B [out, rank] by the name of the layer. Raises IntegrityError (12)."""
    folder = Folder(adapter.folder)
    found = {}
    for name in folder.at:
        layer = name.removeprefix(PREFIX).removesuffix(A)
        if name.endswith(A):
            found[layer] = folder.read(name)[0], folder.read(f"{PREFIX}{layer}{B}")[0]
    if 2 * len(found) != len(folder.at):
        raise IntegrityError(f"{adapter.folder / WEIGHTS} holds more than A and B", hint="rtrl verify --full")
    return found


def require_merged(
    checkpoint_dir: Path, expected: Fingerprint, base_dir: Path, base: Fingerprint, adapter: Adapter
) -> None:
    """Raise IntegrityError (12) unless the checkpoint is its base with its adapter.

    Tensors without an adapter have the base's sha256. A matrix with one is read from both files, looked up in
    both fingerprints, and base + scale B A lies within the file's rounding of the merged one. In files of
    bfloat16 a small step lies below that, so that the `Slope` over all matrices has to be 1: weights that
    were rounded until the step was gone are another policy than base and adapter.
    """
    matrices = adapter_matrices(adapter)
    adapted = {f"{layer}.weight": parts for layer, parts in matrices.items()}
    other = [
        name
        for name in expected.tensors.keys() | base.tensors.keys()
        if name not in adapted and _sum(expected, name) != _sum(base, name)
    ]
    if other or (lost := sorted(adapted.keys() - expected.tensors.keys())):
        name = sorted(other or lost)[0]
        raise _differs(checkpoint_dir, f"{name} is not its base's, and has no adapter")
    merged_file, base_file, slope = Folder(checkpoint_dir), Folder(base_dir), Slope()
    for name, (a, b) in adapted.items():
        (merged, dtype), (before, base_dtype) = merged_file.read(name), base_file.read(name)
        for values, of, folder in ((merged, expected, checkpoint_dir), (before, base, base_dir)):
            if hashlib.sha256(values.tobytes()).hexdigest() != _sum(of, name):
                raise IntegrityError(
                    f"{name} in {folder} is not what was published", hint="rtrl verify --full"
                )
        step = np.float32(adapter.scale) * (b @ a)
        if step.shape != merged.shape:
            raise _differs(checkpoint_dir, f"the adapter of {name} has shape {step.shape}")
        share = max(ROUNDING[dtype], ROUNDING[base_dtype])
        allowed = share * (np.abs(merged) + np.abs(before) + np.abs(step).max(initial=0.0))
        if (off := np.abs(merged - before - step) - allowed).max(initial=0.0) > 0:
            raise _differs(checkpoint_dir, f"{name} is {off.max():.2g} off at most")
        slope.add(step, merged - before)
    if slope.xx and abs(slope.value - 1) > SLOPE_OFF + ERRORS * slope.error:
        raise _differs(checkpoint_dir, f"{slope.value:.0%} of the adapter is in them")


def _sum(fingerprint: Fingerprint, name: str) -> str:
    entry: Any = fingerprint.tensors.get(name)
    return entry.sha256 if entry is not None else ""


def _differs(checkpoint_dir: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"the weights in {checkpoint_dir} are not its base with its adapter: {why}",
        hint="set engine.lora_rank to 0 to serve the merged weights, or publish the checkpoint again",
    )
