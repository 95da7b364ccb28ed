"""The folder in which OpenCode before 1.2 keeps its sessions, as what it exports of them. For `opencode`.

`storage/session/PROJECT/ses_ID.json` is a session's info; its messages are in `storage/message/ses_ID/`, the
parts of a message in `storage/part/msg_ID/`, a file each, in the order of their names. What else is there is
told by these. Not for: the database of later versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import MAX_DOCUMENT, json_document

_PARTS = (("message", "ses_", "msg_"), ("part", "msg_", "prt_"))
# what `opencode export` says on standard error, where that was written into the same file
SAID = re.compile(rb"(?:[^\n{]{0,1000}\n){0,16}?Exporting session: [^\n]{0,200}\n\s*")
_ASIDE = {"project", "session_diff", "session_share", "share", "todo"}


def holds(path: Path, head: bytes) -> bool:
    """Whether a file is one of the folder's, also one that is damaged: its session says so."""
    return b'"projectID"' in head if _is_session(path) else _is_part(path)


def document(path: Path) -> tuple[Any, list[Quarantined]]:
    """A session as its export is, an empty list for the files that are a part of one, others as they are; and
    what cannot be read."""
    if _is_part(path):
        return [], []
    info = json_document(path, behind=SAID)
    if isinstance(info, Quarantined):
        return [], [info]
    if not _is_session(path):
        return info, []
    storage = path.parents[2]
    files = {
        message: sorted((storage / "part" / message.stem).glob("prt_*.json"))
        for message in sorted((storage / "message" / path.stem).glob("msg_*.json"))
    }
    if sum(file.stat().st_size for file in chain(files, *files.values())) > MAX_DOCUMENT:
        return [], [Quarantined(Place(str(path)), f"the session is larger than {MAX_DOCUMENT >> 20} MiB")]
    damaged: list[Quarantined] = []
    told = []
    for message, parts in files.items():
        about, *given = _readable([message, *parts], damaged)
        if about is not None:
            told.append({"info": about, "parts": [part for part in given if part is not None]})
    return {"info": info, "messages": told}, damaged


def _readable(files: Sequence[Path], damaged: list[Quarantined]) -> Iterator[Any]:
    """What the files say; None for one that is `damaged`."""
    for found in map(json_document, files):
        if isinstance(found, Quarantined):
            damaged.append(found)
        yield None if isinstance(found, Quarantined) else found


def _is_session(path: Path) -> bool:
    return path.parent.parent.name == "session" and path.name.startswith("ses_")


def _is_part(path: Path) -> bool:
    above, folder = path.parent.name, path.parent.parent.name
    if folder == "storage" and above in _ASIDE and (path.parents[1] / "message").is_dir():
        return True
    return any(
        folder == name and above.startswith(of) and path.name.startswith(own) for name, of, own in _PARTS
    )
