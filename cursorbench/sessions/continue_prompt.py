"""The last message of a prompt that Continue logged, which is the whole conversation as one text.

Continue writes it with headers of its own (`<user>`), or in the model's template where it formats the prompt
itself (continuedev/continue, core/llm/templates/chat.ts); files and selections that a person named come
before their words as fenced blocks (core/context/providers). And names of files. For `continue_dev`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_ROLES = re.compile(r"^<(system|user|assistant|tool|thinking)>\n", re.MULTILINE)
_OPENED = re.compile(  # a file, or lines of one
    r"\s*+```(?:\w++ )?(?=[^\s`./]*+[./])[^\s`]++(?: \(\d+-\d+\))?\r?\n"
)
_FENCE = re.compile(r"^ {0,3}```[ \t]*+([^\s`]*+)[^\n`]*+$", re.MULTILINE)
_URI = re.compile(r"[a-z][a-z0-9+.-]+://[^/]*(?:/([A-Za-z](?::|%3[Aa])/.*)|(/.*))")  # of Windows, of others


class _Template(NamedTuple):
    """What stands before a person's message, behind it, and where a prompt waits for the answer."""

    user: str
    end: str
    answer: str


_TEMPLATES = (
    _Template("<|im_start|>user\n", "<|im_end|>", "<|im_start|>assistant\n"),
    _Template(
        "<|start_header_id|>user<|end_header_id|>\n",
        "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n",
    ),
    _Template("<start_of_turn>user\n", "<end_of_turn>", "<start_of_turn>model\n"),
    _Template("<|user|>\n", "</s>", "<|assistant|>\n"),
    _Template("### Instruction:\n", "", "### Response:\n"),
    _Template("### User Message\n", "", "### Assistant\n"),
    _Template("### User:\n", "", "### Assistant:\n"),
    _Template("GPT4 Correct User: ", "<|end_of_turn|>", "GPT4 Correct Assistant: "),
    _Template("Source: user\n\n ", " <step> ", "Source: assistant\nDestination: user\n\n "),
    _Template("\n\nHuman: ", "", "\n\nAssistant:"),
    _Template("\n<user>: ", "", "\n<AI>: "),
    _Template("[INST] ", "", "[/INST]"),
)


def last_message(prompt: str) -> tuple[str, str]:
    """(role, text) of the last message."""
    role, start = "", 0
    for header in _ROLES.finditer(prompt):
        role, start = header[1], header.end()
    if role:
        return role, prompt[start:].strip()
    return "user", _templated(prompt).strip()


def context(text: str) -> int:
    """Where a person's words begin, behind the files that they named."""
    start = 0
    while opened := _OPENED.match(text, start):
        depth = 1
        for fence in _FENCE.finditer(text, opened.end()):
            depth += 1 if fence[1] else -1  # a file may have fences of its own
            if not depth:
                start = fence.end()
                break
        else:
            break
    return start


def path_of(name: str) -> str:
    """The path of a file that an editor names as a URI (`file:///c%3A/a.py`); any other name as it is."""
    found = _URI.fullmatch(name)
    return unquote(found[1] or found[2]) if found else name


def _templated(prompt: str) -> str:
    """The last message of a person in a prompt that a template formatted; else all of it."""
    whole = prompt.rstrip()
    for one in _TEMPLATES:
        before, waits, _ = whole.rpartition(one.answer.rstrip())
        if waits and whole.endswith(waits) and (start := before.rfind(one.user)) >= 0:
            text = before[start + len(one.user) :].strip().removesuffix(one.end.rstrip())
            behind = text.partition("<</SYS>>")[2] if text.startswith("<<SYS>>") else ""
            return behind or text
    return prompt
