"""Held-out requests answered in batches: what an answer, none, and a refusal of the engine come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cursorbench.harness.chat import ChatRequest, assistant_message
from evals.population.replay import heldout, replay


def test_what_an_answer_comes_to() -> None:
    answers: list[Mapping[str, Any] | None] = [
        {**assistant_message("Which one?"), "finish_reason": "stop", "output_tokens": 3},
        None,
        {"role": "assistant", "content": None, "finish_reason": "error", "error": "too long"},
    ]

    def complete(requests: list[ChatRequest]) -> list[Mapping[str, Any] | None]:
        assert len(requests) == 3
        return answers

    asked, lost, full = replay(heldout(0, 3), complete)
    assert (asked.stop, asked.failure, asked.asked, asked.tokens) == ("answered", "", True, 3)
    assert (lost.stop, lost.failure) == ("aborted", "no answer")
    # the conversation did not fit: where the model's words led, so a result, and no answer either
    assert (full.stop, full.failure, full.edited, full.turns) == ("context_full", "", False, 0)
