"""What a chat of VS Code tells of an answer: its rounds, their calls, and how these ended.

Not for: requests, and what became of the edits (`vscode_chat.py`).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cursorbench.sessions.calls import Call, arguments_of
from cursorbench.sessions.items import Outcome
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_text

_DENIED, _SKIPPED = 0, 5  # of a confirmation
_SKIP = "The user chose to skip the tool call"
_CANCELLED = "The user cancelled the tool call."
_FAILED = re.compile(r"\s*(?:ERROR(?: while calling tool)?: |Applying patch failed with error: )")
_EXITED = re.compile(r"(?:\A|\n)Command exited with code [1-9]\d{0,9}\s*\Z")
_OWN_ID = re.compile(r"__vscode-\d+\Z")  # Copilot's, behind the id that the model's service gave


class Round(msgspec.Struct):
    """What the agent said and asked for between two results. `edited`: files of which no call tells."""

    id: str = ""
    at: int | None = None
    model: str = ""
    text: str = ""
    thinking: str = ""
    calls: list[Call] = []
    results: dict[str, str] = {}
    edited: list[str] = []


def rounds_of(request: dict[str, Any]) -> list[Round]:
    """The rounds of an answer: as Copilot keeps them, else one with what was shown; none of nothing."""
    metadata = table_of(table_of(request.get("result")).get("metadata"))
    known = first_text(metadata, "resolvedModel") or text_of(request.get("modelId")).removeprefix("copilot/")
    found = [table_of(one) for one in list_of(metadata.get("toolCallRounds"))]
    given = table_of(metadata.get("toolCallResults"))
    if not found:
        shown = _shown(request, known)
        return [shown] if shown.text or shown.thinking or shown.calls or shown.edited else []
    rounds = []
    for one in found:
        calls = [
            Call(text_of(call.get("id")), text_of(call.get("name")), arguments_of(call.get("arguments")))
            for call in map(table_of, list_of(one.get("toolCalls")))
        ]
        thought = table_of(one.get("thinking")).get("text")
        rounds.append(
            Round(
                id=text_of(one.get("id")),
                at=milliseconds(one.get("timestamp")),
                model=first_text(one, "modelId") or known,
                text=text_of(one.get("response")),
                thinking="\n".join(map(text_of, thought)) if isinstance(thought, list) else text_of(thought),
                calls=calls,
                results={call.id: _text(given[call.id]) for call in calls if call.id in given},
            )
        )
    return rounds


def invocations(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What was shown of each call, by the id that the call has in the rounds.

    Where none of the ids is a call's, as many invocations as calls are theirs in order.
    """
    parts = map(table_of, list_of(request.get("response")))
    shown = [part for part in parts if part.get("kind") == "toolInvocationSerialized"]
    by_id = {text_of(one.get("toolCallId")): one for one in shown}
    metadata = table_of(table_of(request.get("result")).get("metadata"))
    rounds = map(table_of, list_of(metadata.get("toolCallRounds")))
    ids = [text_of(table_of(call).get("id")) for one in rounds for call in list_of(one.get("toolCalls"))]
    if not ids:
        return by_id
    found = {one: by_id[known] for one in ids if (known := _OWN_ID.sub("", one)) in by_id}
    if not found and len(shown) == len(ids):
        return dict(zip(ids, shown, strict=True))
    return found


def edited_in(request: dict[str, Any]) -> list[str]:
    """The files of which changes were shown, each once."""
    parts = map(table_of, list_of(request.get("response")))
    uris = (table_of(part.get("uri")) for part in parts if part.get("kind") == "textEditGroup")
    return list(dict.fromkeys(path for uri in uris if (path := first_text(uri, "fsPath", "path"))))


def refused(shown: dict[str, Any]) -> bool:
    """Whether a person did not allow a call, as its confirmation tells."""
    confirmed = shown.get("isConfirmed")
    answer = confirmed.get("type") if isinstance(confirmed, dict) else confirmed
    return answer is False or (answer is not True and answer in (_DENIED, _SKIPPED))


def end_of(given: str | None, shown: dict[str, Any] | None) -> tuple[Outcome, str] | None:
    """How a call ended, with its text; None where that is not told."""
    about = shown or {}
    text = given or ""
    if refused(about) or text.startswith(_SKIP):
        return "rejected", text
    if given is None and about.get("isComplete") is not True:
        return None
    if text.startswith(_CANCELLED):
        return "interrupted", text
    details = table_of(about.get("resultDetails"))
    ran = table_of(table_of(about.get("toolSpecificData")).get("terminalCommandState"))
    words = _FAILED.match(text) or _EXITED.search(text, max(0, len(text) - 100))
    failed = words or details.get("isError") is True or ran.get("exitCode") not in (None, 0)
    return "error" if failed else "ok", text


def _text(result: object) -> str:
    """The texts of a result, also of one that is a tree of them; each line of a tree begins where it says."""
    found: list[str] = []
    left = [table_of(part).get("value") for part in reversed(list_of(table_of(result).get("content")))]
    while left:
        node = left.pop()
        if isinstance(node, str):
            found.append(node)
        inner = table_of(table_of(node).get("node")) or table_of(node)
        if isinstance(text := inner.get("text"), str):
            found.append(f"\n{text}" if inner.get("lineBreakBefore") and found else text)
        left += reversed(list_of(inner.get("children")))
    return "".join(found)


def _shown(request: dict[str, Any], model: str) -> Round:
    """The answer as it was shown."""
    said, thought = list[str](), list[str]()
    shown = Round(id=text_of(request.get("responseId")), model=model, calls=[], edited=[])
    for part in map(table_of, list_of(request.get("response"))):
        kind = text_of(part.get("kind"))
        if kind in ("", "markdownContent"):
            said.append(text_of(part.get("value")) or text_of(table_of(part.get("content")).get("value")))
        elif kind == "inlineReference":
            about = table_of(part.get("inlineReference"))
            uri = table_of(about.get("uri")) or table_of(table_of(about.get("location")).get("uri")) or about
            said.append(text_of(about.get("name")) or text_of(uri.get("path")).rpartition("/")[2])
        elif kind == "thinking":
            thought.append(text_of(part.get("value")))
        elif kind == "toolInvocationSerialized":
            told = table_of(part.get("toolSpecificData"))
            asked = told.get("rawInput", told.get("commandLine"))
            given = asked if isinstance(asked, dict) else {}
            shown.calls.append(
                Call(text_of(part.get("toolCallId")), text_of(part.get("toolId")), arguments_of(given))
            )
    shown.edited = edited_in(request)
    shown.text, shown.thinking = "".join(said), "".join(thought)
    return shown
