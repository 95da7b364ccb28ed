"""Reference implementations, written for clarity and nothing else: one sequence at a time, no packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stages.records import Sampling

PLAIN = Sampling()


def logprobs(model: Any, ids: np.ndarray, start: int, sampling: Sampling = PLAIN) -> torch.Tensor:
    """log p of ids[start:] at the sampling temperature, the rest of the sampling ignored."""
    logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0]
    predicted = (logits[start - 1 : -1] / sampling.temperature).log_softmax(-1)
    return predicted.gather(1, torch.from_numpy(ids[start:].astype(np.int64))[:, None])[:, 0]


def sample(
    model: Any, prompt: list[int], count: int, generator: torch.Generator, sampling: Sampling = PLAIN
) -> tuple[np.ndarray, np.ndarray]:
    """(output ids int32, their logprobs float32): `count` tokens drawn one by one at a temperature."""
    ids, logged = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([ids])).logits[0, -1] / sampling.temperature
            logp = logits.log_softmax(-1)
            drawn = int(torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(drawn)
            logged.append(float(logp[drawn]))
    return np.array(ids[len(prompt) :], np.int32), np.array(logged, np.float32)
