"""A conversation in the form of `/v1/chat/completions`, in the making: what other APIs' requests become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cursorbench.sessions.automatic import is_notice

Part = dict[str, Any]

_REMINDER, _REMINDED = "<system-reminder>", "</system-reminder>"


class Talk:
    """Messages, in order.

    What the system says before anybody else is one system message. What it says later stands where it was
    said, under the role `user` and marked as a reminder, as agents themselves have long done it: templates of
    several models refuse a system message that is not the first, and moving it there would change the
    beginning of a prompt whose tokens are cached and recorded.
    """

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._texts: list[str] = []  # of the last message, where that may go on; joined once
        self._thoughts: list[str] = []  # of the same

    def messages(self) -> list[dict[str, Any]]:
        """All that was said."""
        self._close()
        return self._messages

    def system(self, text: str) -> None:
        """Instructions; "" for none."""
        if not text.strip():
            return
        if not self._messages:
            self._messages.append({"role": "system", "content": ""})
            self._texts = [text]
        elif self._messages[-1]["role"] == "system":
            self._texts += "\n\n", text
        else:
            marked = text.lstrip().startswith(_REMINDER) and is_notice(text)
            self.user([text_part(text if marked else _reminder(text))])

    def user(self, parts: Sequence[Part]) -> None:
        """A message of the user's."""
        self._add({"role": "user", "content": _content(parts)})

    def answered(self, text: str, calls: Sequence[dict[str, Any]] = (), thoughts: str = "") -> None:
        """What the model answered, and thought before; told in several pieces, they are one answer."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._add({"role": "assistant", "content": ""})
        self._texts.append(text)
        self._thoughts += [thoughts] if thoughts else []
        if calls:
            self._messages[-1].setdefault("tool_calls", []).extend(calls)

    def result(self, call_id: str, parts: Sequence[Part]) -> None:
        """What a call gave."""
        self._add({"role": "tool", "tool_call_id": call_id, "content": _content(_joined(parts))})

    def _add(self, message: dict[str, Any]) -> None:
        self._close()
        self._messages.append(message)

    def _close(self) -> None:
        if self._texts:
            self._messages[-1]["content"] = "".join(self._texts)
            self._texts = []
        if self._thoughts:
            self._messages[-1]["reasoning_content"] = "".join(self._thoughts)
            self._thoughts = []


def _reminder(text: str) -> str:
    """All of it is one: a tag in the text would end it, and what follows be a person's words."""
    inside = text.replace(_REMINDED, "&lt;/system-reminder>")
    return f"{_REMINDER}\n{inside}\n{_REMINDED}"


def text_part(text: str) -> Part:
    """A part of a message."""
    return {"type": "text", "text": text}


def image_part(url: str) -> Part:
    """A part of a message: an image at `url`, which may be the image itself (`data:...`)."""
    return {"type": "image_url", "image_url": {"url": url}}


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Texts alone are one text: many templates know no parts of what a tool gave."""
    if all(part["type"] == "text" for part in parts):
        return [text_part("\n".join(part["text"] for part in parts))]
    return list(parts)


def call_of(id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call of the model's, its arguments JSON."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_named(name: str) -> dict[str, Any]:
    """The tool that a choice names."""
    return {"type": "function", "function": {"name": name}}


def tool_of(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A tool that the model may call."""
    described = {"description": description} if description else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters}}


def _content(parts: Sequence[Part]) -> str | list[Part]:
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return list(parts)
