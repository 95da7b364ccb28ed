"""Codex rollouts: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, and the same lines wherever they are kept.

A line is {timestamp, type, payload}; in 2025's first versions it was the payload alone. Not for: tokens, and
the history that a compaction writes again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from cursorbench.sessions import codex_told as told
from cursorbench.sessions.calls import json_text
from cursorbench.sessions.codex_agents import letter_in, letter_of
from cursorbench.sessions.codex_calls import KINDS, Calls
from cursorbench.sessions.codex_forks import Inherited
from cursorbench.sessions.codex_messages import ITEM, Message, Messages, turns_of
from cursorbench.sessions.codex_versions import event_of, split
from cursorbench.sessions.entire_beside import session_of_log
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import (
    AgentTurn,
    Interrupt,
    Place,
    Quarantined,
    Read,
    SessionStart,
    UserTurn,
)
from cursorbench.sessions.reading import milliseconds, table_of, text_of
from cursorbench.sessions.seen import Seen

KIND = "codex"
_LINE = re.compile(rb'"type"\s*:\s*"(?:session_meta|turn_context|response_item|event_msg|compacted)"')
_BARE = re.compile(rb'\s*\{[^\n]*"(?:id|record_type|role)"\s*:')
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def recognises(path: Path, head: bytes) -> bool:
    """Lines with a rollout's types and a payload, or the bare lines of old versions by the file's name."""
    if _LINE.search(head) and b'"payload"' in head:
        return True
    return path.name.startswith("rollout-") and path.suffix == ".jsonl" and bool(_BARE.match(head))


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one rollout. Raises OSError when it cannot be read at all."""
    rollout = _Rollout(path, seen)
    for found in json_lines(path, _is_line):
        yield from [found] if isinstance(found, Quarantined) else rollout.line(*found)
    yield from rollout.end()


def _is_line(value: object) -> bool:
    line = table_of(value)
    return (
        text_of(line.get("type")) in _HANDLERS
        and "timestamp" in line
        and isinstance(line.get("payload"), dict)
    )


class _Rollout:
    """What is known of the session up to a line."""

    def __init__(self, path: Path, seen: Seen) -> None:
        found = _UUID.findall(path.name)
        self.session = found[0] if found else session_of_log(path)
        self.seen, self.begun, self.named = seen, False, False
        self.model, self.sub_agent, self.stopped = "", False, False
        self.inherited, self.begins = Inherited(), False  # the latter: what follows is a task
        self.untimed: dict[bytes, int] = {}  # lines without a time, and how often they came
        self.messages, self.calls = Messages(), Calls()

    def line(self, place: Place, value: dict[str, Any]) -> Iterator[Read]:
        """One line. A line that was read before moves the state on and says nothing."""
        kind, payload = split(value)
        at = milliseconds(value.get("timestamp"))
        if kind in told.IGNORED_LINES or self.inherited.line(value, kind, table_of(payload), at):
            return
        if not kind:
            yield Quarantined(place, "no type")
        elif (handler := _HANDLERS.get(kind)) is None:
            yield Quarantined(place, "unknown_type")
        elif not isinstance(payload, dict):
            yield Quarantined(place, f"{kind} without a payload")
        else:
            if kind == "session_meta":
                self._names(payload, at)
            fresh = self.seen.first(self.session, self._line_id(value, at))
            for item in handler(self, payload, place, at, fresh):
                yield from self._said(item, fresh)

    def end(self) -> Iterator[Read]:
        """What still waits when the file ends."""
        for message in self.messages.flushed():
            yield from self._said(message, message.fresh)

    def _said(self, item: Read | Message, fresh: bool) -> Iterator[Read]:
        """The item, behind the messages that waited, if its line is new."""
        if isinstance(item, Quarantined | SessionStart):
            yield item
            return
        if isinstance(item, Message):
            fresh, items = item.fresh, turns_of(item, self.session, self.sub_agent)
        else:
            yield from self.end()
            items = [item]
        if fresh:
            if not self.begun:
                yield from self._start({}, item.place, item.at)
            yield from items

    def _line_id(self, value: dict[str, Any], at: int | None) -> str:
        """Lines have no ids: what they say, and the number of times if they do not say when."""
        if not (text := json_text(value)):
            return ""
        digest = blake2b(text.encode(), digest_size=16).digest()
        if at is not None:
            return digest.hex()
        self.untimed[digest] = self.untimed.get(digest, 0) + 1
        return f"{digest.hex()}#{self.untimed[digest]}"

    def _names(self, meta: dict[str, Any], at: int | None) -> None:
        """The file's first meta names the session; later ones are of the session it was forked from."""
        if not self.named:
            self.session = text_of(meta.get("id")) or text_of(meta.get("session_id")) or self.session
            self.sub_agent = not table_of(meta.get("source")).keys().isdisjoint(("subagent", "internal"))
            self.named, self.calls.folder = True, text_of(meta.get("cwd"))
            self.inherited.begins(meta, at)

    def _start(self, meta: dict[str, Any], place: Place, at: int | None) -> Iterator[SessionStart]:
        self.begun = True
        if not self.seen.first(self.session, "session start"):
            return
        git = table_of(meta.get("git"))
        spawn = table_of(table_of(table_of(meta.get("source")).get("subagent")).get("thread_spawn"))
        yield SessionStart(
            session=self.session, id=text_of(meta.get("id")), at=milliseconds(meta.get("timestamp")) or at,
            place=place, agent="codex", version=text_of(meta.get("cli_version")),
            cwd=text_of(meta.get("cwd")), branch=text_of(git.get("branch")),
            commit=text_of(git.get("commit_hash")), repository=text_of(git.get("repository_url")),
            parent=text_of(spawn.get("parent_thread_id")) or text_of(meta.get("parent_thread_id")),
        )  # fmt: skip

    def _meta(self, meta: dict[str, Any], place: Place, at: int | None, _: bool) -> Iterator[Read]:
        if not self.begun:
            yield from self._start(meta, place, at)

    def _context(self, context: dict[str, Any], *_: object) -> Iterator[Read]:
        self.calls.model = self.model = text_of(context.get("model")) or self.model
        self.calls.folder = text_of(context.get("cwd")) or self.calls.folder
        return iter(())

    def _compacted(self, payload: dict[str, Any], place: Place, at: int | None, _: bool) -> Iterator[Read]:
        if text := text_of(payload.get("message")):
            yield UserTurn(session=self.session, at=at, place=place, text=text, automatic="continuation")

    def _got(self, payload: dict[str, Any], place: Place, at: int | None, _: bool) -> Iterator[Read]:
        """What another thread's agent wrote to this one's."""
        if not isinstance(payload.get("content"), str | list):
            yield Quarantined(place, "a message without content")
            return
        text, automatic = letter_of(payload, self.begins)
        own: dict[str, Any] = {"session": self.session, "at": at, "place": place}
        yield UserTurn(**own, id=text_of(payload.get("id")), text=text, automatic=automatic)

    def _letter(self, payload: dict[str, Any], *_: object) -> Iterator[Read]:
        """Whether the item behind this line makes the agent begin."""
        self.begins = payload.get("trigger_turn") is True
        return iter(())

    def _item(
        self, item: dict[str, Any], place: Place, at: int | None, fresh: bool
    ) -> Iterator[Read | Message]:
        kind = item.get("type")
        if kind == "message":
            yield from self._message(item, place, at, fresh)
        elif kind == "reasoning":
            parts = told.parts_of(item.get("summary")) or told.parts_of(item.get("content"))
            where: dict[str, Any] = {"session": self.session, "at": at, "place": place}
            if parts:
                thought = "\n".join(parts)
                yield AgentTurn(
                    **where, id=text_of(item.get("id")), text="", model=self.model, thinking=thought
                )
        elif isinstance(kind, str) and kind in KINDS:
            yield from self.calls.item(self.session, item, place, at)
            self.messages.works()
            self.stopped = False
        elif kind == "agent_message":
            yield from self._got(item, place, at, fresh)
            self.begins = False
        elif not isinstance(kind, str) or kind not in told.IGNORED_ITEMS:
            yield Quarantined(place, "unknown_type:response_item")

    def _message(
        self, item: dict[str, Any], place: Place, at: int | None, fresh: bool
    ) -> Iterator[Read | Message]:
        role, content = item.get("role"), item.get("content")
        if role in ("developer", "system"):
            return
        if role not in ("user", "assistant"):
            yield Quarantined(place, "a message of no known role")
        elif not isinstance(content, str | list):
            yield Quarantined(place, "a message without content")
        else:
            parts = told.parts_of(content)
            if role == "user" and told.is_abort(parts):
                yield from self._stop(place, at)
            text, why = "\n".join(parts), told.automatic(parts) if role == "user" else ""
            if role == "assistant" and (letter := letter_in(text)):
                yield UserTurn(session=self.session, at=at, place=place, **letter._asdict())
                return
            known: dict[str, Any] = {"id": text_of(item.get("id")), "at": at, "place": place, "fresh": fresh}
            yield from self._add(Message(role=role, source=ITEM, text=text, automatic=why, **known))

    def _event(
        self, event: dict[str, Any], place: Place, at: int | None, fresh: bool
    ) -> Iterator[Read | Message]:
        kind = event.get("type")
        if kind == "item_completed":
            yield from self._completed(table_of(event.get("item")), place, at, fresh)
        elif kind in ("user_message", "agent_message"):
            yield from self._told(kind, event, place, at, fresh)
        elif kind in ("task_complete", "turn_complete"):
            self.messages.lasted(event.get("time_to_first_token_ms"), event.get("duration_ms"))
        elif kind in ("task_started", "turn_started"):
            self.stopped = False
            self.calls.turn()
            self.messages.turn()
        elif kind == "turn_aborted":
            if event.get("reason") == "interrupted":
                yield from self._stop(place, at)
        elif kind == "patch_apply_end":
            yield from self.calls.patched(self.session, event, place, at)
        elif kind == "undo_completed":
            if event.get("success") is True:
                yield from self.calls.undone(self.session, place, at)
        elif kind in ("exec_command_end", "mcp_tool_call_end"):
            yield from self.calls.ended(self.session, event, place, at)
        elif kind == "thread_rolled_back":
            yield told.rolled_back(event, session=self.session, place=place, at=at)
        elif not isinstance(kind, str) or kind not in told.IGNORED_EVENTS:
            yield Quarantined(place, "unknown_type:event_msg")

    def _completed(
        self, item: dict[str, Any], place: Place, at: int | None, fresh: bool
    ) -> Iterator[Read | Message]:
        if (event := event_of(item)) is None:
            yield Quarantined(place, "unknown_type:item_completed")
        elif event:
            yield from self._event(event, place, at, fresh)

    def _told(
        self, kind: str, event: dict[str, Any], place: Place, at: int | None, fresh: bool
    ) -> Iterator[Read | Message]:
        if not isinstance(text := event.get("message"), str):
            yield Quarantined(place, f"{kind} without a message")
            return
        role: Literal["user", "assistant"] = "user" if kind == "user_message" else "assistant"
        why = told.automatic([text]) if role == "user" else ""
        if event.get("kind", "plain") not in ("plain", None):
            why = "meta"  # 2025's first versions told the environment as a user message of a kind
        known: dict[str, Any] = {"id": text_of(event.get("id")), "at": at, "place": place, "fresh": fresh}
        source = frozenset({"completed" if "id" in event else "event"})
        yield from self._add(Message(role=role, source=source, text=text, automatic=why, **known))

    def _add(self, message: Message) -> Iterator[Message]:
        if message.role == "user" and not message.automatic:
            self.stopped = False
        yield from self.messages.add(replace(message, model=self.model))

    def _stop(self, place: Place, at: int | None) -> Iterator[Read]:
        if not self.stopped:
            during: Literal["tool", "answer"] = "tool" if self.calls.running else "answer"
            yield Interrupt(session=self.session, at=at, place=place, during=during)
        self.stopped = True


_HANDLERS: dict[str, Callable[..., Iterator[Any]]] = {
    "session_meta": _Rollout._meta,
    "turn_context": _Rollout._context,
    "response_item": _Rollout._item,
    "event_msg": _Rollout._event,
    "compacted": _Rollout._compacted,
    "inter_agent_communication": _Rollout._got,
    "inter_agent_communication_metadata": _Rollout._letter,
}
