"""A base, LoRA children of it, and an engine that has both: a small model in numpy, with its lies."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from stages.engine.adapter import Adapter, adapter_of
from stages.engine.adapter_file import PREFIX, A, B
from stages.engine.config import EngineConfig
from stages.engine.options import SLOTS
from stages.engine.update import EngineControl
from stages.engine.verification import ProbeReport, judge_probes, read_fingerprint, weights_key
from stages.errors import IntegrityError
from tests.stages.engine.liars import HIDDEN, Weights, logprobs, random_weights, write

RANK, ALPHA = 2, 4.0
BASE = "sha256:base"
LAYER = "layer"  # `liars.logprobs` computes with weights of this name


def write_adapter(folder: Path, parts: Weights, **config: Any) -> None:
    """In PEFT's layout. `parts`: "A" and "B" of LAYER."""
    folder.mkdir(parents=True)
    about = {"r": RANK, "lora_alpha": ALPHA, "target_modules": [LAYER], "base_model_name_or_path": BASE}
    (folder / "adapter_config.json").write_text(json.dumps(about | config))
    named = {f"{PREFIX}{LAYER}{A}": parts["A"], f"{PREFIX}{LAYER}{B}": parts["B"]}
    save_file(named, folder / "adapter_model.safetensors")


def parts_of(seed: int, step: float = 0.3) -> Weights:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 1, (RANK, HIDDEN)), rng.normal(0, step, (HIDDEN, RANK))
    return {"A": a.astype(np.float32), "B": b.astype(np.float32)}


def merged(base: Weights, parts: Weights) -> Weights:
    step = np.float32(ALPHA / RANK) * (parts["B"] @ parts["A"])
    return {**base, f"{LAYER}.weight": base[f"{LAYER}.weight"] + step}


def plain(weights: Weights) -> Weights:
    """As `liars` names them."""
    return {name.removesuffix(".weight"): each for name, each in weights.items()}


def write_weights(folder: Path, weights: Weights, parent: Weights | None) -> Path:
    """A checkpoint whose tensors are called `NAME.weight`, fingerprint and all."""
    write(folder, plain(weights), plain(parent) if parent else None)
    save_file(weights, folder / "model.safetensors")
    path = folder / "served_fingerprint.json"
    document = json.loads(path.read_text())
    document["tensors"] = {f"{name}.weight": entry for name, entry in document["tensors"].items()}
    path.write_text(json.dumps(document))
    return folder


class Line:
    """`base`, and its LoRA children by seed. `large`: no weight of its layer is near 0."""

    def __init__(self, root: Path, *, large: bool = False) -> None:
        self.root = root
        self.weights = {f"{name}.weight": each for name, each in random_weights(1).items()}
        if large:
            layer = self.weights[f"{LAYER}.weight"]
            self.weights[f"{LAYER}.weight"] = layer + np.sign(layer) * np.float32(0.5)
        self.base = write_weights(root / "base", self.weights, None)

    def child(self, seed: int, *, name: str = "", **config: Any) -> Path:
        parts = parts_of(seed)
        folder = self.root / (name or f"child{seed}")
        write_weights(folder, merged(self.weights, parts), self.weights)
        write_adapter(folder / "adapter", parts, **config)
        return folder

    def adapter(self, seed: int, **config: Any) -> Adapter:
        found = adapter_of(self.child(seed, **config))
        assert found is not None
        return found

    def relied(self, seed: int, other: int) -> Path:
        """Merged from one adapter, and another's lies beside it."""
        folder = self.child(seed, name=f"relied{seed}")
        shutil.rmtree(folder / "adapter")
        write_adapter(folder / "adapter", parts_of(other))
        return folder


class Fake(EngineControl):
    """The engine behind its control: base and adapters in numpy. `lie` is told about what is loaded next."""

    def __init__(self, base: Path) -> None:
        super().__init__("http://127.0.0.1:9", "", EngineConfig(lora_rank=8), base)
        self.held, self.key = load_file(base / "model.safetensors"), weights_key(read_fingerprint(base))
        self.adapters: dict[int, tuple[str, Weights]] = {}
        self.cached_prompts: set[str] = set()
        self.lie, self.rotten, self.count = "", "", 0
        self.modules, self.loads = [LAYER], []

    async def send(self, path: str, body: dict[str, Any] | None = None) -> str:
        assert body is not None
        if path == "/v1/unload_lora_adapter":
            return "removed"
        assert path == "/v1/load_lora_adapter"
        self.loads.append(body["lora_name"])
        self.count += 1
        file = load_file(Path(body["lora_path"]) / "adapter_model.safetensors")
        parts = {"A": file[f"{PREFIX}{LAYER}{A}"], "B": file[f"{PREFIX}{LAYER}{B}"]}
        if self.lie == "wrong":
            parts["B"] = parts["B"] * np.float32(1 + 1e-6)
        if self.lie == "unscaled":  # what it shows is the file's; what it answers with is not
            parts["hidden"] = np.zeros(())
        if self.lie != "nothing":
            self.adapters[self.count] = body["lora_name"], parts
        return "loaded"

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        if method == "rtrl_adapters":
            held = sorted(self.adapters)
            return {"slots": SLOTS, "rank": 8, "modules": self.modules, "held": held}
        if method == "rtrl_adapter_drop":
            for number in given["numbers"]:
                del self.adapters[number]
            return {}
        if method == "rtrl_base":
            wrong = [self.rotten] if self.rotten and given["part"] == 0 else []
            return {"different": wrong if given["key"] == self.key else ["everything"], "checked": 1}
        assert method == "rtrl_adapter_verify"
        file = load_file(Path(given["path"]) / "adapter_model.safetensors")
        parts = self.adapters[given["number"]][1]
        same = all(np.array_equal(file[f"{PREFIX}{LAYER}{end}"], parts[k]) for k, end in (("A", A), ("B", B)))
        size = sum(each.size for each in file.values())
        report = {"tensors": 2, "different": [] if same else [LAYER], "file_mismatch": [], "unchecked": []}
        return report | {"parameters": size, "parameters_checked": size, "clean": self.lie != "dirty"}

    async def cached(self, expected: Any, model: str = "") -> int:
        seen = 128 if (model if self.lie != "cache" else "") in self.cached_prompts else 0
        self.cached_prompts.add(model)
        return seen

    async def judged(self, expected: Any, model: str = "") -> ProbeReport:
        parts = next((parts for name, parts in self.adapters.values() if name == model), None)
        weights = self.held if parts is None or "hidden" in parts else merged(self.held, parts)
        served = [logprobs(plain(weights), ids, "float32") for ids in expected.probes]
        if model and parts is None:
            raise IntegrityError(f"no model {model}")
        report = judge_probes(expected.logprobs, served, "float32")
        return replace(report, mean_abs=2e-4) if self.lie == "far" else report
