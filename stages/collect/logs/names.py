"""What a log's session is called: its own id where it has one; some logs name it by the request's words."""

from __future__ import annotations

import re
from collections.abc import Callable

from cursorbench.sessions.tellers import is_unique

# What is an id, and no words: nothing, numbers, times, hexadecimal digits; these behind a short prefix too.
_ID = re.compile(
    r"|(?:[a-z]{1,10}[-_])?(?=[^g-zG-Z]*\d)[0-9a-fA-F:. _-]{1,64}"
    r"|[a-z]{1,10}[-_][0-9A-Za-z]{16,40}|[a-z]{1,8}\d{1,20}"
)


def session_name(kind: str, session: str, pseudonym: Callable[[bytes], str]) -> str:
    """A session's own id; with its kind where that is not unique, and a pseudonym where it is no id."""
    if is_unique(session):
        return session
    return f"{kind}:{session if _ID.fullmatch(session) else pseudonym(session.encode())[:24]}"
