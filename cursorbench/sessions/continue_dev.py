"""Continue's development data (~/.continue/dev_data/VERSION/EVENT.jsonl): completions, edits, chats, tools.

Read are the files of all schema versions, the bare events that `file://` destinations get, and the
{name, data} envelope of HTTP destinations. The schemas stand in continuedev/continue,
packages/config-yaml/src/schemas/data. Not for: session files (`continue_session.py`).

An event tells no id of an answer or an edit. So that an outcome finds its edit, and a thumb its answer, their
ids here are digests of what both events repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import continue_answers, spoken
from cursorbench.sessions.calls import arguments_of
from cursorbench.sessions.continue_answers import answer_id, digest, shown_id, words_of
from cursorbench.sessions.continue_prompt import context, last_message, path_of
from cursorbench.sessions.items import (
    AgentTurn,
    Completion,
    Edit,
    Feedback,
    Outcome,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import (
    first_objects,
    first_text,
    json_text,
    mentions,
    opening,
    records,
)
from cursorbench.sessions.seen import Seen

KIND = "continue"

_UNTOLD = "?"  # no answer's id: what was asked and answered was not logged
_FILES = {"chat": "chatFeedback", "tokens_generated": "tokensGenerated"}  # names before 0.1.0
_SHAPES = (  # what tells a bare event without a name in a file without one; more specific ones first
    ("nextEditOutcome", {"userEdits", "completionId"}),
    ("nextEditWithHistory", {"previousEdits", "beforeContent"}),
    ("autocomplete", {"completionId", "cacheHit"}),
    ("editOutcome", {"previousCodeLines", "newCodeLines"}),
    ("toolUsage", {"toolCallId", "functionName"}),
    ("chatFeedback", {"feedback", "sessionId"}),
    ("quickEdit", {"label", "prompt", "diffs"}),
    ("tokensGenerated", {"promptTokens", "generatedTokens"}),
    ("editInteraction", {"modelProvider", "modelName", "filepath", "completion"}),
    ("chatInteraction", {"modelProvider", "sessionId", "completion"}),
)


def recognises(path: Path, head: bytes) -> bool:
    """By a named event, a file named for one in dev_data, or an event's fields."""
    found = [_unwrapped(one) for one in first_objects(head)]
    if any(name in _EVENTS and _looks_like(event) for name, event in found):
        return True
    if "dev_data" in path.parts and path.suffix == ".jsonl" and _name_of(path) in _EVENTS:
        return True
    if not found:
        return mentions(head, "completionId", "cacheHit") or mentions(head, "eventName", "selectedProfileId")
    return any(_shape(event) for _, event in found)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of each event."""
    taken = _taken(path)
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, record = found
        name, event = _unwrapped(record)
        name = name or (_name_of(path) if _name_of(path) in _EVENTS else _shape(event))
        told = _EVENTS.get(name)
        if told is None:
            yield Quarantined(place, "unknown_type")
        elif event.get("accepted") is True or text_of(event.get("completionId")) not in taken:
            yield from told(event, place, seen)


def _taken(path: Path) -> set[str]:
    """The completions that were accepted: after ten seconds, behind an event that says they were not."""
    told = (_unwrapped(found[1])[1] for found in records(path) if not isinstance(found, Quarantined))
    return {
        one for event in told if event.get("accepted") is True and (one := text_of(event.get("completionId")))
    }


def _unwrapped(record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(data := record.get("data"), dict) and isinstance(record.get("name"), str):
        return record["name"], data
    return text_of(record.get("eventName")), record


def _looks_like(event: dict[str, Any]) -> bool:
    return bool(_shape(event)) or "userAgent" in event or "selectedProfileId" in event


def _shape(event: dict[str, Any]) -> str:
    return next((name for name, fields in _SHAPES if fields <= event.keys()), "")


def _name_of(path: Path) -> str:
    return _FILES.get(path.stem, path.stem)


def _at(event: dict[str, Any]) -> int | None:
    return milliseconds(event.get("timestamp") or event.get("createdAt"))


def _model(event: dict[str, Any]) -> str:
    return first_text(event, "modelName", "modelTitle", "model")


def _completion(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    """autocomplete and nextEditOutcome: logged when accepted, or ten seconds after being shown."""
    one, accepted = text_of(event.get("completionId")), event.get("accepted")
    if not one and not isinstance(accepted, bool) and not text_of(event.get("completion")):
        yield Quarantined(place, "a completion without id, text and outcome")
        return
    if not seen.first("continue", f"completion:{one}" if one else ""):
        return
    yield Completion(
        session="",
        id=one,
        at=_at(event),
        place=place,
        path=path_of(first_text(event, "filepath", "fileUri")),
        prompt=text_of(event.get("prompt")),
        text=text_of(event.get("completion")),
        accepted=accepted if isinstance(accepted, bool) and event.get("aborted") is not True else None,
        model=_model(event),
    )


def _chat(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    session, at = text_of(event.get("sessionId")), _at(event)
    prompt, answer = text_of(event.get("prompt")), text_of(event.get("completion"))
    one = digest(session, prompt, answer)
    if not seen.first(session, f"chat:{one}:{at}" if one else ""):
        return
    yield from opening(seen, session, place, at, agent="continue")
    role, text = last_message(prompt)
    if role == "user" and text and seen.first(session, f"prompt:{digest(prompt)}"):
        yield from _asked(text, session=session, at=at, place=place)
    own: dict[str, Any] = {"id": answer_id(session, answer), "span": shown_id(answer), "model": _model(event)}
    yield AgentTurn(session=session, at=at, place=place, text=words_of(answer), **own)


def _asked(text: str, *, id: str = "", **own: Any) -> Iterator[Read]:
    """A person's message, and before it the files that they named in it."""
    start = context(text)
    if files := text[:start].strip():
        yield UserTurn(**own, text=files, automatic="meta")
    yield from spoken.turns(text[start:].strip() if start else text, id=id, **own)


def _thumb(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    value, session = event.get("feedback"), text_of(event.get("sessionId"))
    if not isinstance(value, bool):
        yield Quarantined(place, "feedback without a verdict")
        return
    target, at = answer_id(session, text_of(event.get("completion"))), _at(event)
    if seen.first(session, f"thumb:{target}:{value}:{at}" if target or at else ""):
        yield from opening(seen, session, place, at, agent="continue")
        yield Feedback(session=session, at=at, place=place, target=target, name="thumb", value=value)


def _edit_asked(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    at, path, one = _at(event), path_of(text_of(event.get("filepath"))), _edit_id(event)
    text, after = text_of(event.get("prompt")), text_of(event.get("completion"))
    if not path:
        yield Quarantined(place, "an edit without a file")
        return
    if not seen.first("continue", f"asked:{one}:{at}" if one else ""):
        return
    seen.first("continue", f"edit:{one}")
    yield from _asked(text, session="", id=one, at=at, place=place)
    yield AgentTurn(session="", id=one, at=at, place=place, text=after, model=_model(event))
    yield Edit(session="", id=one, at=at, place=place, path=path, status="proposed", answer=one)


def _edit_decided(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    at, path, accepted = _at(event), path_of(text_of(event.get("filepath"))), event.get("accepted")
    if not path or not isinstance(accepted, bool):
        yield Quarantined(place, "an edit without an outcome" if path else "an edit without a file")
        return
    one = answer = _edit_id(event)
    if not seen.knows("continue", f"edit:{one}"):  # an agent's, in a chat
        if continue_answers.told_edits(seen, text_of(event.get("completion"))):
            return
        answer = shown_id(text_of(event.get("completion")))
    if not seen.first("continue", f"decided:{one}:{at}:{digest(*_code(event))}" if one else ""):
        return
    if not seen.first("continue", f"decided:{one}" if one else ""):
        one = digest(one, *_code(event))  # one answer of an agent may edit a file several times
    before, after = event.get("previousCode"), event.get("newCode")
    yield Edit(
        session="",
        id=one,
        at=at,
        place=place,
        path=path,
        status="applied" if accepted else "rejected",
        before=before if isinstance(before, str) else None,
        after=after if isinstance(after, str) else None,
        answer=answer or _UNTOLD,
    )


def _code(event: dict[str, Any]) -> tuple[str, str]:
    return text_of(event.get("previousCode")), text_of(event.get("newCode"))


def _edit_id(event: dict[str, Any]) -> str:
    texts = [text_of(event.get(name)) for name in ("prompt", "completion")]
    return digest(text_of(event.get("filepath")), *texts) if any(texts) else ""


def _quick_edit(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    at, path = _at(event), path_of(text_of(event.get("path")))
    marks = {"new": "+", "old": "-", "same": " "}
    diff = [
        marks[mark] + text_of(line.get("line"))
        for line in map(table_of, list_of(event.get("diffs")))
        if (mark := text_of(line.get("type"))) in marks
    ]
    yield UserTurn(session="", at=at, place=place, text=text_of(event.get("prompt")))
    if path:
        text = "\n".join(diff) or None
        yield Edit(session="", at=at, place=place, path=path, status="proposed", diff=text)


def _tool(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    one, name, at = text_of(event.get("toolCallId")), text_of(event.get("functionName")), _at(event)
    if not name:
        yield Quarantined(place, "a tool call without a name")
        return
    if continue_answers.told_call(seen, one):
        return
    logged = (event.get(field) for field in ("toolCallArgs", "functionArgs", "parsedArgs"))
    arguments = next((found for found in map(arguments_of, logged) if found.text), arguments_of(None))
    accepted, succeeded = event.get("accepted"), event.get("succeeded")
    if not seen.first("continue", f"tool:{one}:{accepted is True}:{succeeded is True}:{at}" if one else ""):
        return
    if seen.first("continue", f"call:{one}" if one else ""):
        told: dict[str, Any] = {"name": name, "arguments": arguments.text, "invalid": arguments.invalid}
        yield ToolUse(session="", id=one, at=at, place=place, **told)
    if isinstance(succeeded, bool) or isinstance(accepted, bool):
        text = "\n".join(_output(each) for each in list_of(event.get("output")))
        outcome = _outcome(accepted, succeeded)
        yield ToolEnd(session="", id=one, at=at, place=place, outcome=outcome, text=text)


def _outcome(accepted: object, succeeded: object) -> Outcome:
    """Continue logs a failed call as neither accepted nor succeeded, a cancelled one as succeeded."""
    if accepted is False and succeeded is not False:
        return "rejected"
    return "error" if succeeded is False else "ok"


def _output(value: object) -> str:
    return value if isinstance(value, str) else text_of(table_of(value).get("content")) or json_text(value)


def _nothing(event: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    """tokensGenerated counts tokens; nextEdit* are the user's own typing."""
    yield from ()


_EVENTS: dict[str, Callable[[dict[str, Any], Place, Seen], Iterator[Read]]] = {
    "autocomplete": _completion,
    "nextEditOutcome": _completion,
    "chatInteraction": _chat,
    "chatFeedback": _thumb,
    "editInteraction": _edit_asked,
    "editOutcome": _edit_decided,
    "quickEdit": _quick_edit,
    "toolUsage": _tool,
    "tokensGenerated": _nothing,
    "nextEditWithHistory": _nothing,
    "nextEdit": _nothing,
}
