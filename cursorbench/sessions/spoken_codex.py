"""What a person wrote in a prompt that Codex's editor extension or app put together. For `spoken`.

Sections of context come first, the request behind them below a heading of its own. In the sections stand a
person's comments on lines of a diff, on a page in the browser and on parts of an answer; answers to questions
that the agent asked are in a tag. Not for: what Codex itself puts before a request (`automatic.py`).

Source: published rollouts, and what reads them in public: the headings of the extension's `prompt` module, as
of 26.803 (August 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.sessions.reading import list_of, parsed, table_of, text_of

_REQUEST = re.compile(r"^## My request for Codex:[ \t]*$", re.MULTILINE)
_NEWER = re.compile(r"^## My request(?: for Codex)?:[ \t]*$", re.MULTILINE)  # behind a section that is known
_HEADING = re.compile(r"\s*# \S")
_SECTION = re.compile(
    r"\s*(?:# (?:Context from my IDE setup|Selected text|(?:Files|Applications) mentioned by the user"
    r"|Files pasted by the user|Response annotations|Diff comments|Browser comments|MCP app context"
    r"|Failing PR checks|Review findings|Pull request merge conflict|Chrome tabs|In app browser)"
    r"|## (?:Prior conversation with Codex|Referenced chats with Codex|Referenced ChatGPT conversation"
    r"|Code review guidelines|Pull request (?:fix|merge task)|Auto resolve merge)):"
)
_COMMENTS = re.compile(r"^# (?:Diff|Browser) comments:", re.MULTILINE)
_COMMENT = re.compile(
    r"^(?:Comment|Requested changes):[ \t]*\n(.*?)(?=\n#{1,2} |\nStyle provenance:"
    r"|\nSaved marker screenshot:|\nAnnotated (?:PDF )?screenshot:|\Z)",
    re.MULTILINE | re.DOTALL,
)
_NOTES, _NOTES_END = re.compile(r"^<response-annotations>\n", re.MULTILINE), "\n</response-annotations>"
_PICTURE = re.compile(r"^The next image (?:is|shows) [^\n]{0,600}\bComment \d+[^\n]*\n?", re.MULTILINE)
_REPLY = "<send_user_message_question_reply>"


def asked(text: str) -> tuple[str, str] | None:
    """(the context, what the person wrote) of such a prompt; None for any other text."""
    known = _SECTION.match(text)
    found = (_NEWER if known else _REQUEST).search(text) if known or _HEADING.match(text) else None
    if found is None:
        return None
    before, request = text[: found.start()], _PICTURE.sub("", text[found.end() :]).strip()
    marked = before.partition("\n<in-app-browser-context")[0]  # what the page says is nobody's comment
    comments = _COMMENT.findall(marked) if _COMMENTS.search(marked) else []
    words = [*(one.strip() for one in comments), *_notes(before), answers(request) or request]
    return before.strip(), "\n\n".join(filter(None, words))


def answers(text: str) -> str:
    """What a person answered to questions of the agent, when the text is such a reply; else ""."""
    if not text.lstrip().startswith(_REPLY):
        return ""
    reply, closed, _ = text.strip().removeprefix(_REPLY).partition(_REPLY.replace("<", "</"))
    told = list_of(parsed(reply.encode(errors="replace"))) if closed else []
    return "\n\n".join(filter(None, (text_of(table_of(one).get("answer")).strip() for one in told)))


def _notes(before: str) -> Iterator[str]:
    end = 0
    while (begun := _NOTES.search(before, end)) and (end := before.find(_NOTES_END, begun.end())) >= 0:
        for one in map(table_of, list_of(parsed(before[begun.end() : end].encode(errors="replace")))):
            yield (text_of(one.get("annotation")) or text_of(one.get("comment"))).strip()
