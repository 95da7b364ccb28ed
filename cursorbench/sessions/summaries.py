"""What clients ask a model for when a conversation has grown too long: Claude Code, Codex and OpenCode.

For `automatic`, and for whoever has to know that a request asks for nothing else.
"""

from __future__ import annotations

import re

# each goes on as far as no person does who asks for a summary
_RECAPS = tuple(
    f"Your task is to create a detailed summary of {words}"
    for words in (
        "the conversation so far, paying close attention to the user's explicit requests",
        "this conversation. This summary will be placed at the start of a continuing session",
        "the RECENT portion of the conversation — the messages that follow earlier retained context",
    )
)
_TEXT_ONLY = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
_PROMPT = "Provide a detailed prompt for continuing our conversation above."
WANTED = (
    *_RECAPS,
    *(_TEXT_ONLY + words for words in ("- Do NOT use Read, Bash", *_RECAPS)),
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM",
    *(f"{_PROMPT}{blank}Focus on information that would be helpful for continuing" for blank in " \n"),
)
_WANTED = re.compile(f"^(?:{'|'.join(map(re.escape, WANTED))})", re.MULTILINE)


def begins(text: str) -> int:
    """Where a client asks for a summary, in a text of its own or behind a person's; -1 for nowhere."""
    found = _WANTED.search(text)
    return found.start() if found else -1
