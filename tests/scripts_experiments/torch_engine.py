"""An engine of a few lines of torch in the place of vLLM, so that chains can be tested in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from cursorbench.harness.chat import ChatRequest, assistant_message
from stages import modelio


class TorchEngine:
    """Samples at temperature 1, all requests of a batch side by side."""

    def __init__(self, checkpoint_dir: Path) -> None:
        self.loads: list[Path] = []
        self._random = torch.get_rng_state()
        self.load_weights(checkpoint_dir)

    def load_weights(self, checkpoint_dir: Path) -> None:
        """Hold another checkpoint."""
        self.checkpoint_dir = checkpoint_dir
        self.loads.append(checkpoint_dir)
        self.model = modelio.load_model(checkpoint_dir).float().eval()
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint_dir, padding_side="left")

    @torch.no_grad()
    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        """See `InProcessEngine.chat`."""
        torch.set_rng_state(self._random)  # its own, as of an engine in a process of its own
        if seed is not None:
            torch.manual_seed(seed)
        prompts = [
            self.tokenizer.apply_chat_template(
                list(one.messages), tools=list(one.tools), add_generation_prompt=True, return_dict=False
            )
            for one in batch
        ]
        padded = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        limit = min(max(one.max_tokens for one in batch), 24)
        made = self.model.generate(
            **padded, do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=limit,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        self._random = torch.get_rng_state()
        start = padded["input_ids"].shape[1]
        logp = torch.stack(made.logits, 1).log_softmax(-1)
        return [
            self._answer(one, prompt, ids.tolist(), rows)
            for one, prompt, ids, rows in zip(batch, prompts, made.sequences[:, start:], logp, strict=True)
        ]

    def _answer(
        self, request: ChatRequest, prompt: list[int], ids: list[int], logp: torch.Tensor
    ) -> dict[str, Any]:
        end = self.model.config.eos_token_id
        stopped = end in ids
        ids = ids[: ids.index(end) + 1] if stopped else ids
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return {
            **assistant_message(text, sum(one.get("role") == "assistant" for one in request.messages)),
            "text": text,
            "finish_reason": "stop" if stopped else "length",
            "prompt_tokens": len(prompt),
            "output_tokens": len(ids),
            "prompt_ids": prompt,
            "token_ids": ids,
            "logprobs": [float(logp[at, token]) for at, token in enumerate(ids)],
        }
