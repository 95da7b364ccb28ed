"""Chats of VS Code, by its own account: `chatSessions/ID.json` and `.jsonl`, and what "Export Chat" writes.

A chat is a list of requests with their answers. What Copilot's model was asked and answered stands in the
result's metadata, as rounds of calls; of other extensions only what was shown is known. Not for: Copilot's
own transcripts (`copilot_cli.py`), which have neither votes nor what became of the edits.

Source: microsoft/vscode (`chatModel.ts`, `chatService.ts`), microsoft/vscode-copilot-chat (the words of
results), and published chats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from cursorbench.sessions import spoken
from cursorbench.sessions.agents import agent_of
from cursorbench.sessions.calls import Call, Change, changes_of, edits, paths_of
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Edit,
    Feedback,
    Interrupt,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
)
from cursorbench.sessions.reading import json_document, list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_text, mentions, opening
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.vscode_answers import Round, edited_in, end_of, invocations, rounds_of
from cursorbench.sessions.vscode_state import state_of

KIND = "vscode-chat"

_FOLDERS = {"chatSessions", "emptyWindowChatSessions"}
_SUB_AGENT = "runSubagent"
_STOPPED = 2  # of `modelState`
_UNDONE, _ALTERED = 2, 3  # of `editedFileEvents`; 1: kept


def recognises(path: Path, head: bytes) -> bool:
    """A list of requests to somebody with a name, or in the folder of such chats."""
    named = mentions(head, "responderUsername") or path.parent.name in _FOLDERS
    return named and mentions(head, "requests")


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one chat, as far as no other copy of it told them."""
    log = path.suffix == ".jsonl"
    for found in state_of(path) if log else (json_document(path),):
        if isinstance(found, Quarantined):
            yield found
        elif isinstance(found, dict) and isinstance(found.get("requests"), list):
            yield from _Chat(path, seen, found).items()
        else:
            yield Quarantined(Place(str(path)), "not a chat with requests")


def _folder(path: Path) -> str:
    """The folder that the editor had open, from what VS Code keeps of it above `chatSessions`."""
    about = path.parent.parent / "workspace.json"
    told = json_document(about) if path.parent.name in _FOLDERS and about.is_file() else None
    uri = text_of(told.get("folder")) if isinstance(told, dict) else ""
    try:
        return unquote(urlsplit(uri).path)
    except ValueError:
        return ""


def _path(uri: object) -> str:
    """A file's name as calls and events may both have it."""
    name = first_text(table_of(uri), "fsPath", "path") if isinstance(uri, dict) else text_of(uri)
    return name.replace("\\", "/").lstrip("/").casefold()


class _Chat:
    def __init__(self, path: Path, seen: Seen, chat: dict[str, Any]) -> None:
        self._seen, self._place, self._chat = seen, Place(str(path)), chat
        self._requests = [table_of(one) for one in chat["requests"]]
        known = (text_of(chat.get("sessionId")), *map(_session, self._requests))
        first = (text_of(one.get("requestId")) for one in self._requests)
        self._session = next(filter(None, (*known, *first)), path.stem)
        self._cwd = _folder(path)
        self._edited: dict[str, list[tuple[str, tuple[Change, ...]]]] = {}  # by file: which calls changed it

    def items(self) -> Iterator[Read]:
        """All of them that no file before had."""
        for number, request in enumerate(self._requests):
            one, message = text_of(request.get("requestId")), table_of(request.get("message"))
            if not one or not isinstance(message.get("text"), str):
                yield Quarantined(self._place, "a request without an id or a text")
                continue
            told = list(self._request(one, message["text"], request, number + 1 == len(self._requests)))
            if self._seen.first("", f"{KIND}:{one}"):
                at = milliseconds(self._chat.get("creationDate")) or milliseconds(request.get("timestamp"))
                yield from opening(self._seen, self._session, self._place, at, **self._about(request))
                yield from told

    def _about(self, request: dict[str, Any]) -> dict[str, str]:
        agent = table_of(request.get("agent"))
        name = text_of(table_of(agent.get("extensionId")).get("value")).lower()
        who = first_text(self._chat, "responderUsername") or name
        by = "copilot-vscode" if name in ("", "github.copilot-chat") else agent_of(who)
        return {"agent": by, "version": text_of(agent.get("extensionVersion")), "cwd": self._cwd}

    def _request(self, one: str, text: str, request: dict[str, Any], last: bool) -> Iterator[Read]:
        asked = milliseconds(request.get("timestamp"))
        own: dict[str, Any] = {"session": self._session, "at": asked, "place": self._place}
        yield from self._became(request, own)
        why: Automatic = "continuation" if request.get("confirmation") else ""  # a button, in any language
        yield from spoken.turns(
            text, "meta" if request.get("isSystemInitiated") is True else why, id=one, **own
        )
        result = table_of(request.get("result"))
        own["at"] = _ended(request, result, asked)
        shown, rounds = invocations(request), _with_edits(request, rounds_of(request))
        open_ = cancelled = False
        for number, round_ in enumerate(rounds):
            span = text_of(request.get("responseId")) if number + 1 == len(rounds) else ""
            for item in self._round(round_, span, shown, own):
                yield item
                ended = item.outcome if isinstance(item, ToolEnd) else ""
                open_ = isinstance(item, ToolUse) or ended == "interrupted"
                cancelled = cancelled or ended == "interrupted"
        state = table_of(request.get("modelState")).get("value")
        stopped = request.get("isCanceled") is True or state == _STOPPED
        if stopped and (cancelled or not last):  # an answer that still runs is kept as one that was stopped
            yield Interrupt(during="tool" if open_ else "answer", **own)
        yield from self._vote(request, own)
        if (off := table_of(request.get("shouldBeRemovedOnSend"))) and not off.get("afterUndoStop"):
            yield from self._undone({call for round_ in rounds for call in map(_id, round_.calls)}, own)

    def _round(
        self, round_: Round, span: str, shown: dict[str, dict[str, Any]], own: dict[str, Any]
    ) -> Iterator[Read]:
        own = {**own, "at": round_.at or own["at"]}
        if round_.text.strip() or round_.thinking.strip() or not round_.calls:
            yield AgentTurn(
                id=round_.id, text=round_.text, thinking=round_.thinking, model=round_.model, span=span, **own
            )
        for call in round_.calls:
            asked, changes = call.arguments, changes_of(call.name, call.arguments.table)
            yield ToolUse(
                id=call.id, name=call.name, model=round_.model, arguments=asked.text, invalid=asked.invalid,
                **own,
            )  # fmt: skip
            yield from edits(changes, "proposed", call=call.id, **own)
            end = end_of(round_.results.get(call.id), shown.get(call.id))
            if end is None:
                continue
            outcome, text = end
            yield ToolEnd(id=call.id, outcome=outcome, text=text, **own)
            if outcome == "ok":
                yield from edits(changes, "applied", call=call.id, **own)
                for change in changes:
                    made = self._edited.setdefault(_path(change.path), [])
                    made.append((call.id, paths_of((change,))))
            elif outcome == "rejected":
                yield from edits(changes, "rejected", call=call.id, **own)
        # by another extension or a sub-agent: what was there before is told nowhere
        for path in round_.edited:
            known, alone = f"{round_.id} {path}", (Change(path),)
            self._edited.setdefault(_path(path), []).append((known, alone))
            yield from edits(alone, "applied", call=known, **own)

    def _became(self, request: dict[str, Any], own: dict[str, Any]) -> Iterator[Edit | Feedback]:
        """What a person did, before this request, to what was edited up to then."""
        for event in map(table_of, list_of(request.get("editedFileEvents"))):
            made = self._edited.get(_path(event.get("uri")), [])
            if event.get("eventKind") == _UNDONE:
                yield from self._undone({call for call, _ in made}, own)
            elif event.get("eventKind") == _ALTERED and made:
                yield Feedback(target=made[-1][0], name="user_modified", value=True, **own)

    def _undone(self, calls: set[str], own: dict[str, Any]) -> Iterator[Edit]:
        for made in self._edited.values():
            for call, changes in [one for one in made if one[0] in calls]:
                yield from edits(changes, "undone", call=call, **own)
            made[:] = [one for one in made if one[0] not in calls]

    def _vote(self, request: dict[str, Any], own: dict[str, Any]) -> Iterator[Feedback]:
        vote, answer = request.get("vote"), text_of(request.get("responseId"))
        if vote in (0, 1) and answer:
            why = text_of(request.get("voteDownReason"))
            yield Feedback(target=answer, name="thumb", value=bool(vote), comment=why, **own)


def _with_edits(request: dict[str, Any], rounds: list[Round]) -> list[Round]:
    """The rounds, the last one with the files that sub-agents changed: their calls are in none."""
    calls = [call for round_ in rounds for call in round_.calls]
    if any(call.name.startswith(_SUB_AGENT) for call in calls):
        changes = (change for call in calls for change in changes_of(call.name, call.arguments.table))
        own = {_path(change.path) for change in changes}
        rounds[-1].edited = [path for path in edited_in(request) if _path(path) not in own]
    return rounds


def _id(call: Call) -> str:
    return call.id


def _session(request: dict[str, Any]) -> str:
    """The chat's id, which an export has only with what Copilot keeps of a result."""
    return text_of(table_of(table_of(request.get("result")).get("metadata")).get("sessionId"))


def _ended(request: dict[str, Any], result: dict[str, Any], asked: int | None) -> int | None:
    """When the answer was there, ms; when it was asked for, where nothing tells."""
    if at := milliseconds(table_of(request.get("modelState")).get("completedAt")):
        return at
    took = table_of(result.get("timings")).get("totalElapsed")
    if asked is None or isinstance(took, bool) or not isinstance(took, int | float) or not 0 <= took < 1e10:
        return asked
    return asked + int(took)
