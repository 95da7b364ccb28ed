"""What an answer that Continue logged says, and the names by which other events of its know it.

Since June 2025 each piece of a streamed answer has a header of its own, and calls stand behind the words as
`name(arguments)`, in pieces too (`_formatChatMessage` of continuedev/continue's core/llm/index.ts). An edit
that an agent made repeats the words as the chat shows them (gui/src/util/editOutcomeLogger.ts). For
`continue_dev` and `continue_session`, which may tell of the same chat. Not for: calls, events of their own.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from cursorbench.sessions.seen import Seen

_HEAD = "<assistant>\n"
_END = "\n\n"
_ARGUMENTS = re.compile(r"\n(?:undefined\(.*\)|[\w.:/-]+\(\{.*\}\))", re.DOTALL)
_NAME = re.compile(r"\n[\w.:/-]+\(\)")  # of a call whose arguments are in the pieces behind


def digest(*parts: str) -> str:
    """An id for what has none; "" when all parts are empty, as at level noCode."""
    if not any(parts):
        return ""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=12).hexdigest()


def answer_id(session: str, completion: str) -> str:
    """The name that a thumb has for the answer: it repeats its words, of one without any what was logged."""
    return digest(session, words_of(completion) or completion) if completion else ""


def shown_id(completion: str) -> str:
    """The name that an agent's edit has for the answer: it names no session, and has the words alone."""
    words = "".join(words_of(completion).split())
    return digest("shown", words) if words else ""


def words_of(completion: str) -> str:
    """The words of an answer, without headers and calls."""
    if not completion.startswith(_HEAD):
        return completion
    pieces = completion.removeprefix(_HEAD).removesuffix(_END).split(_END + _HEAD)
    called = False
    while pieces and (
        not pieces[-1] or _ARGUMENTS.fullmatch(pieces[-1]) or (called and _NAME.fullmatch(pieces[-1]))
    ):
        called = called or bool(pieces[-1])
        pieces.pop()
    return "".join(pieces)


def tells_call(seen: Seen, call: str) -> None:
    """Notes that a session tells this call, whose event of the development data repeats it."""
    seen.first("continue", f"told:{call}" if call else "")


def told_call(seen: Seen, call: str) -> bool:
    """Whether a session told this call."""
    return seen.knows("continue", f"told:{call}")


def tells_edits(seen: Seen, completion: str) -> None:
    """Notes that a session tells what this answer's calls changed."""
    if one := shown_id(completion):
        seen.first("continue", f"edited:{one}")


def told_edits(seen: Seen, completion: str) -> bool:
    """Whether a session told what the answer of these words changed."""
    return seen.knows("continue", f"edited:{shown_id(completion)}")
