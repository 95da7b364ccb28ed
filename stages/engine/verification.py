"""Is this checkpoint really what the engine serves? Judges what was measured against the fingerprint.

A checkpoint's `served_fingerprint.json` (written when it was trained or imported) holds probe token ids with
their float32 logprobs under parent and child, and a sha256 per tensor. Pure: no engine and no
network here; `update.py` and `inprocess.py` bring the served figures.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from stages.engine.config import Dtype
from stages.engine.remembered import remembered
from stages.errors import IntegrityError

FILE = "served_fingerprint.json"
SCHEMA = "rtrl-fingerprint/1"

# |served - expected| logprob, nats: (mean, largest) that rounding explains. Measured on CPU:
# float32 1.2e-5 at most; bfloat16 0.022 mean, 0.135 at most.
TOLERANCE: dict[str, tuple[float, float]] = {
    "float32": (1e-3, 1e-2),
    "bfloat16": (0.08, 1.0),
    "float16": (0.02, 0.3),
}
DECIDED = 4.0  # standard errors between the slope and one half

Source = Literal["file", "memory", "staged", "adapter"]
ProbeVerdict = Literal["child", "parent", "neither", "undecided"]


class Logprobs(msgspec.Struct, frozen=True):
    """Per probe, `len(ids) - 1` logprobs: entry t is log p(ids[t+1] | ids[:t+1]), temperature 1."""

    child: list[list[float]]
    parent: list[list[float]] | None = None


class TensorSum(msgspec.Struct, frozen=True):
    """sha256 over the tensor's C-contiguous little-endian float32 bytes, and its number of elements."""

    sha256: str
    numel: int


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `served_fingerprint.json`."""

    schema: str
    probes: list[list[int]]
    logprobs: Logprobs
    tensors: dict[str, TensorSum]


@remembered
def read_fingerprint(checkpoint_dir: Path) -> Fingerprint:
    """The checkpoint's fingerprint. Raises IntegrityError when absent, unreadable or inconsistent."""
    path = checkpoint_dir / FILE
    hint = "without it nobody can tell what an engine serves; publish the checkpoint again"
    if not path.is_file():
        raise IntegrityError(f"{checkpoint_dir} has no {FILE}", hint=hint)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Fingerprint)
    except ValueError as error:
        raise IntegrityError(f"{path} cannot be read: {error}", hint=hint) from error
    if found.schema != SCHEMA:
        raise IntegrityError(f"{path} has schema {found.schema!r}, not {SCHEMA!r}", hint=hint)
    wanted = [len(ids) - 1 for ids in found.probes]
    for name, rows in (("child", found.logprobs.child), ("parent", found.logprobs.parent)):
        if rows is not None and [len(row) for row in rows] != wanted:
            raise IntegrityError(f"{path}: {name} logprobs do not match the probes in length", hint=hint)
    if sum(wanted) == 0 or not found.tensors:
        raise IntegrityError(f"{path} has no probes or no tensors", hint=hint)
    return found


def weights_key(fingerprint: Fingerprint) -> str:
    """What stands for the values of all weights: sha256 over names and sums of the tensors, in order."""
    sums = sorted((name, entry.sha256) for name, entry in fingerprint.tensors.items())
    return hashlib.sha256(msgspec.json.encode(sums)).hexdigest()


def first_probes(fingerprint: Fingerprint, count: int) -> Fingerprint:
    """The same with its first `count` probes only."""
    logprobs = fingerprint.logprobs
    parent = None if logprobs.parent is None else logprobs.parent[:count]
    return msgspec.structs.replace(
        fingerprint, probes=fingerprint.probes[:count], logprobs=Logprobs(logprobs.child[:count], parent)
    )


@dataclass(frozen=True)
class ProbeReport:
    """Which model the served logprobs are of. Logprobs in nats, per token."""

    verdict: ProbeVerdict
    tokens: int
    slope: float | None  # 1 child, 0 parent; None without a parent that differs
    slope_error: float | None
    mean_abs: float  # |served - child|
    max_abs: float


def judge_probes(expected: Logprobs, served: Sequence[Sequence[float]], dtype: Dtype) -> ProbeReport:
    """Tell child from parent from neither.

    Regression through the origin of y = served - parent on x = child - parent over n tokens:
    slope b = sum(xy) / sum(x^2), standard error sqrt(sum((y - bx)^2) / (n - 1) / sum(x^2)).
    Rounding noise adds to the residual and cancels in b, so b tells steps far below the noise of
    one token. `child` when b lies DECIDED standard errors above 1/2, `parent` when as far below,
    `undecided` between (or when parent and child agree on every probe). Before that the served
    logprobs must lie within the dtype's TOLERANCE of child or parent, else `neither`.
    """
    if [len(row) for row in served] != [len(row) for row in expected.child]:
        raise IntegrityError("the engine returned another number of probe logprobs than asked for")
    got = _flat(served)
    child = _flat(expected.child)
    off_child = np.abs(got - child)
    mean_abs, max_abs = float(off_child.mean()), float(off_child.max())
    mean_limit, max_limit = TOLERANCE[dtype]
    near_child = bool(np.isfinite(got).all()) and mean_abs <= mean_limit and max_abs <= max_limit

    def report(verdict: ProbeVerdict, slope: float | None = None, error: float | None = None) -> ProbeReport:
        return ProbeReport(verdict, int(got.size), slope, error, mean_abs, max_abs)

    if expected.parent is None:
        return report("child" if near_child else "neither")
    parent = _flat(expected.parent)
    x = child - parent
    xx = float(x @ x)
    if xx == 0.0:
        return report("undecided" if near_child else "neither")
    off_parent = np.abs(got - parent)
    near_parent = float(off_parent.mean()) <= mean_limit and float(off_parent.max()) <= max_limit
    if not near_child and not near_parent:
        return report("neither")
    y = got - parent
    slope = float(x @ y) / xx
    residual = y - slope * x
    error = math.sqrt(float(residual @ residual) / max(got.size - 1, 1) / xx)
    if slope - 0.5 > DECIDED * error:
        return report("child" if near_child else "neither", slope, error)
    if 0.5 - slope > DECIDED * error:
        return report("parent" if near_parent else "neither", slope, error)
    return report("undecided", slope, error)


def _flat(rows: Sequence[Sequence[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.concatenate([np.asarray(row, dtype=np.float64) for row in rows])


@dataclass(frozen=True)
class TensorReport:
    """What the engine's workers hold, compared with the checkpoint's file (`worker.compare`)."""

    tensors: int
    different: tuple[str, ...]  # held values are not the file's
    file_mismatch: tuple[str, ...]  # the file's tensor is not what the fingerprint says
    unchecked: tuple[str, ...]  # no way to read back what is held
    parameters: int
    parameters_checked: int

    @property
    def complete(self) -> bool:
        return self.parameters_checked == self.parameters


def tensor_report(answer: dict[str, Any]) -> TensorReport:
    """The worker's answer to `rtrl_verify` as a type."""
    return TensorReport(
        tensors=int(answer["tensors"]),
        different=tuple(answer["different"]),
        file_mismatch=tuple(answer["file_mismatch"]),
        unchecked=tuple(answer["unchecked"]),
        parameters=int(answer["parameters"]),
        parameters_checked=int(answer["parameters_checked"]),
    )


@dataclass(frozen=True)
class Verification:
    """The proof that an engine serves a checkpoint.

    Attributes:
        source: where the engine had the weights from: its own memory, where they had been kept, or staged
            while it served others, a file, or the adapter's file, beside what is resident.
        keeps: why the engine does not keep the weights before beside them; "" when it does.
        unstaged: why they were not staged; "" when they were, or nobody asked.
    """

    checkpoint_dir: str
    tensors: TensorReport
    probes: ProbeReport
    source: Source = "file"
    keeps: str = ""
    unstaged: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    def require(self) -> Verification:
        """Itself, or IntegrityError that says what is served instead."""
        tensors, probes = self.tensors, self.probes
        hint = "the weights in the engine are not this checkpoint's; see the engine's log"
        if tensors.file_mismatch:
            raise not_published(self.checkpoint_dir, tensors.file_mismatch)
        if tensors.different:
            raise IntegrityError(f"the engine holds other values for {_some(tensors.different)}", hint=hint)
        if probes.verdict == "parent":
            raise IntegrityError(
                f"the engine still answers as the parent (slope {probes.slope:.2f})", hint=hint
            )
        if probes.verdict == "neither":
            raise IntegrityError(
                "the engine answers neither as this checkpoint nor as its parent "
                f"(logprobs {probes.mean_abs:.3g} off on average, {probes.max_abs:.3g} at most)",
                hint=hint,
            )
        if probes.verdict == "undecided" and not tensors.complete:
            raise IntegrityError(
                "the probes cannot tell this checkpoint from its parent, and "
                f"{len(tensors.unchecked)} tensors could not be read back",
                hint="publish the checkpoint with more probe tokens",
            )
        return self


def not_published(checkpoint_dir: Path | str, names: Sequence[str]) -> IntegrityError:
    """The tensors of a folder's file are not those of its fingerprint."""
    return IntegrityError(
        f"the weight file in {checkpoint_dir} is not what was published: {_some(names)}",
        hint="run `rtrl verify --full`",
    )


def _some(names: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def stale(what: str) -> IntegrityError:
    """The error of a prefix cache that an update did not empty; `what` says what was found of it."""
    return IntegrityError(
        f"the engine answers from keys and values of the old weights ({what})",
        hint="it said that its prefix cache was dropped; see the engine's log",
    )
