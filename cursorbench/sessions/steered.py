"""What a person wrote while the agent worked, as its client tells the model. For `automatic` and `spoken`.

Claude Code, OpenCode and Gemini CLI put words of theirs around it, and a tag (OpenCode; older versions of
Claude Code; Gemini CLI). Sources: requests of Claude Code 2.1.332; sst/opencode (`session/prompt.ts`);
google-gemini/gemini-cli (`utils/fastAckHelper.ts`). Not for: logs that keep it as it was typed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LEAD = re.compile(
    r"\s*(?:<system-reminder>\s*)?"
    r"(?:The user sent (?:a new message while you were working|the following message):[ \t]*"
    r"|User (?:steering update|hints):\n<user_input>)\n"
)
_TAIL = re.compile(  # a line of its own: blank lines before it are not looked at from each
    r"^[^\S\n]*(?:This is how Claude Code surfaces messages the user sends mid-turn"
    r"|IMPORTANT: After completing your current task, you MUST address the user's message"
    r"|Please address this message and continue with your tasks"
    r"|</user_input>\n+Internal instruction: Re-evaluate the active plan)[^\n]*(?:\s*</system-reminder>)?",
    re.MULTILINE,
)


class Steered(NamedTuple):
    """`words`: what the person wrote; `around`: the client's words; the text goes on at `end`."""

    words: str
    around: str
    end: int


def at(text: str, start: int) -> Steered | None:
    """The message that stands at `start`; None where there is none."""
    if not (lead := _LEAD.match(text, start)):
        return None
    if not (tail := _TAIL.search(text, lead.end())):
        return None
    around = f"{lead[0].strip()}\n{tail[0].strip()}"
    return Steered(text[lead.end() : tail.start()].strip(), around, tail.end())
