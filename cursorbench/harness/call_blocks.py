"""Blocks that hold calls, of the families of models whose calls are read.

    <tool_call>{"name": NAME, "arguments": {...}}</tool_call>       Hermes: Qwen2.5, Qwen3 and many more
    <tool_call><function=NAME>...</function></tool_call>            Qwen3-Coder, Qwen3.5
    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>...             GLM-4.5, 4.7
    <minimax:tool_call><invoke name="NAME">...                      MiniMax-M2
    <seed:tool_call><function=NAME>...                              Seed-OSS
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}   DeepSeek-V3, R1 and V3.1
    <｜DSML｜function_calls><｜DSML｜invoke name="NAME">...            DeepSeek-V3.2
    <｜DSML｜tool_calls><｜DSML｜invoke name="NAME">...                DeepSeek-V4
    [TOOL_CALLS]NAME[ARGS]{...}                                     Mistral since 2025
    [TOOL_CALLS] [{"name": NAME, "arguments": {...}}]               Mistral before
    <TOOLCALL>[{"name": NAME, "arguments": {...}}]</TOOLCALL>       Nemotron
    <tool_calls>[{"name": NAME, "arguments": {...}}]</tool_calls>   Hunyuan, Apriel, Jamba
    <|tool_call|>[{"name": NAME, "arguments": {...}}]<|/tool_call|> Phi-4-mini, Granite 3

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
    """How a family writes calls. `close`: "" where the call itself is the end. `mark`: what only its
    templates or tokens have, "" for any model's."""

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
    return end if isinstance(end, bool) else _named_in(text, begin, end)


def _named_in(text: str, begin: int, end: int) -> Body | bool:
    """The call that a whole object is."""
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


def _item(text: str, begin: int, _: Schemas) -> Body | bool:
    """An object of an array, and the comma before it."""
    end = _object(text, at := _behind_blanks(text, begin + text.startswith(",", begin)))
    return end if isinstance(end, bool) else _named_in(text, at, end)


def _listed(text: str, begin: int, parameters: Schemas) -> Body | bool:
    """The same, with the brackets around them all."""
    found = _item(text, _behind_blanks(text, begin + text.startswith("[", begin)), parameters)
    if isinstance(found, bool):
        return found
    behind = _behind_blanks(text, found.end)
    return found._replace(end=behind + 1) if text.startswith("]", behind) else found


_NAMED = re.compile(rf"([^\[\]{{}}<>\s\"]{{1,{LONGEST}}})(?:\[CALL_ID\][^\[\]{{}}\s]{{1,64}})?(?:\[ARGS\])?")
_NAMED_SO_FAR = re.compile(rf"[^\[\]{{}}<>\s\"]{{1,{LONGEST}}}(?:\[[A-Z_]*\]?[^\[\]{{}}\s]{{0,64}}){{0,2}}")


def _mistral(text: str, begin: int, _: Schemas) -> Body | bool:
    head = _NAMED.match(text, begin)
    if head is None or not text.startswith("{", at := _behind_blanks(text, head.end())):
        return not text[begin:] or (
            len(text) - begin <= LONGEST and _NAMED_SO_FAR.fullmatch(text.rstrip(), begin) is not None
        )
    end = _object(text, at)
    return end if isinstance(end, bool) else Body(head[1], text[at:end], end)


def _dsml(name: str) -> Block:
    close = f"</｜DSML｜{name}>"
    return Block(f"<｜DSML｜{name}>", close, partial(_tagged, function_tags.dsml(close)), True, "｜DSML｜")


_QWEN = function_tags.qwen(CLOSE)
HERMES = Block(OPEN, CLOSE, _hermes)
ANY = (HERMES,)
_MINIMAX = "<minimax:tool_call>"
_SEED = "</seed:tool_call>"
_MISTRAL = "[TOOL_CALLS]"
_LISTED = (
    ("<TOOLCALL>", "</TOOLCALL>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<|tool_call|>", "<|/tool_call|>"),
)
_OTHERS = (
    Block(OPEN, CLOSE, _glm, mark="<arg_key>"),
    Block(_MINIMAX, "</minimax:tool_call>", partial(_tagged, MINIMAX), True, _MINIMAX),
    Block("<seed:tool_call>", _SEED, partial(_tagged, function_tags.qwen(_SEED)), mark="<seed:tool_call>"),
    Block("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", _deepseek, True, "<｜tool▁calls▁begin｜>"),
    *map(_dsml, ("function_calls", "tool_calls")),
    *(Block(f"{_MISTRAL}{blank}[", "]", _item, True, _MISTRAL) for blank in ("", " ")),
    Block(_MISTRAL, "", _mistral, mark=_MISTRAL),
    *(Block(tag, end, _listed, True, tag) for tag, end in _LISTED),
)
# whoever's answer it is; of two that open alike the stricter: what it cannot read, neither can
EVERY = (*ANY, *(block for block in _OTHERS if block.open != OPEN))
