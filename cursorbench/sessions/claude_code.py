"""Claude Code's session logs: JSON lines, as below ~/.claude/projects and in Entire's full.jsonl.

Line by line: who said what, tool calls and how they ended, changes of files. Lines are known by their uuid,
so that a transcript that is stored again and again, each time longer, is told once. Not for: the output of
`claude -p --output-format stream-json`, which is another format.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cursorbench.sessions import claude_code_said as said
from cursorbench.sessions import claude_code_tools as tools
from cursorbench.sessions import spoken
from cursorbench.sessions.claude_code_cut import as_answers
from cursorbench.sessions.claude_code_lines import is_known, is_line
from cursorbench.sessions.claude_code_order import behind_their_calls
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Edit,
    Feedback,
    Interrupt,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import milliseconds, parsed, table_of, text_of
from cursorbench.sessions.seen import Seen

KIND = "claude-code"
_QUIET = "image document redacted_thinking container_upload tool_reference fallback"
_QUIET_BLOCKS = frozenset(_QUIET.split())
_PENDING = 1000  # tool calls without their end


def recognises(_path: Path, head: bytes) -> bool:
    """A line of the beginning is one of Claude Code's; of a giant line that is cut, its names are enough."""
    *_, last = beginning = head.split(b"\n")
    if any(is_line(parsed(line.strip())) for line in beginning if line.strip()):
        return True
    return last.lstrip().startswith(b"{") and b'"parentUuid"' in last and b'"sessionId"' in last


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """See kinds."""
    log = _Log(path.stem, seen)
    for found in as_answers(behind_their_calls(said.without_helpers(json_lines(path, is_line)))):
        yield from [found] if isinstance(found, Quarantined) else log.items(*found)
    yield from log.rest()


class _Call(NamedTuple):
    name: str
    arguments: object
    change: tools.Change | None


class _Log:
    """What has to be remembered from line to line; all of it is bounded."""

    def __init__(self, session: str, seen: Seen) -> None:
        self._session = session  # of lines that tell none: that of the line before, at first the file's name
        self._seen = seen
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._queue = said.Queue()
        self._spoke = False  # the agent spoke last: no person, tool or client, and in this log
        self._joined = False  # a prompt came while the agent worked: its turn began with another one

    def items(self, place: Place, line: dict[str, Any]) -> Iterator[Read]:
        """The items of a line. One that was read before is remembered and not told again."""
        session, parent = self._whose(line)
        uuid, at = text_of(line.get("uuid")), milliseconds(line.get("timestamp"))
        told = list(self._told(line, {"session": session, "id": uuid, "at": at, "place": place}))
        good = [item for item in told if not isinstance(item, Quarantined)]
        fresh = [self._seen.first(*mark) for mark in said.marks(line, session, bool(good))]
        if not all(fresh):
            return
        if good:
            yield from self._start(session, parent, line, at, place)
        yield from told

    def rest(self) -> Iterator[Read]:
        """What only the end of the log shows."""
        for one in self._queue.untold():
            if turns := self._given(one):
                yield from self._start(one.session, "", {}, one.at, one.place)
                yield from turns

    def _absorbed(self, session: str) -> Iterator[Read]:
        """Prompts that the agent has got by now; logs with attachments have told them before this line."""
        for one in self._queue.untold(session):
            self._joined = True
            yield from self._given(one)

    def _given(self, one: said.Waiting) -> list[UserTurn | Interrupt]:
        if not self._seen.first(one.session, f"queued {one.at} {one.text}"):
            return []
        return list(spoken.turns(one.text, session=one.session, at=one.at, place=one.place))

    def _whose(self, line: dict[str, Any]) -> tuple[str, str]:
        """(session, its parent). A sub-agent's lines carry the session that called it."""
        self._session = text_of(line.get("sessionId")) or self._session
        if line.get("isSidechain") is not True:
            return self._session, ""
        agent = text_of(line.get("agentId"))
        return f"{self._session}/{f'agent-{agent}' if agent else 'sidechain'}", self._session

    def _start(
        self, session: str, parent: str, line: dict[str, Any], at: int | None, place: Place
    ) -> Iterator[SessionStart]:
        if self._seen.first(session, "session start"):
            told: dict[str, Any] = {"session": session, "id": session, "at": at, "place": place}
            yield SessionStart(
                **told,
                agent=KIND,
                version=text_of(line.get("version")),
                cwd=text_of(line.get("cwd")),
                branch=text_of(line.get("gitBranch")),
                parent=parent,
            )

    def _told(self, line: dict[str, Any], common: dict[str, Any]) -> Iterator[Read]:
        kind = line.get("type")
        if kind in ("user", "assistant"):
            content = table_of(line.get("message")).get("content")
            if not isinstance(content, str | list):
                yield Quarantined(common["place"], f"{kind}_without_content")
                return
            blocks = [content] if isinstance(content, str) else content
            self._spoke = kind == "assistant" and not said.is_clients(line)
            yield from (self._user if kind == "user" else self._assistant)(line, blocks, common)
        elif kind == "attachment":
            yield from self._attachment(line, common)
        elif kind == "system":
            yield from _system(line, common, self._joined or not self._spoke)
        elif kind == "queue-operation":
            prompt = said.plain(line.get("content"))
            waiting = said.Waiting(common["session"], prompt, common["at"], common["place"])
            self._queue.operation(text_of(line.get("operation")), waiting, text_of(line.get("reason")))
        elif not isinstance(kind, str):
            yield Quarantined(common["place"], "no_type")
        elif not is_known(kind):
            yield Quarantined(common["place"], "unknown_type")

    def _user(self, line: dict[str, Any], blocks: list[Any], common: dict[str, Any]) -> Iterator[Read]:
        automatic, mine, seen_picture, waited = said.automatic_line(line), [], False, False
        results = [table_of(block).get("type") for block in blocks].count("tool_result")
        for block in blocks:
            name = _name(block)
            if name == "tool_result":
                # with several results the line's own account of one cannot be told apart
                result = line.get("toolUseResult") if results == 1 else None
                yield from self._end(line, block, result, common)
            elif name == "text":
                text = block if isinstance(block, str) else text_of(block.get("text"))
                waited |= self._queue.said(text)
                for item in said.turns(line, text, **common):
                    if isinstance(item, Interrupt) or item.automatic:
                        yield item
                    elif item.text.strip():
                        mine.append(item.text)
            elif isinstance(name, str) and name in _QUIET_BLOCKS:
                seen_picture = True
            else:
                yield _unknown_block(name, common["place"])
        if mine or (seen_picture and len(blocks) == 1):
            waited |= self._queue.said(text := "\n".join(mine))
            if not waited:
                yield from self._absorbed(common["session"])
            self._joined = False
            yield UserTurn(**common, text=text, automatic=automatic)

    def _attachment(self, line: dict[str, Any], common: dict[str, Any]) -> Iterator[Read]:
        """Only prompts that were typed while the agent worked; the rest is context from the client."""
        attachment = table_of(line.get("attachment"))
        if attachment.get("type") == "queued_command":
            text = said.plain(attachment.get("prompt"))
            automatic = said.automatic_line(line) or said.automatic_line(attachment)
            if attachment.get("commandMode", "prompt") != "prompt":
                automatic = automatic or "meta"
            if self._queue.said(text) or not self._queue.again(text):
                self._joined = self._joined or not automatic
                yield from spoken.turns(text, automatic, **common)

    def _assistant(self, line: dict[str, Any], blocks: list[Any], common: dict[str, Any]) -> Iterator[Read]:
        yield from self._absorbed(common["session"])
        model = text_of(table_of(line.get("message")).get("model")) if self._spoke else ""
        texts: dict[str, list[str]] = {"text": [], "thinking": []}

        def turn() -> Iterator[Read]:
            if not self._spoke:
                for text in texts["text"]:
                    yield from spoken.turns(text, "meta", **common)
            elif any(texts.values()):
                told = {name: "\n".join(parts) for name, parts in texts.items()}
                yield AgentTurn(**common, model=model, text=told["text"], thinking=told["thinking"])
            texts["text"], texts["thinking"] = [], []

        for block in blocks:
            name = _name(block)
            if name in ("text", "thinking"):
                text = block if isinstance(block, str) else text_of(block.get(name))
                texts[name] += [text] if text else []
            elif isinstance(name, str) and name.endswith("tool_use"):
                yield from turn()
                yield from self._use(block, model, common)
            elif isinstance(name, str) and name.endswith("tool_result"):  # tools of the model's own server
                yield from turn()
                yield from self._end(line, block, None, common)
            elif not isinstance(name, str) or name not in _QUIET_BLOCKS:
                yield _unknown_block(name, common["place"])
        yield from turn()

    def _use(self, block: dict[str, Any], model: str, common: dict[str, Any]) -> Iterator[Read]:
        about = common | {"id": _own_id(block.get("id")) or common["id"]}
        name, arguments = text_of(block.get("name")), block.get("input")
        text, invalid = tools.json_text(arguments)
        yield ToolUse(**about, name=name, model=model, arguments=text, invalid=invalid)
        change = tools.proposed(name, arguments)
        if change is not None:
            yield Edit(**about, status="proposed", **change._asdict())
        self._calls[about["id"]] = _Call(name, arguments, change)
        if len(self._calls) > _PENDING:
            self._calls.popitem(last=False)

    def _end(
        self, line: dict[str, Any], block: dict[str, Any], result: object, common: dict[str, Any]
    ) -> Iterator[Read]:
        asked = _own_id(block.get("tool_use_id")) or _own_id(line.get("sourceToolAssistantUUID"))
        about = common | {"id": asked or text_of(line.get("parentUuid"))}
        call = self._calls.pop(about["id"], _Call("", None, None))
        text = said.plain(block.get("content"))
        outcome, reason = tools.outcome(block, result, text, **said.denied(line))
        yield ToolEnd(**about, outcome=outcome, text=text, reason=reason)
        if outcome == "rejected" and call.change is not None:
            yield Edit(**about, status="rejected", **call.change._asdict())
        if outcome != "ok":
            return
        if (call.change or not call.name) and (change := tools.applied(call.change, result)):
            yield Edit(**about, status="applied", **change._asdict())
        if table_of(result).get("userModified") is True:
            yield Feedback(**common, target=about["id"], name="user_modified", value=True)
        for sha, subject in tools.commits(call.arguments, text):
            yield Commit(**common, sha=sha, message=subject)


def _system(line: dict[str, Any], common: dict[str, Any], nobodys: bool) -> Iterator[Read]:
    """A local command, or how long a turn took; `nobodys`: there is no one answer to say that of."""
    subtype, spent = line.get("subtype"), line.get("durationMs")
    if subtype == "local_command" and isinstance(line.get("content"), str):
        yield UserTurn(**common, text=line["content"], automatic="command")
    elif subtype == "turn_duration" and not nobodys and isinstance(spent, int | float) and 0 <= spent < 1e12:
        about = common | {"id": text_of(line.get("parentUuid")) or common["id"]}
        yield AgentTurn(**about, text="", duration_ms=float(spent))


def _own_id(value: object) -> str:
    """An id, "" when Entire has blacked it out: all such ids read the same."""
    return "" if "REDACTED" in text_of(value) else text_of(value)


def _name(block: object) -> object:
    """The type of a block of a message; None for what is no block, such as a text that is none."""
    if isinstance(block, str):
        return "text"
    told = table_of(block)
    name = told.get("type")
    return None if name == "text" and not isinstance(told.get("text"), str) else name


def _unknown_block(name: object, place: Place) -> Quarantined:
    return Quarantined(place, "unknown_block" if isinstance(name, str) else "malformed_block")
