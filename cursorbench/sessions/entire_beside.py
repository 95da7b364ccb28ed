"""What Entire's metadata say of the transcript in the same folder, for logs that begin in mid-session.

Not for: the metadata's own items (entire.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cursorbench.sessions.reading import json_document, table_of, text_of

METADATA = "metadata.json"
_DATED = re.compile(r"\d{4}-\d\d-\d\d-(?=.)")  # Entire's first versions put the day before the session's id


def beside(path: Path) -> dict[str, Any]:
    """The metadata in the same folder; empty when there is none."""
    try:
        value = json_document(path.parent / METADATA)
    except OSError:
        return {}
    return table_of(value)


def session_of(told: Mapping[str, Any]) -> str:
    """The session's id as its transcript has it."""
    return _DATED.sub("", text_of(told.get("session_id")), count=1)


def session_of_log(path: Path) -> str:
    """The session of a log that tells none: the metadata's, else the last three parts of its path."""
    about = beside(path)
    entires = session_of(about) if "checkpoint_id" in about else ""
    return entires or "/".join(path.with_suffix("").parts[-3:])
