"""A small random checkpoint, and its forward pass in the place of the serving engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.suites.base import Subject, TextRequest


def checkpoint(folder: Path, scale: float = 1.0, *, begins: bool = False) -> Path:
    """A random Qwen2 model with a byte-level tokenizer. `scale` nan makes its weights useless; `begins`: its
    tokenizer puts a token before every text, as Llama's and Gemma's do.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, "<end>", "<begin>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"eos_token": "<end>", "pad_token": "<end>"}
    if begins:
        begin = ("<begin>", vocabulary["<begin>"])
        tokenizer.post_processor = processors.TemplateProcessing("<begin> $A", special_tokens=[begin])
        special["bos_token"] = "<begin>"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **special).save_pretrained(
        folder
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(scale)
    model.save_pretrained(folder)
    return folder


class Forward:
    """A `TokenEngine` by transformers.

    Attributes:
        longest: tokens of the longest sequence it was asked for.
    """

    def __init__(self, folder: Path, context: int = 512) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.context, self.longest = context, 0
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        import torch

        found = []
        for ids in sequences:
            self._fits(len(ids) + 1)
            with torch.no_grad():
                logits = self.model(torch.tensor([list(ids)])).logits[0].float()
            logprobs = logits.log_softmax(-1)
            row = []
            for position, token in enumerate(ids[1:]):
                own = logprobs[position, token]
                row.append((float(own), int((logprobs[position] > own).sum()) + 1))
            found.append(row)
        return found

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        import torch

        texts = []
        for one in requests:
            self._fits(len(one.prompt) + one.max_tokens)
            ids = self.model.generate(
                torch.tensor([list(one.prompt)]), max_new_tokens=one.max_tokens, do_sample=False
            )
            text = self.tokenizer.decode(ids[0, len(one.prompt) :])
            for stop in one.stop:
                text = text.split(stop)[0]
            texts.append(text)
        return texts

    def _fits(self, tokens: int) -> None:
        self.longest = max(self.longest, tokens)
        assert tokens <= self.context


def no_chat(requests: object) -> list[dict[str, object]]:
    raise AssertionError("a likelihood task asks no questions")


def subject(folder: Path, context: int = 512) -> Subject:
    return Subject("sha256:" + "0" * 64, folder, no_chat, Forward(folder, context))
