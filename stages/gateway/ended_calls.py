"""What a request tells of the calls of the answer before it: a person's no, their reason, their stop, and the
changes of files that were made.

An agent that asks its user first tells the model of a no in the place of the call's result, and what an
editing tool gave says whether it changed its file. So the gateway hears both with the next request, also of
agents that send no events. They become the events that telemetry would tell (`received.py`), with the same
ids: once, whichever comes first. Results of other calls are not judged here: their words are the tools'.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from cursorbench.sessions import items as said
from cursorbench.sessions.calls import Change, edits
from cursorbench.sessions.carried_out import changes_asked, changes_made, may_change
from cursorbench.sessions.refusals import refusal, stopped
from stages import reactions
from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.gateway.attribution import text_of
from stages.gateway.errors import unavailable
from stages.gateway.event_data import problem
from stages.gateway.links import Links
from stages.gateway.metrics import Metrics
from stages.gateway.received_events import Told, event_of, itself
from stages.records import BY_CALL, WHOLE, Event
from stages.spool import SpoolWriter

_KIND = "otel"  # by which telemetry's ids begin
_PLACE = said.Place("request", 0)
_MOST = 64  # calls of one answer that are looked at


class Ended(NamedTuple):
    """A call of the last answer that a person refused or stopped, or that may have changed files."""

    id: str
    name: str
    arguments: str
    text: str = ""  # what the model was told of its end


class EndedCalls:
    """Of one gateway."""

    def __init__(
        self, spool: SpoolWriter, links: Links, metrics: Metrics, pseudonym: Callable[[bytes], str]
    ) -> None:
        self._spool, self._links, self._metrics, self._pseudonym = spool, links, metrics, pseudonym

    async def tell(self, key_id: str, messages: Sequence[dict[str, Any]], at: int | None = None) -> None:
        """Record what a request with that key tells. Raises ApiError 503: the disk takes nothing.

        `at`: the request's own time in ms, None for now. Most requests tell nothing and cost a look at their
        last messages.
        """
        calls = ended(messages)
        if not calls:
            return
        try:
            results = await asyncio.to_thread(self._record, key_id, calls, at)
        except DependencyDownError as error:
            message = "what became of calls could not be recorded"
            raise unavailable("capture_unavailable", message, retry_after=10) from error
        for type, status in results:
            self._metrics.event(type, status)

    def _record(self, key_id: str, calls: list[Ended], at: int | None) -> list[tuple[str, str]]:
        events: list[Event] = []
        for call in calls:
            generation = self._links.call(key_id, call.id)
            same = Counter[tuple[str, ...]]()  # a call may change a file in several parts
            for item, one in _told(call, at) if generation else ():
                if problem(*one):  # a name of a tool that is none, a path
                    continue
                own = itself(item, one, b"")
                what = own, same[own]
                same[own] += 1
                events.append(event_of(_KIND, key_id, generation, one, item, what, now_ms(), self._pseudonym))
        results = self._spool.append_events(events) if events else []
        return [(event.type, result.status) for event, result in zip(events, results, strict=True)]


def ended(messages: Sequence[dict[str, Any]]) -> list[Ended]:
    """The calls of the last answer of which there is something to tell."""
    last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].get("role") == "assistant"), None)
    if last is None:
        return []
    calls = (messages[last].get("tool_calls") or ())[:_MOST]
    asked = {call.id: call for call in map(_named, calls)}
    found = []
    for message in messages[last + 1 :]:
        id = message.get("tool_call_id")
        if message.get("role") != "tool" or not isinstance(id, str) or id not in asked:
            continue
        call = asked[id]._replace(text=text_of(message.get("content")))
        if may_change(call.name, call.arguments) or _no(call.text):
            del asked[id]
            found.append(call)
    return found


def _no(text: str) -> bool:
    return refusal(text) is not None or stopped(text)


def _told(call: Ended, at: int | None) -> Iterator[tuple[said.Item, Told]]:
    """What there is to tell of a call."""
    if not _no(call.text):
        yield from _edits(call, at, "applied", changes_made(call.name, call.arguments, call.text))
        return
    reason = refusal(call.text)
    outcome: said.Outcome = "interrupted" if reason is None else "rejected"
    end = said.ToolEnd(
        session="", id=call.id, at=at, place=_PLACE, outcome=outcome, text="", reason=reason or ""
    )
    yield end, reactions.of_tool(end, call.name)
    if outcome == "interrupted":
        yield end, ("interrupted", {})
    else:
        yield from _edits(call, at, "rejected", changes_asked(call.name, call.arguments))


def _edits(
    call: Ended, at: int | None, status: said.Status, changes: tuple[Change, ...]
) -> Iterator[tuple[said.Item, Told]]:
    for edit in edits(changes, status, session="", call=call.id, at=at, place=_PLACE):
        if (told := reactions.of_edit(edit)) is not None:
            anew = {WHOLE: True} if edit.before is None and edit.after is not None else {}
            yield edit, (told[0], told[1] | {BY_CALL: True} | anew)


def _named(call: dict[str, Any]) -> Ended:
    """A call, its end not known."""
    function = call.get("function")
    told = function if isinstance(function, dict) else {}
    fields = call.get("id"), told.get("name"), told.get("arguments")
    id, name, arguments = (one if isinstance(one, str) else "" for one in fields)
    return Ended(id, name, arguments)
