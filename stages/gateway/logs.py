"""The gateway's log: one line for each event, on stderr, for people or as JSON (`gateway.log_format`).

An event is a name and named values: ids, states, counts, times. Nothing of a request's content and no
user's name is ever among them. What a person at a terminal reads while it runs is `say`
(`stages/serve.py`); with JSON that becomes an event too, so that every line can be parsed.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

Format = Literal["text", "json"]

REQUEST = "request"  # name of the event of an answered request

_log = logging.getLogger("rtrl.gateway")


def event(name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log that something happened. `fields` must be JSON values without content of requests."""
    if _log.isEnabledFor(level):
        _log.log(level, name, extra={"fields": fields})


def say(text: str) -> None:
    """A line that was written for people, as an event."""
    event("message", text=text)


def configure(form: Format) -> None:
    """Send this process's log to stderr in that form. Events of INFO and above in JSON; as text those of
    WARNING and above, as `say` tells people the rest, and the requests that `gateway.log_requests` wants."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Text())
    if form == "text":
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.msg == REQUEST)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _log.setLevel(logging.INFO)


class JsonLines(logging.Formatter):
    """One JSON object per line: `at` (UTC), `level`, `event`, and the event's own values."""

    def format(self, record: logging.LogRecord) -> str:
        """logging's call."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        if fields is None:  # a library's own words
            line |= {"event": "library", "logger": record.name, "text": record.getMessage()}
        else:
            line |= {"event": record.msg, **fields}
        if record.exc_info and record.exc_info[0] is not None:
            # never the exception's words: they may repeat a request's
            line["error"] = record.exc_info[0].__name__
            line["where"] = "".join(traceback.format_tb(record.exc_info[2]))
        return orjson.dumps(line, default=str).decode()


class Text(logging.Formatter):
    """`date time level event name=value ...`, UTC: what is kept of weeks tells the day."""

    def format(self, record: logging.LogRecord) -> str:
        """logging's call."""
        clock = f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%d %H:%M:%SZ}"
        fields = getattr(record, "fields", {})
        values = "".join(f" {name}={value}" for name, value in fields.items() if name != "where")
        where = f"\n{fields['where']}" if fields.get("where") else ""
        return f"{clock} {record.levelname.lower()} {record.getMessage()}{values}{where}"
