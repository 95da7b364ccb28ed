"""Thoughts and tool calls out of the model's text, whole and while it streams.

Both go through `cursorbench/harness` (`thoughts.py`, then `hermes.py`: what is thought of is no call), so an
answer reads the same either way; a test holds that for any text cut anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from cursorbench.harness import function_tags, hermes
from cursorbench.harness.thoughts import Thoughts, apart, begun_tag
from cursorbench.harness.tool_schema import Allowance
from stages.records import ToolCall

_DECODER = json.JSONDecoder()
_UNDECIDED = 12  # an error this close to the end may be no error once more text is there


class Thought(NamedTuple):
    """A piece of what the model thinks before it answers."""

    text: str


Sent = str | Thought | dict[str, Any]  # text, thought, or a call as the OpenAI API has it


@dataclass
class Answer:
    """What a client sees of a text, and what is recorded of its calls.

    Attributes:
        content: the text without thoughts and well-formed calls.
        thoughts: what was thought before it.
        calls: well-formed calls as the OpenAI API has them.
        records: all calls, broken ones included, without arguments (they are content).
        allowance: what checking its calls may still cost: nobody else is answered meanwhile.
    """

    content: str = ""
    thoughts: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    records: list[ToolCall] = field(default_factory=list)
    allowance: Allowance = field(default_factory=Allowance, compare=False)

    @property
    def invalid(self) -> int:
        """How many calls do not parse, name no tool, or fail its schema."""
        return sum(record.error != "" for record in self.records)

    def take(self, call: hermes.RawCall, tools: hermes.ToolSet) -> dict[str, Any] | None:
        """Add one call; returns it as clients get it, None when it does not parse."""
        if call.error:
            self.records.append(ToolCall("", "", "", "unparsable"))
            return None
        error = tools.check(call, self.allowance)
        call_id = f"call_{uuid4().hex[:24]}"
        # the name of a tool that does not exist is the model's text, hence content
        self.records.append(ToolCall(call_id, "" if error == "unknown_tool" else call.name, "", error))
        entry = {
            "id": call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        self.calls.append(entry)
        return entry


def read_answer(text: str, tools: hermes.ToolSet | None, thoughts: Thoughts | None = None) -> Answer:
    """A whole answer. Without tools and without `thoughts` the text is left as it is."""
    thought, said = apart(text, begun=thoughts.begun) if thoughts is not None else ("", text)
    if tools is None or hermes.OPEN not in said:
        return Answer(content=said, thoughts=thought)
    parsed = hermes.parse(said, tools.parameters)
    answer = Answer(content=parsed.content, thoughts=thought)
    for call in parsed.calls:
        answer.take(call, tools)
    return answer


class ToolStream:
    """An answer that comes in pieces. Holds back what may turn out to be a call, or a thought's tag.

    `feed` and `finish` return what may be sent now, in order.
    """

    def __init__(self, tools: hermes.ToolSet | None, thoughts: Thoughts | None = None) -> None:
        self.answer = Answer()
        self._tools, self._thoughts = tools, thoughts
        self._held = ""

    def feed(self, text: str) -> list[Sent]:
        """More text."""
        thought, said = self._thoughts.feed(text) if self._thoughts is not None else ("", text)
        return [*self._think(thought), *self._say(said)]

    def finish(self) -> list[Sent]:
        """The text is complete."""
        thought, said = self._thoughts.finish() if self._thoughts is not None else ("", "")
        out = [*self._think(thought), *self._say(said)]
        while self._held and self._tools is not None:
            parsed = hermes.parse(self._held, self._tools.parameters)
            if not parsed.calls:
                break
            self._emit(out, parsed.calls[0].start)
            self._take(out, hermes.parse(self._held, self._tools.parameters).calls[0])
        self._emit(out, len(self._held))
        return out

    def _think(self, text: str) -> list[Sent]:
        self.answer.thoughts += text
        return [Thought(text)] if text else []

    def _say(self, text: str) -> list[Sent]:
        if self._tools is None:
            self.answer.content += text
            return [text] if text else []
        self._held += text
        out: list[Sent] = []
        while self._held:
            start = self._held.find(hermes.OPEN)
            if start < 0:
                self._emit(out, len(self._held) - begun_tag(self._held, hermes.OPEN))
                return out
            self._emit(out, start)
            call = _decided(self._held, self._tools)
            if call is None:
                return out
            self._take(out, call)
        return out

    def _emit(self, out: list[Sent], length: int) -> None:
        if length:
            self.answer.content += self._held[:length]
            out.append(self._held[:length])
            self._held = self._held[length:]

    def _take(self, out: list[Sent], call: hermes.RawCall) -> None:
        assert self._tools is not None
        entry = self.answer.take(call, self._tools)
        if entry is None:
            self._emit(out, call.end)
        else:
            out.append(entry)
            self._held = self._held[call.end :]


def _decided(held: str, tools: hermes.ToolSet) -> hermes.RawCall | None:
    """The block at the start of `held` if no further text can change how it reads."""
    body = len(hermes.OPEN)
    if hermes.CLOSE not in held[body:] and hermes.OPEN not in held[body:]:
        return None
    call = hermes.parse(held, tools.parameters).calls[0]
    if call.error:
        return None if _may_continue(held, body) else call
    return call if held[: call.end].endswith(hermes.CLOSE) else None


def _may_continue(held: str, body: int) -> bool:
    """Whether the block at `body` is broken only because its JSON, or a tag of its, has not all come."""
    begin = len(held) - len(held[body:].lstrip(" \t\r\n"))
    if not held.startswith("{", begin):
        found = function_tags.read(held, begin)
        return found if isinstance(found, bool) else _may_close(held[found.end :])
    try:
        _, end = _DECODER.raw_decode(held, begin)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or error.pos >= len(held) - _UNDECIDED
    except (ValueError, RecursionError):
        return False
    return _may_close(held[end:])


def _may_close(behind: str) -> bool:
    """Whether the closing tag is all that `behind` may be the beginning of."""
    rest = behind.lstrip(" \t\r\n")
    return rest != hermes.CLOSE and hermes.CLOSE.startswith(rest)
