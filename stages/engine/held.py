"""What vLLM's model really holds, against the tensors of a checkpoint's files.

Part of the worker: torch is imported, so only `worker.py` imports this. Not here: loading (`worker.py`), and
weights that were held before (`resident.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

# Rows of the product by which a packed matrix is compared: each sums another share of its columns.
GROUPS = 64
ROUNDINGS = 8
CONV1D = ("c_attn", "c_proj", "c_fc")  # of GPT-2: what vLLM reads with rows and columns exchanged
SAMPLED = 16  # every 16th row tells the usual size of a column

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
Read = Callable[[str], torch.Tensor]  # the file's tensor of that name


def files_of(directory: Path) -> list[Path]:
    """The weights files, in order. Raises ValueError without one."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{directory} holds no safetensors file")
    return files


def headers(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors by name."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files_of(directory):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                found[name] = tuple(handle.get_slice(name).get_shape())
    return found


def tensors_of(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors with their names."""
    for file in files_of(directory):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                yield name, handle.get_tensor(name)


def _same(wanted: torch.Tensor, held: torch.Tensor, loaded_as: torch.dtype | None = None) -> bool:
    """Bit by bit, in the dtype it lies in or, rounded on its way there, in the one it was loaded as.

    Where vLLM packs bfloat16 for AMX, it keeps a bias in float32 beside it: at the start made of the bfloat16
    one, after a reload as the file has it.
    """
    return wanted.shape == held.shape and any(
        torch.equal(wanted.to(dtype).to(held.dtype), held.cpu())
        for dtype in dict.fromkeys((held.dtype, loaded_as or held.dtype))
    )


def is_embedding(module: torch.nn.Module) -> bool:
    """Whether its weight has a row per token."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    return isinstance(module, VocabParallelEmbedding)


def is_head(module: torch.nn.Module) -> bool:
    """Whether it gives the logits."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    return isinstance(module, ParallelLMHead)


def plain_modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """By the names that they have without adapters: a layer with room for one is another's `base_layer`."""
    return {
        name.replace(".base_layer", ""): module
        for name, module in model.named_modules()
        if not hasattr(module, "base_layer")
    }


class Place(NamedTuple):
    """Rows `start` to `start + rows` of a module's parameter, which compute with a tensor of the file."""

    module: torch.nn.Module
    parameter: str
    start: int
    rows: int | None  # None: all


def compare(model: torch.nn.Module, directory: Path) -> dict[str, Any]:
    """What the model holds against the file's tensors: counts, and the names of those that differ.

    A tensor that is computed with as it lies is compared bit by bit. A matrix that was packed for the CPU
    cannot be read; the file's is packed the same way, and both are multiplied with GROUPS rows that each
    sum another share of the columns: the same kernel gives the same bits for the same weights. Where the
    products differ, the packed matrix is multiplied with the identity, which reads it exactly.
    """
    tensors, modules = dict(tensors_of(directory)), plain_modules(model)
    different: set[str] = set()
    unchecked: list[str] = []
    packed: dict[int, list[tuple[str, Place]]] = {}
    for name, tensor in tensors.items():
        places = held_at(model, modules, name)
        if places is None:
            unchecked.append(name)
            continue
        for place in places:
            lies = getattr(place.module, place.parameter)
            if is_packed(place):
                packed.setdefault(id(place.module), []).append((name, place))
            # an embedding is packed, and looked up as it lies
            loaded_as = getattr(place.module, "weight", lies).dtype
            if lies.numel() and not _same(tensor, _rows(lies, place), loaded_as):
                different.add(name)
    for parts in packed.values():
        different.update(differing(parts, tensors.__getitem__, _kernel(parts[0][1].module)))
    return {
        "tensors": len(tensors),
        "different": [name for name in tensors if name in different],
        "unchecked": unchecked,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "parameters_checked": sum(t.numel() for name, t in tensors.items() if name not in unchecked),
    }


def held_at(model: torch.nn.Module, modules: dict[str, torch.nn.Module], name: str) -> list[Place] | None:
    """Every place in the engine that computes with the checkpoint's tensor `name`.

    `modules` are the model's `plain_modules`. vLLM fuses projections (q, k, v into one matrix, gate and up
    into one); this finds the rows. None when the tensor cannot be found, is split over devices, or lies in
    the file with rows and columns exchanged.
    """
    from vllm.distributed import get_tensor_model_parallel_world_size

    path, _, parameter = name.rpartition(".")
    parent, _, leaf = path.rpartition(".")
    transposed = type(model).__name__ == "GPT2LMHeadModel" and leaf in CONV1D and parameter == "weight"
    if transposed or get_tensor_model_parallel_world_size() > 1:
        return None
    for fused, parts in getattr(model, "packed_modules_mapping", {}).items():
        module = modules.get(f"{parent}.{fused}" if parent else fused)
        if leaf not in parts or module is None or path in modules:
            continue
        sizes = getattr(module, "output_sizes", None)
        if sizes is None or not _readable(module, parameter):
            return None
        index = parts.index(leaf)
        return [Place(module, parameter, sum(sizes[:index]), sizes[index])]
    module = modules.get(path)
    if module is None or not _readable(module, parameter):
        return None
    if not is_embedding(module):
        return [Place(module, parameter, 0, None)]
    rows = int(module.org_vocab_size)
    places = [] if is_head(module) else [Place(module, parameter, 0, rows)]
    sharing = [each for each in modules.values() if is_head(each) and each.weight is module.weight]
    return places + [Place(each, parameter, 0, rows) for each in {id(e): e for e in sharing}.values()]


def _readable(module: torch.nn.Module, parameter: str) -> bool:
    tensor = getattr(module, parameter, None)
    if not isinstance(tensor, torch.Tensor):
        return False
    packed = parameter == "weight" and kernel_of(module) is not None
    return packed or bool(tensor.numel())


def is_packed(place: Place) -> bool:
    """Whether what it computes with is a packed matrix."""
    return place.parameter == "weight" and kernel_of(place.module) is not None


def kernel_of(module: torch.nn.Module) -> Kernel | None:
    """What computes with the module's packed weight, which it holds itself; None where it lies open."""
    return getattr(module, "cpu_linear", None)


def product(
    kernel: Kernel, weight: torch.Tensor, inputs: int, dtype: torch.dtype, groups: int = GROUPS
) -> torch.Tensor:
    """Of `groups` rows that each sum another share of the columns, by a module's kernel (and its weight)."""
    return kernel(shares(groups, inputs, dtype), weight, None)


def shares(groups: int, inputs: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows of `product`: each column is in one of them."""
    rows = torch.zeros(min(inputs, groups), inputs, dtype=dtype)
    rows[torch.arange(inputs) % len(rows), torch.arange(inputs)] = 1
    return rows


def _rows(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    return tensor if place.rows is None else tensor[place.start : place.start + place.rows]


def pack(parts: list[tuple[str, Place]], read: Read) -> tuple[Any, torch.Tensor]:
    """A module with one packed matrix made of the file's tensors as vLLM makes it, and which rows they fill.

    Other rows (vLLM pads vocabularies) are zero, as vLLM leaves them. Raises ValueError when shapes differ.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    module: Any = parts[0][1].module
    first = read(parts[0][0])
    inputs = first.shape[1]
    outputs = getattr(module, "output_size_per_partition", None) or getattr(
        module, "num_embeddings_per_partition", first.shape[0]
    )
    again: Any = torch.nn.Module()
    wanted = torch.zeros(outputs, inputs, dtype=module.weight.dtype)
    covered = fill(wanted, parts, read)
    again.weight = torch.nn.Parameter(wanted, requires_grad=False)
    dispatch_cpu_unquantized_gemm(again, remove_weight=False)
    return again, covered


def fill(wanted: torch.Tensor, parts: list[tuple[str, Place]], read: Read) -> torch.Tensor:
    """Copy the file's tensors to their rows; which rows that were. Raises ValueError when shapes differ."""
    covered = torch.zeros(wanted.shape[:1], dtype=torch.bool)
    for name, place in parts:
        tensor, rows = read(name), _rows(wanted, place)
        if rows.shape != tensor.shape:
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} in the file, {tuple(rows.shape)} in the engine"
            )
        rows.copy_(tensor)
        _rows(covered, place)[...] = True
    return covered


def differing(parts: list[tuple[str, Place]], read: Read, kernel: Kernel) -> list[str]:
    """Of the file's tensors that one packed matrix is to be made of, those that its kernel does not hold."""
    module: Any = parts[0][1].module
    again, covered = pack(parts, read)
    inputs, dtype = again.weight.shape[1], module.weight.dtype
    held = product(kernel, module.weight, inputs, dtype)[:, covered]
    expected = product(_kernel(again), again.weight, inputs, dtype)[:, covered]
    return [] if torch.equal(held, expected) else unlike(parts, again.weight, kernel)


def unlike(parts: list[tuple[str, Place]], wanted: torch.Tensor, kernel: Kernel) -> list[str]:
    """Of the file's tensors that lie in `wanted`, those that a kernel does not hold, read exactly: slow."""
    module: Any = parts[0][1].module
    exact = kernel(torch.eye(wanted.shape[1], dtype=wanted.dtype), module.weight, None).t()
    return [name for name, place in parts if not _same(_rows(wanted, place), _rows(exact, place))]


def adds_up(wanted: torch.Tensor, found: torch.Tensor) -> bool:
    """Whether `found` can be the `product` of `wanted`, rounding apart: its columns summed as they lie.

    Sums, in float32, since a multiplication by ones takes three times as long. The tolerance is ROUNDINGS
    float32 roundings of a sum of so many columns of the usual size, and one of the result; a column of the
    usual size stands out in it by four digits.
    """
    groups, inputs = len(found), wanted.shape[1]
    even = wanted if inputs % groups == 0 else torch.nn.functional.pad(wanted, (0, -inputs % groups))
    plain = even.view(len(even), -1, groups).sum(1, dtype=torch.float32).t()
    some = wanted[::SAMPLED].float()
    usual = float(torch.linalg.vector_norm(some)) / some.numel() ** 0.5
    tolerance = ROUNDINGS * torch.finfo(torch.float32).eps * inputs / groups * usual
    off = (found.float() - plain).abs()
    return bool((off <= tolerance + torch.finfo(wanted.dtype).eps * plain.abs()).all())


def _kernel(module: torch.nn.Module) -> Kernel:
    kernel = kernel_of(module)
    assert kernel is not None
    return kernel
