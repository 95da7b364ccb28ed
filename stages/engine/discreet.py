"""What users and models wrote stays out of vLLM's own log.

Its warnings about a conversation quote it, and so do tracebacks of streams that fail. An engine that dies
prints what it was at work on: stop strings, grammars, drafted tokens. Of the modules that read requests
only where something was said, and of which kind, is kept. Not for: our own logs.
"""

from __future__ import annotations

import logging
from typing import Any

_READ_REQUESTS = (
    "vllm.entrypoints",
    "vllm.renderers",
    "vllm.logging_utils.dump_input",
    "vllm.v1.core.sched",
    "vllm.v1.structured_output",
)


def hush() -> None:
    """From now on no record of this process quotes a request, whatever handlers are set up later."""
    usual = logging.getLogRecordFactory()

    def make(name: str, level: int, *rest: Any, **more: Any) -> logging.LogRecord:
        record = usual(name, level, *rest, **more)
        if level >= logging.WARNING and name.startswith(_READ_REQUESTS):
            kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "left out"
            record.msg, record.args = "%s: %s (it may quote a request)", (record.funcName, kind)
            record.exc_info = record.exc_text = record.stack_info = None
        return record

    logging.setLogRecordFactory(make)
