"""What the `data` of each event type must hold. Further fields are kept as they are.

The same tables stand in `docs/http.md`; a test compares them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from cursorbench.sessions.lines import sides_of_diff
from stages.gateway.arguments import EXACT
from stages.gateway.attribution import MAX_NAME

_WHOLE = ("value", "added", "added_kept", "deleted", "deleted_kept")  # fields of `thumbs` and `edit_survival`
_FIELD = re.compile(r"at `\$\.(\w+)|required field `(\w+)`")
_MUST_BE = {
    "path": "a string that is not empty",
    "part": "true or false",
    "ok": "true or false",
    "horizon_s": "a number of seconds, 0 or more",
    "duration_ms": "a number, 0 or more",
    **dict.fromkeys(_WHOLE[1:], "a whole number, 0 or more"),
}
_VALUE = {"thumbs": "1 or -1", "outcome": "a number from -1 to 1"}

_Path = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class EditApplied(msgspec.Struct):
    """The user's file was changed as proposed: full texts before and after, or a unified diff."""

    path: _Path
    before: str | None = None
    after: str | None = None
    diff: str | None = None
    part: bool = False


class EditRejected(msgspec.Struct):
    """The user refused a proposed edit."""

    path: _Path | None = None
    reason: str | None = None


class EditReverted(msgspec.Struct):
    """The user undid an applied edit."""

    path: _Path


class EditSurvival(msgspec.Struct):
    """What is there some time after the edit: the file's text now, or counts of lines."""

    horizon_s: _Seconds
    path: _Path | None = None
    now: str | None = None
    before: str | None = None
    after: str | None = None
    added: _Count | None = None
    added_kept: _Count | None = None
    deleted: _Count | None = None
    deleted_kept: _Count | None = None


class UserMessage(msgspec.Struct):
    """What the user wrote next."""

    text: str


class ToolResult(msgspec.Struct):
    """A tool call was carried out, or refused by the user, who said why."""

    name: str
    ok: bool
    tool_call_id: str | None = None
    reason: str | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Thumbs(msgspec.Struct):
    """An explicit verdict."""

    value: Literal[1, -1]


class Outcome(msgspec.Struct):
    """How a whole task ended: -1 failed, 1 as good as can be."""

    value: Annotated[float, msgspec.Meta(ge=-1, le=1)]
    name: str | None = None


class Feedback(msgspec.Struct):
    """What a metric of a team's own says. What that means, `collect.metrics` tells when it is collected."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    value: float | bool | Literal["up", "down", "true", "false"]


class Nothing(msgspec.Struct):
    """The type says it all."""


DATA: dict[str, type[msgspec.Struct]] = {
    "edit_applied": EditApplied,
    "edit_rejected": EditRejected,
    "edit_reverted": EditReverted,
    "edit_survival": EditSurvival,
    "user_message": UserMessage,
    "tool_result": ToolResult,
    "thumbs": Thumbs,
    "interrupted": Nothing,
    "outcome": Outcome,
    "feedback": Feedback,
    "completion_shown": Nothing,
    "completion_accepted": Nothing,
    "completion_rejected": Nothing,
    "session_closed": Nothing,
}


def whole_numbers(type: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data` with 1.0 as 1 where a whole number is meant: some clients have only one kind of number."""
    if type not in ("thumbs", "edit_survival"):
        return data
    return {
        name: int(value) if name in _WHOLE and _is_whole(value) else value for name, value in data.items()
    }


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < EXACT


def _in_words(type: str, told: str) -> str:
    """Which field it is and what it must be, from what msgspec tells, which may repeat what was given."""
    found = _FIELD.search(told)
    if found is None:
        return "data cannot be read"
    name = found[1] or found[2]
    must = _MUST_BE.get(name, "a string")
    if name == "value":
        must = _VALUE.get(type, "a number, true, false, up or down")
    elif (type, name) == ("feedback", "name"):
        must = f"a string of 1 to {MAX_NAME} characters"
    return f"{name} is missing, it must be {must}" if found[2] else f"{name} must be {must}"


def problem(type: str, data: dict[str, Any]) -> str:
    """What is wrong with `data`, "" for nothing. Names fields, never their content."""
    try:
        checked = msgspec.convert(data, DATA[type])
    except msgspec.ValidationError as error:
        return _in_words(type, str(error))
    if isinstance(checked, EditApplied) and checked.diff is None and None in (checked.before, checked.after):
        return "edit_applied needs before and after, or diff"
    if isinstance(checked, EditApplied) and checked.diff is not None and _changes_nothing(checked.diff):
        return "diff must be a unified diff: it has no line that begins with + or -"
    if isinstance(checked, EditSurvival) and checked.now is None:
        counts = (checked.added, checked.added_kept, checked.deleted, checked.deleted_kept)
        if None in counts:
            return "edit_survival needs now, or added, added_kept, deleted and deleted_kept"
        kept_more = [(kept or 0) > (all_ or 0) for all_, kept in (counts[:2], counts[2:])]
        if any(kept_more):
            return "edit_survival cannot keep more lines than there were"
    return ""


def _changes_nothing(diff: str) -> bool:
    """Whether nothing can be read off a diff: distill would take the edit for none."""
    before, after = sides_of_diff(diff)
    return before == after
