"""What a shell was asked in SpecStory transcripts, and which of a call's blocks is what it gave.

The writers put the command into a ```bash block (the editor extensions; all, where it has several lines and
is Claude Code's or Codex's), between backticks in the text (Claude Code, Droid, DeepSeek, Antigravity), or
between backticks in the summary (Codex, Cursor's command line). Not for: how the call ended
(`specstory_tools`).

Source: specstoryai/getspecstory, `markdown_tools.go` of each of its providers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cursorbench.sessions.specstory_gemini import Block

_SUMMARY = re.compile(r"\*\* (?:• )?`(.*)`\s*$", re.DOTALL)
_TEXT = re.compile(r"^`(.*)`$", re.MULTILINE)
_LISTS = "LS"  # Cursor's, which is of the type of a shell: its summary names a folder
_END = "</summary>"


def asked(name: str, summary: str, blocks: Sequence[Block], text: str) -> str:
    """The command, "" where none is shown."""
    if _is_command(blocks):
        return blocks[0].text
    if found := _TEXT.search(text.partition(_END)[2] if _END in text else text):
        return found[1]
    if _END in text:  # the command has several lines, and the summary with it
        summary = f"{summary}\n{text.partition(_END)[0]}"
    found = _SUMMARY.search(summary) if name != _LISTS else None
    return found[1] if found else summary.partition("Run command: ")[2]


def without_command(blocks: Sequence[Block]) -> Sequence[Block]:
    """The blocks but the one that shows the command."""
    return blocks[1:] if _is_command(blocks) else blocks


def _is_command(blocks: Sequence[Block]) -> bool:
    return bool(blocks) and blocks[0].info == "bash"
