"""Sessions of goose: what `goose session export --format json` writes, and its JSON lines of before 1.10.

An export is a document with a `conversation`; the lines are the same messages behind one of metadata. Not
for: `sessions.db`, in which goose has kept its sessions since, and `--output-format stream-json`.

Source: block/goose (`conversation/message.rs`, `tool_result_serde.rs`, `session/legacy.rs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions.calls import Arguments, Call, Result, arguments_of
from cursorbench.sessions.chat import Answer, Conversation, Message, plain_text
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, first_text, mentions, opening, records
from cursorbench.sessions.seen import Seen

KIND = "goose"

_REQUESTS = frozenset({"toolRequest", "frontendToolRequest"})
_ABOUT = frozenset({"working_dir", "description"})  # of the line of metadata
_NO_MESSAGE = "a message without content or with an unknown role"


def recognises(_path: Path, head: bytes) -> bool:
    """A session with its conversation, or a line with one of goose's messages."""
    if any(mentions(head, "working_dir", name) for name in ("conversation", "extension_data")):
        return True
    return any(_is_message(one) and "created" in one for one in first_objects(head))


def _is_message(value: dict[str, Any]) -> bool:
    return value.get("role") in ("user", "assistant") and isinstance(value.get("content"), list)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one session, or of several in one document."""
    session = _Session(seen, path.stem, {})
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, record = found
        if isinstance(messages := record.get("conversation"), list):
            one = _Session(seen, text_of(record.get("id")) or path.stem, record)
            for message in messages:
                yield from one.items(place, table_of(message))
        elif record.keys() >= _ABOUT and not _is_message(record):
            session.about = record
        else:
            yield from session.items(place, record)


class _Session:
    def __init__(self, seen: Seen, session: str, about: dict[str, Any]) -> None:
        self._seen, self._session, self.about = seen, session, about
        self._conversation, self._times = Conversation(seen, KIND), Counter[str]()

    def items(self, place: Place, told: dict[str, Any]) -> Iterator[Read]:
        """The items of a message, behind the session's beginning."""
        if not _is_message(told):
            yield Quarantined(place, _NO_MESSAGE)
            return
        at, metadata = milliseconds(told.get("created")), table_of(told.get("metadata"))
        about = {"agent": KIND, "cwd": text_of(self.about.get("working_dir"))}
        yield from opening(self._seen, self._session, place, at, **about)
        message = Message(text_of(told.get("role")))
        for part in map(table_of, told["content"]):
            _add(message, part)
        where: dict[str, Any] = {"at": at, "place": place, "times": self._times}
        if message.role == "user":
            if metadata.get("userVisible") is False:  # a summary, or what goose tells the model by itself
                message.automatic = "continuation"
            yield from self._conversation.request(self._session, [message], None, **where)
            return
        inference, config = table_of(metadata.get("inference")), table_of(self.about.get("model_config"))
        model = first_text(inference, "resolvedModel", "requestedModel") or first_text(config, "model_name")
        if message.text or message.thinking or message.calls:
            answer = Answer(message=message, id=text_of(told.get("id")), model=model)
            yield from self._conversation.request(self._session, [], answer, **where)


def _add(message: Message, part: dict[str, Any]) -> None:
    """Adds a part of the content to the message."""
    kind, one = text_of(part.get("type")), text_of(part.get("id"))
    if kind == "text":
        message.text = "\n".join(filter(None, [message.text, text_of(part.get("text"))]))
    elif kind == "thinking":
        message.thinking = "\n".join(filter(None, [message.thinking, text_of(part.get("thinking"))]))
    elif kind in _REQUESTS:
        asked = table_of(part.get("toolCall"))
        if asked.get("status") == "error":  # what the model wrote was no call
            message.calls.append(Call(one, "", Arguments(invalid="not a call")))
            return
        call = table_of(asked.get("value")) or asked
        message.calls.append(Call(one, text_of(call.get("name")), arguments_of(call.get("arguments"))))
    elif kind == "toolResponse":
        given = table_of(part.get("toolResult"))
        value = given.get("value")
        content = value.get("content") if isinstance(value, dict) else value
        wrong = given.get("status") == "error" or table_of(value).get("isError") is True
        texts = [piece for piece in map(table_of, list_of(content)) if "text" in piece]
        text = text_of(given.get("error")) or plain_text(texts)
        message.results.append(Result(one, text, wrong))
