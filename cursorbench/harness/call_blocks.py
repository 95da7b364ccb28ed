"""Blocks that hold calls, of the families of models whose calls are read.

    <tool_call>{"name": NAME, "arguments": {...}}</tool_call>       Hermes: Qwen2.5, Qwen3 and many more
    <tool_call><function=NAME>...</function></tool_call>            Qwen3-Coder, Qwen3.5
    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>...             GLM-4.5, 4.7
    <minimax:tool_call><invoke name="NAME">...                      MiniMax-M2
    <seed:tool_call><function=NAME>...                              Seed-OSS
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}   DeepSeek-V3, R1 and V3.1
    <｜DSML｜function_calls><｜DSML｜invoke name="NAME">...            DeepSeek-V3.2
    <｜DSML｜tool_calls><｜DSML｜invoke name="NAME">...                DeepSeek-V4

The first two are looked for whatever the model; the others where its template or its tokens have their tag:
to another model it is a text like any. Sources: the models' templates; vLLM's parsers of these families.
Not for: what tags hold (`function_tags.py`), an answer of several blocks and text (`call_parser.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from cursorbench.harness import function_tags
from cursorbench.harness.function_tags import GLM, LONGEST, MINIMAX, Form

Schemas = Mapping[str, object]  # of arguments, by the tools' names

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_UNDECIDED = 12  # an error this close to the end may be no error once more text is there


class Body(NamedTuple):
    """A call as it was written: its name, JSON of its arguments, and the offset behind it."""

    name: str
    arguments: str
    end: int


Read = Callable[[str, int, Schemas], Body | bool]  # the call at an offset; else whether it may yet be one


class Block(NamedTuple):
    """How a family writes calls. `mark`: what only its templates or tokens have, "" for any model's."""

    open: str
    close: str
    read: Read
    several: bool = False
    mark: str = ""


class Found(NamedTuple):
    """The block at an offset: its calls, its end, and whether it is whole, may yet be, or can never be."""

    calls: list[Body]
    end: int
    state: Literal["whole", "open", "broken"]


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


def find(block: Block, text: str, start: int, parameters: Schemas) -> Found:
    """The block that opens at `start`."""
    calls: list[Body] = []
    at = start + len(block.open)
    while True:
        at = _behind_blanks(text, at)
        if calls and text.startswith(block.close, at):
            return Found(calls, at + len(block.close), "whole")
        rest = text[at : at + len(block.close)]
        if calls and block.close.startswith(rest):
            return Found(calls, at, "open")
        if calls and not block.several:
            return Found(calls, at, "broken")
        call = block.read(text, at, parameters)
        if isinstance(call, bool):
            return Found(calls, at, "open" if call else "broken")
        calls.append(call)
        at = call.end


def blocks_of(told: str) -> tuple[Block, ...]:
    """The blocks that a model may write, of which `told` has the template and names of tokens."""
    own = [block for block in _OTHERS if block.mark in told]
    return (*own, *(block for block in ANY if block.open not in {one.open for one in own}))


def _behind_blanks(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string


def _tagged(form: Form, text: str, begin: int, parameters: Schemas) -> Body | bool:
    found = function_tags.read(text, begin, form)
    if isinstance(found, bool):
        return found
    return Body(found.name, function_tags.arguments(found, parameters.get(found.name)), found.end)


def _object(text: str, begin: int) -> int | bool:
    """The offset behind the JSON object at `begin`; else whether it has not all come."""
    if not text.startswith("{", begin):
        return begin == len(text)
    try:
        return _DECODER.raw_decode(text, begin)[1]
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or error.pos >= len(text) - _UNDECIDED
    except (ValueError, RecursionError):
        return False


def _hermes(text: str, begin: int, parameters: Schemas) -> Body | bool:
    """JSON of name and arguments, or Qwen3-Coder's tags."""
    if text.startswith(function_tags.OPENING[: len(text) - begin], begin) and begin < len(text):
        return _tagged(_QWEN, text, begin, parameters)
    end = _object(text, begin)
    if isinstance(end, bool):
        return end
    try:
        call = msgspec.json.decode(text[begin:end], type=_Call)
        return Body(call.name, bytes(call.arguments).decode(), end)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False


def _glm(text: str, begin: int, parameters: Schemas) -> Body | bool:
    if begin == len(text) or text[begin] in "{<":
        return _hermes(text, begin, parameters)
    return _tagged(GLM, text, begin, parameters)


_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_HEAD = re.compile(
    rf"{_CALL}(?:function{_SEPARATOR}([^<>\n]{{1,{LONGEST}}})\n```json\n|([^<>\n]{{1,{LONGEST}}}){_SEPARATOR})"
)
_TAIL = re.compile(rf"\s*(?:```)?\s*{_CALL_END}")


def _deepseek(text: str, begin: int, _: Schemas) -> Body | bool:
    """A call of DeepSeek-V3.1; in V3 and R1 the name stands behind `function`, and its JSON is fenced."""
    head = _HEAD.match(text, begin)
    if head is None or (head[2] == "function" and not text.startswith("{", head.end())):
        return len(text) - begin < LONGEST and _CALL.startswith(text[begin : begin + len(_CALL)])
    end = _object(text, head.end())
    if isinstance(end, bool):
        return end
    tail = _TAIL.match(text, end)
    if tail is None:
        return len(text) - end < LONGEST and not text[end : end + 1].strip("` \n<")
    return Body((head[1] or head[2]).strip(), text[head.end() : end], tail.end())


def _dsml(name: str) -> Block:
    close = f"</｜DSML｜{name}>"
    return Block(f"<｜DSML｜{name}>", close, partial(_tagged, function_tags.dsml(close)), True, "｜DSML｜")


_QWEN = function_tags.qwen(CLOSE)
HERMES = Block(OPEN, CLOSE, _hermes)
ANY = (HERMES,)
_MINIMAX = "<minimax:tool_call>"
_SEED = "</seed:tool_call>"
_OTHERS = (
    Block(OPEN, CLOSE, _glm, mark="<arg_key>"),
    Block(_MINIMAX, "</minimax:tool_call>", partial(_tagged, MINIMAX), True, _MINIMAX),
    Block("<seed:tool_call>", _SEED, partial(_tagged, function_tags.qwen(_SEED)), mark="<seed:tool_call>"),
    Block("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", _deepseek, True, "<｜tool▁calls▁begin｜>"),
    *map(_dsml, ("function_calls", "tool_calls")),
)
# whoever's answer it is; of two that open alike the stricter: what it cannot read, neither can
EVERY = (*ANY, *(block for block in _OTHERS if block.open != OPEN))
