"""The stub engine: which of its answers have how many tokens, and standing still on
`/pause?mode=keep`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Steps:
    """Of one stub. Names are of requests (`X-Request-Id`), "" for one without.

    Attributes:
        let_go: set it and answers go on that their requests have told to hold (`stub:hold=N`).
    """

    def __init__(self) -> None:
        self._sampled: dict[str, int] = {}
        self._finished: deque[str] = deque(maxlen=1000)
        self._running = asyncio.Event()
        self._running.set()
        self.let_go = asyncio.Event()

    def pause(self, still: bool) -> None:
        """Stand still, or go on."""
        if still:
            self._running.clear()
        else:
            self._running.set()

    async def running(self, *, held: bool) -> None:
        """Returns when the next token may be sampled, of an answer that is `held` once `let_go` is set."""
        if held:
            await self.let_go.wait()
        await self._running.wait()

    def sampled(self, name: str, tokens: int) -> None:
        """An answer has so many tokens now."""
        if name:
            self._sampled[name] = tokens

    def end(self, name: str) -> None:
        """An answer is complete, or its client has left."""
        if self._sampled.pop(name, None) is not None:
            self._finished.append(name)

    def counts(self) -> dict[str, Any]:
        """As `stages/engine/under_way.py` has them."""
        return {"sampled": dict(self._sampled), "finished": list(self._finished)}
