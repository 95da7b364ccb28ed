"""Tool calls of a Codex rollout: call, patch and output are separate lines that have the call's id."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from cursorbench.sessions import codex_told as told
from cursorbench.sessions.calls import (
    Arguments,
    Change,
    Open,
    arguments_of,
    edits,
    json_text,
    paths_of,
    remember,
)
from cursorbench.sessions.items import Outcome, Place, Quarantined, Read, Status, ToolEnd, ToolUse, UserTurn
from cursorbench.sessions.reading import table_of, text_of

_KINDS = """
    function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call
    web_search_call tool_search_call tool_search_output image_generation_call
"""
KINDS = frozenset(_KINDS.split())
_HOSTED = {"web_search_call", "image_generation_call"}  # the model's provider answers these itself


class Calls:
    """The calls of one session that have no end yet."""

    def __init__(self) -> None:
        self.folder, self.model = "", ""  # where the agent works, and which it is
        self._asked = Open()
        self._running: OrderedDict[str, None] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()  # a call's line, or its end, was told
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()  # told before the output
        self._applied: deque[list[tuple[str, tuple[Change, ...]]]] = deque([[]], maxlen=256)  # by turn

    @property
    def running(self) -> bool:
        """Whether a call waits for its output, or was ended without one."""
        return bool(self._running)

    def turn(self) -> None:
        """A turn begins: no call of the last one is waited for."""
        self._running.clear()
        if self._applied[-1]:
            self._applied.append([])

    def item(self, session: str, item: dict[str, Any], place: Place, at: int | None) -> Iterator[Read]:
        """A response item of one of `KINDS`."""
        kind, where = item["type"], {"session": session, "at": at, "place": place}
        yield from (self._output if kind.endswith("_output") else self._call)(kind, item, where)

    def _call(self, kind: str, item: dict[str, Any], where: dict[str, Any]) -> Iterator[Read]:
        call = text_of(item.get("call_id")) or text_of(item.get("id"))
        name = text_of(item.get("name")) or (
            "" if kind in ("function_call", "custom_tool_call") else kind[:-5]
        )
        if not name:
            yield Quarantined(where["place"], f"{kind} without a name")
            return
        raw = text_of(item.get("input")) if kind == "custom_tool_call" else ""  # of the tool's own grammar
        given = Arguments(json_text(raw)) if raw else arguments_of(item.get("arguments", item.get("action")))
        folder = text_of(given.table.get("workdir")) or self.folder
        changes = told.located(told.asked(name, given.table, raw), folder)
        yield ToolUse(
            **where, id=call, name=name, model=self.model, arguments=given.text, invalid=given.invalid
        )
        yield from edits(changes, "proposed", call=call, **where)
        self._asked.add(call, changes)
        if kind in _HOSTED and item.get("status") in ("completed", "failed"):
            yield ToolEnd(**where, id=call, outcome="ok" if item["status"] == "completed" else "error")
        elif call:
            remember(self._running, call, None)
            remember(self._known, call, None)

    def _output(self, kind: str, item: dict[str, Any], where: dict[str, Any]) -> Iterator[Read]:
        call = text_of(item.get("call_id"))
        if kind != "tool_search_output" and "output" not in item:
            yield Quarantined(where["place"], f"{kind} without an output")
            return
        text, outcome = told.ending(item.get("output"))
        if not call and kind == "function_call_output":  # 0.155: put in from outside, by another thread, say
            one = text_of(item.get("id"))
            yield UserTurn(**where, id=one, text=text, automatic=told.automatic([text]) or "meta")
            return
        before = self._outcomes.pop(call, None)
        outcome = before or outcome if outcome == "ok" else outcome
        if outcome != "interrupted":  # that stands before the turn's own end
            self._running.pop(call, None)
        yield ToolEnd(**where, id=call, outcome=outcome, text=text)
        changes = self._asked.take(call)
        if outcome in ("ok", "rejected"):
            yield from self._settled(changes, "applied" if outcome == "ok" else "rejected", call, where)

    def patched(self, session: str, event: dict[str, Any], place: Place, at: int | None) -> Iterator[Read]:
        """A patch was applied, or not: `patch_apply_end`. The event's diffs are better than the call's."""
        call = text_of(event.get("call_id"))
        changes = told.located(told.changed(event.get("changes")), self.folder) or self._asked.take(call)
        self._asked.take(call)
        applied, declined = event.get("success") is True, told.declined(event)
        if applied or declined:
            status: Status = "rejected" if declined else "applied"
            where: dict[str, Any] = {"session": session, "at": at, "place": place}
            yield from self._settled(changes, status, call, where)
        self._ends(call, "rejected" if declined else "ok" if applied else "error")

    def _settled(
        self, changes: tuple[Change, ...], status: Status, call: str, where: dict[str, Any]
    ) -> Iterator[Read]:
        if changes and status == "applied":
            self._applied[-1].append((call, paths_of(changes)))
        yield from edits(changes, status, call=call, **where)

    def undone(self, session: str, place: Place, at: int | None) -> Iterator[Read]:
        """The user took the last turn's changes back."""
        while len(self._applied) > 1 and not self._applied[-1]:
            self._applied.pop()
        for call, changes in self._applied[-1]:
            yield from edits(changes, "undone", session=session, call=call, at=at, place=place)
        self._applied[-1] = []

    def ended(self, session: str, event: dict[str, Any], place: Place, at: int | None) -> Iterator[Read]:
        """A command or a tool of an MCP server ended; the output that follows does not tell how.

        One that a script ran, whose call is the only one told, has no output: a no to it is told here.
        """
        result, status = table_of(event.get("result")), event.get("status")
        failed = "Err" in result or table_of(result.get("Ok")).get("isError") is True
        failed = failed or event.get("exit_code") not in (0, None) or status in ("failed", "declined")
        call, declined = text_of(event.get("call_id")), told.declined(event)
        self._ends(call, "rejected" if declined else "error" if failed else "ok")
        if declined and call not in self._known:
            remember(self._known, call, None)
            yield ToolEnd(session=session, id=call, at=at, place=place, outcome="rejected")

    def _ends(self, call: str, outcome: Outcome) -> None:
        if call:
            remember(self._outcomes, call, outcome)
