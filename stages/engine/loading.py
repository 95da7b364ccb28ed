"""Import vLLM without the garbage collector.

Part of each process of an engine (server, core, batch worker). Imports nothing.
"""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def load(name: str) -> ModuleType:
    """Import a module and all it needs; what it made stays out of the collector's sight from then on.

    vLLM makes a million objects that stay. Going through them again and again takes the collector a quarter
    of the import's time, and once more as much when the process ends. (vLLM freezes what it has made too, but
    only when it is ready.)
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
