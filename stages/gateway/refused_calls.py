"""What a request tells of the calls of the answer before it: a person's no, their reason, their stop.

An agent that asks its user first tells the model of a no in the place of the call's result. So the gateway
hears it with the next request, also of agents that send no events. It becomes the event that their telemetry
would tell (`received.py`), with the same id: once, whichever comes first. Results of calls that were carried
out are not judged here: their words are the tools'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from cursorbench.sessions import items as said
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
from stages.records import Event
from stages.spool import SpoolWriter

_KIND = "otel"  # by which telemetry's ids begin
_PLACE = said.Place("request", 0)
_MOST = 64  # calls of one answer that are looked at


class RefusedCalls:
    """Of one gateway."""

    def __init__(
        self, spool: SpoolWriter, links: Links, metrics: Metrics, pseudonym: Callable[[bytes], str]
    ) -> None:
        self._spool, self._links, self._metrics, self._pseudonym = spool, links, metrics, pseudonym

    async def tell(self, key_id: str, messages: Sequence[dict[str, Any]]) -> None:
        """Record what a request with that key tells. Raises ApiError 503: the disk takes nothing.

        Hardly any request tells of a no: most cost a look at their last messages.
        """
        ends = refused(messages)
        if not ends:
            return
        try:
            results = await asyncio.to_thread(self._record, key_id, ends)
        except DependencyDownError as error:
            message = "what was refused could not be recorded"
            raise unavailable("capture_unavailable", message, retry_after=10) from error
        for type, status in results:
            self._metrics.event(type, status)

    def _record(self, key_id: str, ends: list[tuple[said.ToolEnd, str]]) -> list[tuple[str, str]]:
        events: list[Event] = []
        for end, name in ends:
            generation = self._links.call(key_id, end.id)
            if not generation:
                continue
            told: list[Told] = [reactions.of_tool(end, name)]
            if end.outcome == "interrupted":
                told.append(("interrupted", {}))
            for one in told:
                if problem(*one):  # a name of a tool that is none
                    continue
                what = itself(end, one, b""), 0
                events.append(event_of(_KIND, key_id, generation, one, end, what, now_ms(), self._pseudonym))
        results = self._spool.append_events(events) if events else []
        return [(event.type, result.status) for event, result in zip(events, results, strict=True)]


def refused(messages: Sequence[dict[str, Any]]) -> list[tuple[said.ToolEnd, str]]:
    """The calls of the last answer that a person refused or stopped, and their tools' names."""
    last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].get("role") == "assistant"), None)
    if last is None:
        return []
    names = dict(map(_named, (messages[last].get("tool_calls") or ())[:_MOST]))
    found = []
    for message in messages[last + 1 :]:
        call = message.get("tool_call_id")
        if message.get("role") != "tool" or not isinstance(call, str) or call not in names:
            continue
        text = text_of(message.get("content"))
        reason = refusal(text)
        if reason is None and not stopped(text):
            continue
        outcome: said.Outcome = "interrupted" if reason is None else "rejected"
        end = said.ToolEnd(
            session="", id=call, at=None, place=_PLACE, outcome=outcome, text="", reason=reason or ""
        )
        found.append((end, names.pop(call)))
    return found


def _named(call: dict[str, Any]) -> tuple[str, str]:
    """A call's id and its tool's name."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    id = call.get("id")
    return id if isinstance(id, str) else "", name if isinstance(name, str) else ""
