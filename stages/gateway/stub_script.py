"""What a request tells the stub engine to do (the words are listed in `stub_engine.py`), and its tokens."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

SENTENCE = "The quick brown fox jumps over the lazy dog, then it rests!\n"  # 60 bytes
EOS = 256
_NUMBERS = ("tokens", "delay", "gap", "after", "status", "die")
_NUMBER = {name: re.compile(rf"stub:{name}=([0-9.]+)") for name in _NUMBERS}
_SAY = re.compile(r"stub:say (.*)", re.DOTALL)
_CALL = re.compile(r"stub:call (\S+) (.*)", re.DOTALL)
_HOLD = re.compile(r"stub:hold=(\S+)")
_WRONG = re.compile(r"stub:wrong=(\w+)")


def logprob(index: int, token: int, salt: int = 0) -> float:
    """The stub's logprob of a token at a place: between -2 and 0, different for each."""
    return -((index * 31 + token * 17 + salt) % 1000) / 500


class Script:
    """What a request tells the stub to do."""

    def __init__(self, words: str, max_tokens: int | None, stop: str | Sequence[str] = ()) -> None:
        text = _text(words)
        stops = [one for one in ((stop,) if isinstance(stop, str) else stop) if one in text]
        self.stopped = min(stops, key=text.index) if stops else None
        self.text = text[: text.index(self.stopped)] if self.stopped else text
        self.delay = _number("delay", words)
        self.gap = _number("gap", words)
        self.status = int(_number("status", words))
        self.die = int(_number("die", words, -1))
        self.overflow = "stub:overflow" in words
        self.experts = "stub:experts" in words
        hold, wrong = _HOLD.search(words), _WRONG.search(words)
        self._hold, self._after = Path(hold[1]) if hold else None, int(_number("after", words, -1))
        self.wrong = wrong[1] if wrong else ""
        ids = [*self.text.encode(), EOS]
        self.finish = "stop"
        if max_tokens is not None and len(ids) > max_tokens:
            ids, self.finish, self.stopped = ids[:max_tokens], "length", None
        self.ids = ids

    def held(self, sampled: int) -> Path | None:
        """The file that has to go before the next token, after `sampled` of them; None for none."""
        after = len(self.ids) - 1 if self._after < 0 else self._after
        return self._hold if sampled == after else None


def routed_experts(tokens: list[int], wrong: str) -> str:
    """As vLLM reports them: base64 of a .npy file, [tokens - 1, 2 layers, 2 of 8 experts]."""
    import numpy as np  # half of the stub's start, and few ask for these

    ids = np.array(tokens[: -2 if wrong == "experts" else -1])[:, None, None]
    rows = (ids + np.arange(2)[:, None] * 3 + np.arange(2)) % 8
    file = io.BytesIO()
    np.save(file, rows.astype(np.uint8), allow_pickle=False)
    return base64.b64encode(file.getvalue()[: -1 if wrong == "experts_cut" else None]).decode()


def render(messages: list[dict[str, Any]], tools: list[Any] | None) -> bytes:
    """The stub's chat template; tools are in it, as vLLM does even with tool_choice "none"."""
    parts = [f"tools:{orjson.dumps(tools).decode()}\n"] if tools else []
    for message in messages:
        content = message.get("content")
        calls = message.get("tool_calls")
        text = content if isinstance(content, str) else orjson.dumps(content).decode() if content else ""
        parts.append(f"{message.get('role')}: {text}{orjson.dumps(calls).decode() if calls else ''}\n")
    return "".join([*parts, "assistant: "]).encode()


def whole_characters(data: bytes) -> tuple[str, bytes]:
    """The text in `data`, and the bytes of a character that is not complete yet."""
    for cut in range(min(4, len(data) + 1)):
        head = data[: len(data) - cut]
        try:
            return head.decode(), data[len(head) :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def name_of(token: int) -> str:
    """A token as logprobs show it."""
    return "<|end|>" if token == EOS else chr(token) if token < 128 else ""


def _text(words: str) -> str:
    call = _CALL.search(words)
    if call:
        return f'<tool_call>{{"name": "{call[1]}", "arguments": {call[2]}}}</tool_call>'
    say = _SAY.search(words)
    if say:
        return say[1]
    count = int(_number("tokens", words, len(SENTENCE)))
    return (SENTENCE * (count // len(SENTENCE) + 1))[:count]


def _number(name: str, words: str, default: float = 0) -> float:
    found = _NUMBER[name].search(words)
    return float(found[1]) if found else default
