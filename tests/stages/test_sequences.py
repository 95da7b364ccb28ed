"""Joining generations into sequences: by hand, and what any chain must satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import IntegrityError
from stages.records import Payload, Sampling, Span
from stages.sequences import Record, assemble, chains, full_prompts, not_reproducible, payload_defect


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def record(
    name: str, prompt: list[int], output: list[int], base: str = "", prefix: int = 0, **more: Any
) -> Record:
    return Record(
        id=name,
        user="ada",
        prompt=ids(*prompt),
        output=ids(*output),
        logprobs=np.array([-0.5 - i for i in range(len(output))], dtype=np.float32),
        prompt_base=base,
        prompt_prefix=prefix,
        spans=more.get("spans", (Span(0, len(output), "sha256:a"),)),
        sampling=Sampling(),
    )


def row(name: str, prompt: int, output: int, base: str = "", prefix: int = 0) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "output_tokens": output, "prompt_prefix": prefix}
    return {"id": name, "prompt_base": base, **counts}


def test_two_generations_by_hand() -> None:
    records = {
        "a": record("a", [1, 2, 3], [10, 11]),
        "b": record("b", [4], [12, 13], "a", 5, spans=(Span(0, 1, "sha256:a"), Span(1, 2, "sha256:b"))),
    }
    prompts = full_prompts(records)
    assert prompts["b"].tolist() == [1, 2, 3, 10, 11, 4]
    got = assemble("e", [(records["a"], prompts["a"]), (records["b"], prompts["b"])])
    assert got.token_ids.tolist() == [1, 2, 3, 10, 11, 4, 12, 13]
    assert got.sampled.tolist() == [False, False, False, True, True, False, True, True]
    assert got.logprobs.tolist() == [0, 0, 0, -0.5, -1.5, 0, -0.5, -1.5]
    assert got.checkpoints == ("sha256:a", "sha256:b")
    assert got.checkpoint_index.tolist() == [-1, -1, -1, 0, 0, -1, 0, 1]
    assert got.generation_index.tolist() == [-1, -1, -1, 0, 0, -1, 1, 1]
    assert [(g.id, g.output_start, g.output_end) for g in got.generations] == [("a", 3, 5), ("b", 6, 8)]
    assert (got.token_ids.dtype, got.logprobs.dtype, got.checkpoint_index.dtype) == (
        np.int32,
        np.float32,
        np.int16,
    )


def test_a_part_of_the_base_only() -> None:
    records = {"a": record("a", [1, 2, 3], [10]), "b": record("b", [9], [12], "a", 2)}
    assert full_prompts(records)["b"].tolist() == [1, 2, 9]
    with pytest.raises(IntegrityError, match="does not extend"):
        assemble("e", [(records[i], full_prompts(records)[i]) for i in ("a", "b")])


def test_what_has_no_base_is_left_out() -> None:
    records = {
        "b": record("b", [4], [5], "gone", 3),
        "c": record("c", [1], [2], "b", 1),
        "d": record("d", [7, 8], [9]),
        "e": record("e", [1], [2], "d", 4),  # longer than prompt and output of d
    }
    assert set(full_prompts(records)) == {"d"}


def test_chains_by_hand() -> None:
    rows = [
        row("a", 10, 2),
        row("b", 15, 3, "a", 12),  # extends a
        row("retry", 15, 4, "a", 12),  # extends a too: a branch of its own
        row("c", 20, 1, "b", 18),
        row("summary", 9, 1, "c", 4),  # shares only the system prompt
    ]
    assert chains(rows) == [[0, 1, 3], [2], [4]]


GOOD = {"prompt_tokens": 5, "output_tokens": 2, "prompt_prefix": 3, "spans": [{"start": 0, "end": 2}]}


def payload(prompt: int = 2, output: int = 2, logprobs: int = 2, value: float = -1.0) -> Payload:
    numbers = np.full(logprobs, value, dtype=np.float32)
    return Payload(bytes(4 * prompt), bytes(4 * output), numbers.tobytes(), "", "")


@pytest.mark.parametrize(
    ("change", "made", "defect"),
    [
        ({}, payload(), ""),
        ({}, payload(prompt=1), "prompt_length"),
        ({}, payload(output=3), "output_length"),
        ({}, payload(logprobs=1), "logprobs_length"),
        ({}, payload(value=float("nan")), "logprobs_not_finite"),
        ({}, payload(value=float("-inf")), "logprobs_not_finite"),
        ({"spans": [{"start": 0, "end": 1}]}, payload(), "spans"),
        ({"spans": [{"start": 1, "end": 2}]}, payload(), "spans"),
        ({"spans": []}, payload(), "spans"),
        ({"spans": [], "output_tokens": 0}, payload(output=0, logprobs=0), ""),
    ],
)
def test_payload_defects(change: dict[str, Any], made: Payload, defect: str) -> None:
    assert payload_defect(GOOD | change, made) == defect


def test_bytes_cut_inside_a_number() -> None:
    good = payload()
    cut = Payload(good.prompt, good.output, good.logprobs[:-1], "", "")
    assert payload_defect(GOOD, cut) == "logprobs_length"


@pytest.mark.parametrize(
    ("sampling", "why"),
    [
        (Sampling(), ""),
        (Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, repetition_penalty=1.1), ""),
        (Sampling(temperature=0.0), "greedy"),
        (Sampling(temperature=1e-6), "greedy"),
        (Sampling(top_k=1), "greedy"),
        (Sampling(unknown=("logit_bias",)), "unknown_sampling"),
        (Sampling(grammar='{"type": "json_object"}'), "grammar"),
    ],
)
def test_not_reproducible(sampling: Sampling, why: str) -> None:
    assert not_reproducible(sampling) == why


@st.composite
def episodes(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """(prompt, output) of generations; some extend the one before, some begin anew."""
    token = st.integers(0, 99)
    found: list[tuple[list[int], list[int]]] = []
    for _ in range(draw(st.integers(1, 6))):
        before = found[-1][0] + found[-1][1] if found and draw(st.booleans()) else []
        found.append((before + draw(st.lists(token, max_size=4)), draw(st.lists(token, max_size=4))))
    return found


@given(episodes())
def test_every_sampled_token_is_in_exactly_one_sequence(made: list[tuple[list[int], list[int]]]) -> None:
    rows, records = [], {}
    for n, (prompt, output) in enumerate(made):
        before = made[n - 1][0] + made[n - 1][1] if n else []
        prefix = len(before) if n and prompt[: len(before)] == before else 0
        base = str(n - 1) if prefix else ""
        rows.append(row(str(n), len(prompt), len(output), base, prefix))
        records[str(n)] = record(str(n), prompt[prefix:], output, base, prefix)
    prompts = full_prompts(records)
    assert [prompts[str(n)].tolist() for n in range(len(made))] == [prompt for prompt, _ in made]
    sequences = [assemble("e", [(records[str(n)], prompts[str(n)]) for n in chain]) for chain in chains(rows)]
    assert sum(int(s.sampled.sum()) for s in sequences) == sum(len(output) for _, output in made)
    for sequence in sequences:
        for info in sequence.generations:
            prompt, output = made[int(info.id)]
            assert sequence.token_ids[: info.output_start].tolist() == prompt
            assert sequence.token_ids[info.output_start : info.output_end].tolist() == output
