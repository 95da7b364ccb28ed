"""Memory that a stage no longer needs, given back to the system before the next one begins.

glibc keeps what its threads' arenas once held: of the demo's training four gigabytes in four cycles, beside
an engine. Not for: what is still in use, or where a process ends anyway.
"""

from __future__ import annotations

import ctypes
import gc
import sys


def give_back() -> None:
    """Give all that is free back: Python's cycles, Arrow's pool, the C library's arenas."""
    gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
