"""The weights that an engine's worker held before, kept in its own memory: back without reading a file.

A matrix that was packed for the CPU stays in its kernel, and the kernel is kept; what lies open is copied.
Checksums that were taken when the weights were compared with their file tell whether they are whole again.
Part of the worker: torch is imported. Not here: which weights are wanted (`update.py`), files (`held.py`).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from stages.engine.held import Kernel, kernel_of, product

GIB = 2.0**30
LEFT_FREE = 0.1  # of the machine's memory, beside what is kept
GROUPS = 16  # rows of the product by which a kernel is known again
PIECE = 1 << 20  # elements summed at a time
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
UNPROVEN = "what was held was not proven to be sound"
PRIME = (1 << 61) - 1


@dataclass(frozen=True)
class Proof:
    """Weights that were found to be those of `key`.

    Attributes:
        sums: checksum by parameter, and by module for packed ones.
        tensors, parameters: of the file that they were compared with.
    """

    key: str
    sums: dict[str, int]
    tensors: int
    parameters: int

    def compare(self, model: torch.nn.Module) -> dict[str, Any]:
        """As `held.compare`, with the checksums in the place of a file; names are the engine's own."""
        found = sums(model)
        return {
            "tensors": self.tensors,
            "different": [name for name in found | self.sums if found.get(name) != self.sums.get(name)],
            "file_mismatch": [],
            "unchecked": [],
            "parameters": self.parameters,
            "parameters_checked": self.parameters,
        }


@dataclass(frozen=True)
class Kept:
    """What a model held: kernels by module, copies of open tensors by name."""

    proof: Proof
    kernels: dict[str, Kernel]
    tensors: dict[str, torch.Tensor]


def proof_of(model: torch.nn.Module, key: str, report: dict[str, Any]) -> Proof:
    """For weights that `held.compare` has found to be those of their file."""
    return Proof(key, sums(model), report["tensors"], report["parameters"])


def keep(model: torch.nn.Module, proof: Proof) -> Kept:
    """What the model holds now. Its next load makes new kernels, so that these stay as they are."""
    tensors = {name: each.detach().to("cpu", copy=True) for name, each in open_tensors(model).items()}
    return Kept(proof, kernels(model), tensors)


def put_back(model: torch.nn.Module, kept: Kept) -> None:
    """The model computes with what was kept from now on."""
    modules = dict(model.named_modules())
    for name, kernel in kept.kernels.items():
        modules[name].cpu_linear = kernel
    with torch.no_grad():
        for name, tensor in open_tensors(model).items():
            tensor.copy_(kept.tensors[name])


def without_room(
    model: torch.nn.Module,
    proof: Proof | None,
    limit_gib: float | None,
    free: float | None = None,
    *,
    beside: int = 0,
) -> str:
    """Why weights as large as those the model holds are not kept beside them; "" when they are.

    Args:
        free: bytes, default what the machine and this process's control group have.
        beside: how many others are kept already.
    """
    if limit_gib == 0:
        return "engine.resident_gib is 0"
    if proof is None:
        return UNPROVEN
    size = next(model.parameters()).dtype.itemsize
    wanted = proof.parameters * size
    if limit_gib is not None and (1 + beside) * wanted > limit_gib * GIB:
        return f"{(1 + beside) * wanted / GIB:.2f} GiB wanted, engine.resident_gib is {limit_gib:g}"
    free = free_memory() if free is None else free
    if wanted > free:
        return f"{wanted / GIB:.2f} GiB wanted, {max(free, 0) / GIB:.2f} to spare"
    return ""


def free_memory() -> float:
    """Bytes that can be taken so that LEFT_FREE of the memory stays free."""
    memory = psutil.virtual_memory()
    free, total = float(memory.available), float(memory.total)
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            total = min(total, float(limit))
            free = min(free, float(limit) - float((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control groups of the second version: the machine's memory counts
    return free - LEFT_FREE * total


def sums(model: torch.nn.Module, only: Container[str] | None = None) -> dict[str, int]:
    """Checksum of every open tensor by its name, and of what every packed one computes by its module.

    Args:
        only: names that are wanted; None for all.
    """
    there = open_tensors(model).items()
    found = {name: checksum(each) for name, each in there if only is None or name in only}
    for name, module in model.named_modules():
        if (kernel := kernel_of(module)) is not None and (only is None or name in only):
            found[name] = packed_sum(module, kernel)
    return found


def packed_sum(module: torch.nn.Module, kernel: Kernel) -> int:
    """Checksum of what a kernel computes in the place of the module's own."""
    return checksum(packed_product(module, kernel))


def packed_product(module: torch.nn.Module, kernel: Kernel) -> torch.Tensor:
    """The rows by which a kernel in the place of the module's own is known again."""
    known: Any = module
    return product(kernel, known.weight, _inputs(known), known.weight.dtype, GROUPS)


def checksum(tensor: torch.Tensor) -> int:
    """Multilinear hash of the elements' bits, modulo 2^64: sum of m[i] x[i] over each piece of PIECE
    elements, with fixed random odd m below 2^31; the pieces' sums are the digits of a number to the base
    2^61 - 1. One changed element always changes it (m[i] is odd). The multilinear family is in D. Lemire
    and O. Kaser, "Strongly universal string hashing is fast", 2014.
    """
    bits = tensor.detach().contiguous().view(-1).view(BITS[tensor.element_size()])
    odd = _multipliers(PIECE, bits.device)
    total: int = bits.numel()
    for piece in bits.split(PIECE):
        total = (total * PRIME + int((piece.to(torch.int64) * odd[: piece.numel()]).sum())) % (1 << 64)
    return total


@cache
def _multipliers(count: int, device: torch.device) -> torch.Tensor:
    """The m of `checksum`: [count] int64; the same for every tensor."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(0, 1 << 30, (count,), generator=generator) * 2 + 1).to(device)


def kernels(model: torch.nn.Module) -> dict[str, Kernel]:
    """What computes with packed matrices, by module."""
    found = {name: kernel_of(module) for name, module in model.named_modules()}
    return {name: kernel for name, kernel in found.items() if kernel is not None}


def open_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that the model computes with as they lie, each once: tied ones have several names."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}  # each leaves out repeats
    persistent = model.state_dict(keep_vars=True)
    return {name: each for name, each in named.items() if name in persistent and each.numel()}


def _inputs(module: torch.nn.Module) -> int:
    """Columns of a packed matrix."""
    known: Any = module
    if known.weight.numel():
        return int(known.weight.shape[1])
    return int(getattr(known, "input_size_per_partition", None) or known.embedding_dim)
