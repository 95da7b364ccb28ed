"""Weights kept in memory: whole again bit by bit, told from damaged ones, and only where there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.engine import resident
from stages.engine.resident import UNPROVEN, Proof, checksum, keep, proof_of, put_back, without_room

GIB = 2**30


class Packed(torch.nn.Module):
    """A linear layer whose weight only its kernel has, as vLLM packs it for the CPU."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.zeros(weight.shape[0]), requires_grad=False)
        self.input_size_per_partition = weight.shape[1]
        self.pack(weight)

    def pack(self, weight: torch.Tensor) -> None:
        self.cpu_linear: Callable[..., torch.Tensor] = lambda x, _, bias: torch.nn.functional.linear(
            x, weight, bias
        )


class Model(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(11, 6)
        self.tied = self.embed
        self.packed = Packed(torch.randn(5, 6))
        self.register_buffer("cache", torch.zeros(3), persistent=False)

    def load(self, seed: int) -> None:
        """In place as vLLM does: open tensors are written over, packed ones get another kernel."""
        other = Model(seed)
        with torch.no_grad():
            self.embed.weight.copy_(other.embed.weight)
            self.packed.bias.fill_(seed)
        self.packed.cpu_linear = other.packed.cpu_linear

    def answer(self) -> torch.Tensor:
        return self.packed.cpu_linear(self.embed.weight, self.packed.weight, self.packed.bias)


def proof(model: Model, key: str) -> Proof:
    return proof_of(model, key, {"tensors": 3, "parameters": 66 + 30 + 5})


def test_what_was_kept_is_whole_again() -> None:
    model = Model(1)
    before, first = model.answer().clone(), keep(model, proof(model, "one"))
    model.load(2)
    second = keep(model, proof(model, "two"))
    other = model.answer().clone()
    assert not torch.equal(before, other)
    put_back(model, first)
    assert torch.equal(model.answer(), before)
    assert first.proof.compare(model)["different"] == []
    put_back(model, second)
    assert torch.equal(model.answer(), other)
    report = second.proof.compare(model)
    assert (report["different"], report["tensors"], report["parameters_checked"]) == ([], 3, 101)


def test_what_is_not_whole_is_named() -> None:
    model = Model(1)
    proven = proof(model, "one")
    assert set(proven.sums) == {"embed.weight", "packed.bias", "packed"}, "the buffer is no weight"
    model.packed.bias[2] = 1e-7
    assert proven.compare(model)["different"] == ["packed.bias"]
    model.load(2)
    assert sorted(proven.compare(model)["different"]) == ["embed.weight", "packed", "packed.bias"]


@given(st.lists(st.floats(width=32, allow_nan=True), min_size=1, max_size=40), st.integers(0, 39))
def test_one_changed_bit_changes_the_checksum(values: list[float], index: int) -> None:
    held = torch.tensor(values, dtype=torch.float32)
    changed = held.clone()
    changed.view(torch.int32)[index % len(values)] ^= 1
    assert checksum(held) == checksum(held.clone())
    assert checksum(held) != checksum(changed)


def test_the_checksum_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "PIECE", 2)
    odd = torch.randint(0, 1 << 30, (2,), generator=torch.Generator().manual_seed(1)) * 2 + 1
    a, b = (int(each) for each in odd)
    first, second = 3 * a - 4 * b, 5 * a
    start = 3  # elements: zeros at the end count too
    expected = ((start * resident.PRIME + first) * resident.PRIME + second) % 2**64
    assert checksum(torch.tensor([3, -4, 5], dtype=torch.int32)) == expected


def test_room() -> None:
    model = Model(1)  # float32
    proven = Proof("one", {}, 1, GIB // 4)
    assert without_room(model, proven, None, free=1.0 * GIB) == ""
    assert without_room(model, proven, 1.0, free=1.0 * GIB) == ""
    assert without_room(model, proven, None, free=0.99 * GIB) == "1.00 GiB wanted, 0.99 to spare"
    assert without_room(model, proven, 0.5, free=9.0 * GIB) == "1.00 GiB wanted, engine.resident_gib is 0.5"
    assert without_room(model, proven, 0, free=9.0 * GIB) == "engine.resident_gib is 0"
    assert without_room(model, None, None, free=9.0 * GIB) == UNPROVEN
