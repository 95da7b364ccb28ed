"""Tiny models of other architectures than most tests take, from configuration, with random weights."""

from __future__ import annotations

from typing import Any

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MHA = {"num_key_value_heads": 4}  # every head has keys of its own
VISION = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "image_size": 28,
    "patch_size": 14,
}
# model_type, and what is peculiar about it
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}),
    "qwen3-tied": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "gemma3-softcap": (
        "gemma3_text",
        {
            "head_dim": 8,
            "final_logit_softcapping": 5.0,
            "sliding_window": 8,
            "query_pre_attn_scalar": 20,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gpt-neox": ("gpt_neox", {"rotary_pct": 0.5}),
    "mistral-window": ("mistral", {"sliding_window": 8, "head_dim": 8}),
    "phi": ("phi", MHA),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "granite": ("granite", {"logits_scaling": 3.0, "residual_multiplier": 0.7, "attention_multiplier": 0.2}),
    "cohere": ("cohere", {"logit_scale": 0.5}),
    "deepseek-latent": (
        "deepseek_v3",
        MHA
        | {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
        | {"moe_intermediate_size": 16, "first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 8}
        | {"qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6},
    ),
    "gemma3-images": (
        "gemma3",
        {
            "text_config": SHAPE | {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 20},
            "vision_config": VISION,
            "image_token_index": 63,
            "mm_tokens_per_image": 4,
        },
    ),
}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "alibi": ("bloom", {"n_layer": 2, "n_head": 4}, "other logits in a pack than alone"),
    "state space": ("mamba", {}, "layers of linear_attention"),
    "some layers linear": ("qwen3_next", {"linear_num_value_heads": 4, "num_experts": 4}, "layers of linear"),
    "chunks": ("llama4_text", {"num_local_experts": 2, "head_dim": 8, "intermediate_size_mlp": 48}, "chunk"),
    "sinks": ("gpt_oss", {"num_local_experts": 4, "head_dim": 8}, "s_aux"),
    "capped scores": ("gemma2", {"head_dim": 8}, "softcap"),
    "untold window": ("phimoe", {"sliding_window": 64, "num_local_experts": 2}, "sliding window"),
    "positions of its own": ("xglm", {"d_model": 32, "num_layers": 2, "ffn_dim": 48, "attention_heads": 4},
                             "other logits"),
}  # fmt: skip


def configured(model_type: str, changes: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    blank = AutoConfig.for_model(model_type)
    settings = {name: value for name, value in SHAPE.items() if hasattr(blank, name)} | changes
    return AutoConfig.for_model(model_type, **settings)


def stranger(model_type: str, changes: dict[str, Any], seed: int = 3) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    config = configured(model_type, changes)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).float().eval()
