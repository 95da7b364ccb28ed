"""The engine that serves the checkpoint as a model of the lm-eval harness. Imports lm_eval.

Likelihoods are the engine's own prompt logprobs, continuations its own decoding: there is no second copy of
the weights, and what is judged is what is served. Not here: tasks and what becomes of their scores
(`lm_eval_task.py`), windows over long texts of our own (`perplexity.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, maybe_truncate, normalize_gen_kwargs

from cursorbench.errors import UsageError
from cursorbench.pretrained import tokenizer_of
from evals.suites.base import Subject, TextRequest

MAX_NEW_TOKENS = 256  # where a task names no limit
SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


class EngineLM(TemplateLM):  # type: ignore[misc]
    """`TemplateLM` over a subject's engine. One sequence of a batch is as long as the engine's context."""

    def __init__(self, subject: Subject, batch: int = 256) -> None:
        super().__init__()
        self.tokenizer = tokenizer_of(subject.path)
        self._engine, self._batch = subject.tokens, batch

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        found = self.tokenizer.eos_token_id
        if found is None:
            raise UsageError("the checkpoint's tokenizer has no end-of-text token")
        return int(found)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context: the token that begins a text, where there is one."""
        found = self.tokenizer.bos_token_id
        return self.eot_token_id if found is None else int(found)

    @property
    def tokenizer_name(self) -> str:
        """For the harness's cache keys."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids; with the special tokens that the checkpoint's tokenizer puts round a text, unless told
        otherwise. Without the one that begins a text, some models foresee nothing."""
        if add_special_tokens is None:
            begin = self.tokenizer.bos_token
            add_special_tokens = not (begin and string.startswith(begin))
        ids: list[int] = self.tokenizer.encode(string, add_special_tokens=add_special_tokens)
        return ids

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **ignored: Any
    ) -> list[tuple[float, bool]]:
        room = self._engine.context - 1  # the engine generates one token
        whole = [(context + continuation)[-room:] for _, context, continuation in requests]
        found: list[tuple[float, bool]] = []
        for start in range(0, len(whole), self._batch):
            scores = self._engine.ranked(whole[start : start + self._batch])
            for (_, _, continuation), score in zip(
                requests[start : start + self._batch], scores, strict=True
            ):
                own = score[-len(continuation) :] if continuation else []
                found.append((sum(one[0] for one in own), all(one[1] == 1 for one in own)))
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, window by window, each token scored once."""
        windows: list[tuple[Any, list[int], list[int]]] = []
        counts = []
        for request in requests:
            pairs = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self._engine.context - 2,
                context_len=1,
            )
            own = [(None, *utils.make_disjoint_window(pair)) for pair in pairs]
            windows += own
            counts.append(len(own))
        scores = iter(self._loglikelihood_tokens(windows))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continuations up to a stop text; long prompts lose their beginning."""
        asked = [self._asked(*request.args) for request in requests]
        return [
            text
            for start in range(0, len(asked), self._batch)
            for text in self._engine.continued(asked[start : start + self._batch])
        ]

    def _asked(self, context: str, settings: dict[str, Any]) -> TextRequest:
        """A request as the task's `generation_kwargs` have it.

        Raises:
            UsageError: (exit 2) its answers are as long as the engine's context, or it wants a beam search.
        """
        known = normalize_gen_kwargs(settings, MAX_NEW_TOKENS)
        if known["max_gen_toks"] >= self._engine.context:
            raise UsageError(
                f"an lm-eval task asks for answers of {known['max_gen_toks']} tokens, which leave no room "
                f"for a prompt: the engine's context is {self._engine.context}",
                hint="engine.max_model_len, or max_gen_toks in the task's generation_kwargs",
            )
        if (known.get("num_beams") or 1) != 1:
            raise UsageError("an lm-eval task asks for a beam search, which no engine does that serves")
        prompt, room = maybe_truncate(
            self.tok_encode(context), max_gen_toks=known["max_gen_toks"], max_model_len=self._engine.context
        )
        stop = handle_stop_sequences(known.get("until"), self.tokenizer.decode(self.eot_token_id))
        return TextRequest(
            tuple(prompt or [self.prefix_token_id]),  # as for likelihoods; no engine goes on from nothing
            room,
            tuple(filter(None, stop)),
            float(known.get("temperature", 0.0)),
            {name: known[name] for name in SAMPLING if known.get(name) is not None},
        )
