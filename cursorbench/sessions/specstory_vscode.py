"""What VS Code's own tables tell of a call, in SpecStory's transcripts of Copilot. For `specstory_tools`.

Where SpecStory's extension has no words for a tool it shows these tables: what a terminal was asked and how
that ended (`Parameters:`), whether a person allowed the call (`Result:`). The names are VS Code's, as in its
chats (`vscode_answers`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cursorbench.sessions.items import Outcome
from cursorbench.sessions.reading import parsed, table_of, text_of
from cursorbench.sessions.specstory_gemini import Block
from cursorbench.sessions.vscode_answers import refused


class Told(msgspec.Struct):
    """A command as the agent asked for it, what it gave, how the call ended; None and "" where not told."""

    command: str = ""
    output: str | None = None
    outcome: Outcome | None = None


def told(blocks: Sequence[Block]) -> Told:
    """What the tables among a call's blocks tell."""
    found = Told()
    for block in blocks:
        if block.info != "json" or block.before not in ("Parameters:", "Result:"):
            continue
        table = table_of(parsed(block.text.encode(errors="replace")))
        if block.before == "Parameters:" and table.get("kind") == "terminal":
            found.command = text_of(table_of(table.get("commandLine")).get("original"))
            output = table_of(table.get("terminalCommandOutput")).get("text")
            found.output = output if isinstance(output, str) else found.output
            if table_of(table.get("terminalCommandState")).get("exitCode") not in (0, None):
                found.outcome = "error"
        elif refused(table):
            found.outcome = "rejected"
        elif table_of(table.get("resultDetails")).get("isError") is True:
            found.outcome = found.outcome or "error"
    return found
