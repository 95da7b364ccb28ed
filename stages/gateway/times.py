"""Points in time as clients write them: epoch seconds (decimals allowed) or ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SECONDS = re.compile(r"(?![0-9]{8}$)[0-9]+(?:\.[0-9]*)?")  # in a string; eight digits are a date: 20261120
LATEST_S = 32_503_680_000  # the year 3000: a larger number is milliseconds by mistake


def _iso(text: str) -> datetime:
    """Raises ValueError, which does not repeat the text."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("neither seconds since 1970 nor ISO 8601") from None


def parse_ms(value: str | float) -> int:
    """Milliseconds since the epoch. ISO 8601 without an offset is UTC.

    Raises:
        ValueError: it is no point in time between 1970 and 3000.
    """
    if isinstance(value, bool):
        raise ValueError("a boolean is no point in time")
    if isinstance(value, int | float) or _SECONDS.fullmatch(value):
        seconds = float(value)
    else:
        moment = _iso(value)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds <= LATEST_S:
        raise ValueError("not between 1970 and 3000 (is it milliseconds?)")
    return round(seconds * 1000)
