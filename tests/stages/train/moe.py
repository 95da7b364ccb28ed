"""Tiny mixture-of-experts models, and an engine that routes as it likes: by the position of a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stages.routing import Experts, Routing
from tests.stages.train.tiny import WORDS

EXPERTS, LAYERS, TOP_K = 6, 3, 2
ARCHITECTURES = ("qwen2_moe", "qwen3_moe")


def moe_model(seed: int = 0, architecture: str = "qwen3_moe", **changes: Any) -> Any:
    """Layer 0 is dense, layers 1 and 2 have experts."""
    import transformers

    settings: dict[str, Any] = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "norm_topk_prob": architecture == "qwen3_moe",
        "mlp_only_layers": [0],
        "decoder_sparse_step": 1,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
    }
    torch.manual_seed(seed)
    name = {"qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe"}[architecture]
    config = getattr(transformers, f"{name}Config")(**(settings | changes))
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def choice(tokens: int, seed: int = 0) -> Experts:
    """[tokens, layers, top_k]: two different experts for every token and layer; only the position counts."""
    t = np.arange(tokens)[:, None]
    first = (5 * t + 3 * np.arange(LAYERS) + seed) % EXPERTS
    second = (first + 1 + (t + seed) % (EXPERTS - 1)) % EXPERTS
    return np.stack([first, second], axis=-1).astype(np.uint8)


def routing(tokens: int, seed: int = 0) -> Routing:
    """`choice` of a sequence whose last token was sampled and not read."""
    known = np.ones(tokens, bool)
    known[-1:] = False
    return Routing(choice(tokens, seed), known)


@contextmanager
def forced(model: Any, seed: int = 0) -> Iterator[dict[int, int]]:
    """A model whose tokens go to the experts of `choice`: one sequence at a time, as the formula says.

    Yields how many of the chosen experts each layer's router would not have chosen, filled by a forward.
    """
    differed: dict[int, int] = {}

    def forward_of(gate: Any, layer: int) -> Any:
        def forward(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            flat = hidden.reshape(-1, gate.hidden_dim)
            logits = flat @ gate.weight.T
            chosen = torch.from_numpy(choice(len(flat), seed)[:, layer].astype(np.int64))
            weights = logits.softmax(-1).gather(1, chosen)
            if gate.norm_topk_prob:
                weights = weights / weights.sum(-1, keepdim=True)
            own = logits.topk(TOP_K).indices.tolist()
            differed[layer] = sum(len(set(a) - set(b)) for a, b in zip(chosen.tolist(), own, strict=True))
            return logits, weights, chosen

        return forward

    gates = {layer: model.model.layers[layer].mlp.gate for layer in (1, 2)}
    for layer, gate in gates.items():
        gate.forward = forward_of(gate, layer)
    try:
        yield differed
    finally:
        for gate in gates.values():
            del gate.forward
