"""vLLM's engine core, as its worker sees it: is there work for a step, and what does its prefix cache hold?

Part of the worker; imports nothing of vLLM. A worker is given no way to the core. Where both are one process
(`options.in_one_process`) the core itself calls the worker, so it is found among the callers. Elsewhere
nothing is known, and whoever asks does without.
"""

from __future__ import annotations

import sys
from typing import Any


def calling() -> Any | None:
    """The engine core that called; None when it is another process."""
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if hasattr(found, "scheduler") and hasattr(found, "model_executor"):
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return None


def idle(core: Any | None) -> bool:
    """Whether the core has nothing to do but what it does now; False where it cannot be told."""
    queue = getattr(core, "input_queue", None)
    return queue is not None and queue.empty() and not core.scheduler.has_unfinished_requests()  # type: ignore[union-attr]


def cached_blocks(core: Any | None) -> int | None:
    """Blocks of keys and values that a new request's prompt can be answered from, all that there are.

    None where they cannot be counted: also with a connector, which has a cache of its own.
    """
    scheduler = getattr(core, "scheduler", None)
    pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
    known = getattr(pool, "cached_block_hash_to_block", None)
    if known is None or getattr(scheduler, "connector", None) is not None:
        return None
    return len(known)
