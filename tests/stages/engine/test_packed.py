"""What was packed for the CPU, told from what it was to be made of; the engine core that a worker sees."""

from __future__ import annotations

import sys
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from stages.engine import core
from stages.engine.held import (
    Kernel,
    Place,
    adds_up,
    compare,
    held_at,
    plain_modules,
    product,
    shares,
    unlike,
)

GROUPS = 16


def kernel_of(weight: torch.Tensor) -> Kernel:
    """As packed ones do it: the weight that it is given counts for nothing."""
    return lambda x, _, bias: torch.nn.functional.linear(x, weight, bias)


def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `held.py` asks of it, for models of torch's own modules."""
    folder = "vllm.model_executor.layers"
    for name in ("vllm", "vllm.model_executor", folder):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    alone = SimpleNamespace(get_tensor_model_parallel_world_size=lambda: 1)
    monkeypatch.setitem(sys.modules, "vllm.distributed", alone)
    rows = SimpleNamespace(VocabParallelEmbedding=torch.nn.Embedding, ParallelLMHead=torch.nn.Embedding)
    monkeypatch.setitem(sys.modules, f"{folder}.vocab_parallel_embedding", rows)


def found(weight: torch.Tensor) -> torch.Tensor:
    return product(kernel_of(weight), torch.empty(0), weight.shape[1], weight.dtype, GROUPS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_of_the_same_matrix_adds_up_and_no_other(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weight = (torch.randn(24, 768) * 0.02).to(dtype)
    assert adds_up(weight, found(weight))
    rows = weight.clone()
    rows[[3, 4]] = rows[[4, 3]]
    step = weight.clone()
    step[7, 500] += 0.1 if dtype == torch.bfloat16 else 0.02 / 1000
    for other in (rows, step, torch.zeros_like(weight), weight * torch.nan):
        assert not adds_up(weight, found(other))


def test_what_does_not_add_up_is_named_by_its_rows() -> None:
    torch.manual_seed(1)
    weight = torch.randn(6, 32)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
    parts = [("q", Place(module, "weight", 0, 4)), ("k", Place(module, "weight", 4, 2))]
    other = weight.clone()
    other[5, 3] = torch.nextafter(other[5, 3], torch.tensor(9.0))
    assert unlike(parts, weight, kernel_of(weight)) == []
    assert unlike(parts, weight, kernel_of(other)) == ["k"], "one bit"


def test_what_gpt2_has_transposed_in_the_file_is_not_compared_with_what_lies_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM turns it round: a square one was told as another matrix, and any other ended the check."""
    without_vllm(monkeypatch)
    model = type("GPT2LMHeadModel", (torch.nn.Module,), {})()
    model.c_proj, model.ln_f = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    modules = plain_modules(model)
    assert held_at(model, modules, "c_proj.weight") is None
    for name in ("c_proj.bias", "ln_f.weight"):
        assert held_at(model, modules, name) is not None
    model.__class__.__name__ = "OtherModel"
    assert held_at(model, modules, "c_proj.weight") is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_bias_beside_a_matrix_packed_for_amx_is_rounded_or_as_the_file_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dtype: torch.dtype
) -> None:
    """It lies in float32 beside bfloat16: after the start it was told as another model's."""
    without_vllm(monkeypatch)
    model = torch.nn.Module()
    model.q = torch.nn.Linear(4, 2)
    model.q.weight.data = torch.ones(2, 4, dtype=dtype)
    bias = torch.tensor([1 / 3, 0.5])
    save_file({"q.weight": torch.ones(2, 4), "q.bias": bias}, tmp_path / "model.safetensors")
    for held, different in ((bias, []), (bias.bfloat16().float(), ["q.bias"] * (dtype == torch.float32))):
        model.q.bias.data = held
        assert compare(model, tmp_path)["different"] == different
    model.q.bias.data = torch.nextafter(bias, torch.tensor(9.0))
    assert compare(model, tmp_path)["different"] == ["q.bias"]


def test_each_column_is_in_one_row() -> None:
    rows = shares(4, 10, torch.float32)
    assert (rows.shape, rows.sum(0).tolist()) == ((4, 10), [1.0] * 10)
    assert rows[1].nonzero().flatten().tolist() == [1, 5, 9]


class Core:
    """An engine core of vLLM, as far as it is looked at."""

    def __init__(self, cached: int, *, connector: object = None, unfinished: bool = False) -> None:
        self.model_executor = object()
        self.input_queue: SimpleQueue[int] = SimpleQueue()
        pool = SimpleNamespace(cached_block_hash_to_block=dict.fromkeys(range(cached)))
        self.scheduler = SimpleNamespace(
            connector=connector,
            kv_cache_manager=SimpleNamespace(block_pool=pool),
            has_unfinished_requests=lambda: unfinished,
        )

    def calls(self) -> Any:
        return self._through(core.calling)

    def _through(self, worker: Any) -> Any:
        return worker()


def test_a_core_that_calls_is_found() -> None:
    made = Core(3)
    assert made.calls() is made
    assert core.calling() is None


def test_what_a_core_holds_and_whether_it_has_work() -> None:
    assert (core.cached_blocks(Core(3)), core.cached_blocks(Core(0))) == (3, 0)
    assert core.cached_blocks(Core(0, connector=object())) is None
    assert core.cached_blocks(None) is None
    made = Core(0)
    assert core.idle(made)
    made.input_queue.put(1)
    assert not core.idle(made), "a request waits"
    assert not core.idle(Core(0, unfinished=True))
    assert not core.idle(None)
