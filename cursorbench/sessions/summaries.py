"""What clients ask a model for when a conversation has grown too long, or to name it: how texts begin.

For `automatic`, and for whoever has to know that a request asks for nothing else. Source: requests and
published sessions of Claude Code, Codex, OpenCode, Copilot CLI 1.0, Gemini CLI and Qwen Code. Not for: the
summaries that come of it.
"""

from __future__ import annotations

import re

# of Claude Code, Codex and OpenCode, where another is not named; each goes on as far as no person does who
# asks for a summary
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
    # Copilot CLI's, OpenCode's of 2026, and Gemini CLI's and Qwen Code's
    "Please create a detailed summary of the conversation so far. The history is being compacted",
    "Here is the conversation so far:\n\n<conversation>\n[User]: ",
    "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    "First, reason in your <analysis> block. Then, produce the <state_snapshot> XML.",
    *(f"{_PROMPT}{blank}Focus on information that would be helpful for continuing" for blank in " \n"),
)
TITLES = (  # what OpenCode and Codex ask for themselves to name a conversation
    "Generate a title for this conversation:\n",
    "Generate a concise, single-line task title of at most ",
)
_WANTED = re.compile(f"^(?:{'|'.join(map(re.escape, WANTED))})", re.MULTILINE)


def begins(text: str) -> int:
    """Where a client asks for a summary, in a text of its own or behind a person's; -1 for nowhere."""
    found = _WANTED.search(text)
    return found.start() if found else -1
