"""Gemini CLI's tools in SpecStory transcripts: results behind `Result:` in Gemini's words, texts as diffs.

For `specstory_tools`. The words are those of `edit.ts`, `write-file.ts`, `shell.ts`, `coreToolScheduler.ts`
in google-gemini/gemini-cli, the form that of `geminicli/markdown_tools.go` in specstoryai/getspecstory.
"""

from __future__ import annotations

import re

import msgspec

from cursorbench.sessions.items import Outcome

AGENT = "Gemini CLI"
_WRITERS = frozenset({"replace", "smart_edit", "write_file"})
_CUT = "\n... (truncated)"  # what SpecStory puts behind the first 2,000 characters of a new text
_RESULT = re.compile(r"^Result: (\S.*)", re.MULTILINE | re.DOTALL)
_STOPPED = re.compile(r"\[Operation Cancelled\] Reason: (User (?:did not allow|denied|declined)\b)?")
_WRITTEN = re.compile(r"Successfully |Created new file: ")
_EXIT = re.compile(r"^Exit Code: (-?\d{1,10})\s*$", re.MULTILINE)


class Block(msgspec.Struct, frozen=True):
    """A code block of a transcript, with the last line of text before it that is not blank."""

    info: str
    text: str
    before: str


def asked(block: Block) -> Block:
    """A block of a call: what stands below the path is a text to write, whatever the block says."""
    if not block.before.startswith("Path: `"):
        return block
    text = block.text
    if text.endswith(_CUT):  # with the line that was cut
        text = text.removesuffix(_CUT).rpartition("\n")[0]
    return Block("", text, block.before)


def result_of(blocks: list[Block], text: str) -> str | None:
    """What the tool gave back, where it stands behind its mark."""
    if found := _RESULT.search(text):
        return found[1]
    return next((block.text for block in reversed(blocks) if block.before == "Result:"), None)


def outcome(tool: str, result: str) -> Outcome | None:
    """How a call ended; None where only what all agents write may tell."""
    if stopped := _STOPPED.match(result):
        return "rejected" if stopped[1] else "interrupted"
    if tool in _WRITERS:
        return "ok" if _WRITTEN.match(result) else "error"
    if tool == "run_shell_command" and (codes := _EXIT.findall(result)):
        return "error" if int(codes[-1]) else "ok"
    return None


def is_open(tool: str, result: str | None) -> bool:
    """Whether a call that changes a file has not ended: it has no result."""
    return tool in _WRITERS and result is None
