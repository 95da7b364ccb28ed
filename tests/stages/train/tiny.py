"""A random Qwen2 checkpoint of a few thousand parameters with a real (tiny) tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = ["<end>", "<user>", "<assistant>", "<system>", *(f"w{i}" for i in range(60))]


def tiny_model(seed: int = 0, **changes: Any) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,  # far from uniform, so that mistakes show
    }
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**(settings | changes))).eval()


def write_tokenizer(folder: Path, words: list[str] = WORDS) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>", "<system>"]})
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def write_checkpoint(folder: Path, seed: int = 0, *, parent: Path | None = None, model: Any = None) -> Path:
    from stages import modelio, served_fingerprint

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    model = model or tiny_model(seed)
    modelio.save_checkpoint(model, folder, companions=folder, dtype="float32")
    served_fingerprint.write_fingerprint(folder, parent=parent)
    return folder
