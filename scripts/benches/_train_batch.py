"""The batch and the model that the contenders of `bench.py train` all train on; no torch, no rtrl here.

Lengths: answers of aider's public chat history (Aider-AI/aider, tests/fixtures/chat-history.md, 1,171
answers of 1,133 sessions, 4 characters a token), as their 5th, 15th, ... 95th percentiles, a quarter of
them so that two cores come to an end; a prompt is a request and what up to three earlier answers left
in the context. The tokens themselves are random: no two sequences begin alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ANSWERS = (12, 12, 21, 38, 72, 234, 436, 654, 928, 1598)  # tokens, percentiles 5, 15, ... 95
REQUESTS = (2, 2, 2, 2, 3, 5, 8, 12, 20, 51)
SCALE = 4
VOCABULARY = 8192
MODEL: dict[str, Any] = {  # 19 million parameters
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def sequences(count: int, seed: int = 0) -> list[tuple[NDArray[np.int32], int]]:
    """(token ids, length of the prompt) of each sequence, in random order."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        answer = _draw(rng, ANSWERS)
        prompt = 4 + _draw(rng, REQUESTS) + sum(_draw(rng, ANSWERS) for _ in range(rng.integers(0, 4)))
        found.append((rng.integers(4, VOCABULARY, prompt + answer).astype(np.int32), prompt))
    return found


def _draw(rng: np.random.Generator, table: tuple[int, ...]) -> int:
    """Between two of the percentiles, evenly."""
    place = rng.uniform(0, len(table) - 1)
    low = int(place)
    value = table[low] + (place - low) * (table[low + 1] - table[low])
    return max(2, round(value / SCALE))


def save(path: Path, batch: list[tuple[NDArray[np.int32], int]]) -> None:
    """For a peer in another environment."""
    flat = np.concatenate([ids for ids, _ in batch])
    np.savez(path, flat=flat, lengths=[len(ids) for ids, _ in batch], prompts=[prompt for _, prompt in batch])


def load(path: Path) -> list[tuple[NDArray[np.int32], int]]:
    """What `save` wrote."""
    found = np.load(path)
    parts = np.split(found["flat"], np.cumsum(found["lengths"])[:-1])
    return [(ids, int(prompt)) for ids, prompt in zip(parts, found["prompts"], strict=True)]
