"""Thoughts and tool calls out of the model's text, whole and while it streams.

Both go through `cursorbench/harness` (`thoughts.py`, then `call_parser.py`: what is thought of is no call),
so an answer reads the same either way; a test holds that for any text cut anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cursorbench.harness import call_parser
from cursorbench.harness.call_blocks import ANY, Block
from cursorbench.harness.thoughts import Thoughts, apart, begun_tag
from cursorbench.harness.tool_schema import Allowance
from stages.model_forms import brief_ids, new_call_id
from stages.records import ToolCall


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
        begun: whether the prompt ended within a thought; None where none are told apart, or nothing came.
        calls: well-formed calls as the OpenAI API has them.
        records: all calls, broken ones included, without arguments (they are content).
        allowance: what checking its calls may still cost: nobody else is answered meanwhile.
        brief: calls get ids of nine letters and digits, which the model's template may ask for.
    """

    content: str = ""
    thoughts: str = ""
    begun: bool | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    records: list[ToolCall] = field(default_factory=list)
    allowance: Allowance = field(default_factory=Allowance, compare=False)
    brief: bool = field(default=False, compare=False)

    @property
    def invalid(self) -> int:
        """How many calls do not parse, name no tool, or fail its schema."""
        return sum(record.error != "" for record in self.records)

    def take(self, call: call_parser.RawCall, tools: call_parser.ToolSet) -> dict[str, Any] | None:
        """Add one call; returns it as clients get it, None when it does not parse."""
        if call.error:
            self.records.append(ToolCall("", "", "", "unparsable"))
            return None
        error = tools.check(call, self.allowance)
        call_id = new_call_id(brief=self.brief)
        # the name of a tool that does not exist is the model's text, hence content
        self.records.append(ToolCall(call_id, "" if error == "unknown_tool" else call.name, "", error))
        entry = {
            "id": call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        self.calls.append(entry)
        return entry


def read_answer(
    text: str,
    tools: call_parser.ToolSet | None,
    thoughts: Thoughts | None = None,
    blocks: Sequence[Block] = ANY,
) -> Answer:
    """A whole answer of a model that writes `blocks`. Without tools and `thoughts` the text is left as is."""
    begun = None if thoughts is None else thoughts.begun
    thought, said = ("", text) if begun is None else apart(text, begun=begun)
    if tools is None:
        return Answer(content=said, thoughts=thought, begun=begun)
    parsed = call_parser.parse(said, tools.parameters, blocks)
    answer = Answer(content=parsed.content, thoughts=thought, begun=begun, brief=brief_ids(blocks))
    for call in parsed.calls:
        answer.take(call, tools)
    return answer


class ToolStream:
    """An answer that comes in pieces. Holds back what may turn out to be a call, or a thought's tag.

    `feed` and `finish` return what may be sent now, in order.
    """

    def __init__(
        self,
        tools: call_parser.ToolSet | None,
        thoughts: Thoughts | None = None,
        blocks: Sequence[Block] = ANY,
    ) -> None:
        self.answer = Answer(brief=brief_ids(blocks))
        self._tools, self._thoughts, self._blocks = tools, thoughts, blocks
        self._held = ""
        self._tried = 0  # of what is held, what was looked at in vain

    def feed(self, text: str) -> list[Sent]:
        """More text."""
        if self._thoughts is None:
            return self._say(text)
        self.answer.begun = self._thoughts.begun
        thought, said = self._thoughts.feed(text)
        return [*self._think(thought), *self._say(said)]

    def finish(self) -> list[Sent]:
        """The text is complete."""
        thought, said = self._thoughts.finish() if self._thoughts is not None else ("", "")
        out = [*self._think(thought), *self._say(said)]
        if self._tools is not None:
            while (begun := call_parser.opening(self._held, self._blocks)) is not None:
                self._take(out, *begun, last=True)
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
        while (begun := call_parser.opening(self._held, self._blocks)) is not None:
            if not self._take(out, *begun, last=False):
                return out
        self._emit(out, len(self._held) - max(begun_tag(self._held, block.open) for block in self._blocks))
        return out

    def _emit(self, out: list[Sent], length: int) -> None:
        if length:
            self.answer.content += self._held[:length]
            out.append(self._held[:length])
            self._held, self._tried = self._held[length:], 0

    def _take(self, out: list[Sent], start: int, block: Block, *, last: bool) -> bool:
        """The block that opens at `start`, and what is before it; False while more text may change it."""
        assert self._tools is not None
        self._emit(out, start)
        held = self._held
        if not last and not self._may_end(block):
            return False
        found = call_parser.block_at(held, 0, block, self._tools.parameters)
        if not (found.final or last):
            self._tried = len(held)
            return False
        for call in found.calls:
            entry = self.answer.take(call, self._tools)
            if entry is None:
                self._emit(out, call.end)
                return True
            out.append(entry)
        self._held, self._tried = held[found.calls[-1].end :], 0
        return True

    def _may_end(self, block: Block) -> bool:
        """Whether what has come since it was last looked at may end the block that is held."""
        end = block.close or ("}" if "{" in self._held else "")
        body = len(block.open)
        return self._held.find(end, max(body, self._tried - len(end) + 1)) >= 0 or (
            self._held.find(block.open, max(body, self._tried - body + 1)) >= 0
        )
