"""An engine that answers from a few lines of settings instead of weights: for tests of what uses one.

`stub.json` in a checkpoint folder: {"broken": share, "ask": share}; the rest of the answers are
words. No model, no tokens: never for a figure anybody reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from cursorbench.harness.chat import ChatRequest, assistant_message
from evals.suites.base import TextRequest

FILE = "stub.json"


class StubEngine:
    """Answers at random with the shares of the checkpoint it was given.

    Attributes:
        asked: how many requests were answered, for tests of what is not asked again.
        loads: checkpoint folders in the order they were loaded.
    """

    def __init__(self, checkpoint_dir: Path) -> None:
        self.asked = 0
        self.loads: list[Path] = []
        self.load_weights(checkpoint_dir)

    def load_weights(self, checkpoint_dir: Path) -> None:
        """Go on with another checkpoint's shares."""
        shares = json.loads((checkpoint_dir / FILE).read_text(encoding="utf-8"))
        self._broken, self._ask = float(shares["broken"]), float(shares["ask"])
        self.checkpoint_dir = checkpoint_dir
        self.loads.append(checkpoint_dir)

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        """One answer each; a request is answered alike by the same shares, whatever else is asked."""
        self.asked += len(batch)
        return [self._answer(request) for request in batch]

    context = 512

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        """Every token after the first costs 1 nat, and as much more as calls are broken."""
        return [[(-1.0 - self._broken, 1)] * (len(ids) - 1) for ids in sequences]

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        """Nothing is written."""
        return ["" for _ in requests]

    def close(self) -> None:
        """Nothing to end."""

    def _answer(self, request: ChatRequest) -> dict[str, Any]:
        text = json.dumps([list(request.messages), self._broken, self._ask], sort_keys=True)
        draw = Random(hashlib.sha256(text.encode()).digest()).random()
        if draw < self._broken:
            said = '<tool_call>{"name": "edit_file", '
        elif draw < self._broken + self._ask:
            said = "Which one do you mean?"
        else:
            said = "Done."
        return {**assistant_message(said), "finish_reason": "stop", "output_tokens": len(said.split())}
