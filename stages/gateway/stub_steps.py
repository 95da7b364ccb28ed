"""The stub engine: which of its answers have how many tokens, and standing still on
`/pause?mode=keep`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any


class Steps:
    """Of one stub. Names are of requests (`X-Request-Id`), "" for one without."""

    def __init__(self) -> None:
        self._sampled: dict[str, int] = {}
        self._finished: deque[str] = deque(maxlen=1000)
        self._running = asyncio.Event()
        self._running.set()

    def pause(self, still: bool) -> None:
        """Stand still, or go on."""
        if still:
            self._running.clear()
        else:
            self._running.set()

    async def running(self, hold: Path | None = None) -> None:
        """Returns when the next token may be sampled: not as long as there is the file `hold`."""
        while hold is not None and hold.exists():
            await asyncio.sleep(0.01)
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
