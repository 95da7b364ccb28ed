"""The tools that a recorded request offered, read back out of its prompt where the template wrote them there.

Records hold a digest of the tools, not the tools. Templates of the Hermes family write one JSON object a
line between `<tools>` and `</tools>`; our own harness's tools are known. What is found counts only when its
digest is the recorded one. Where nothing is found, a call can be checked for its form only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from cursorbench.errors import UsageError
from cursorbench.harness.call_parser import ToolSet
from cursorbench.harness.tools import DEFAULT_TOOLS
from stages.shadow.recorded import Recorded

_BLOCK = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
Decode = Callable[[list[int]], str]


class KnownTools:
    """Tools by digest. `decode` gives the text of token ids; None where there is no tokenizer."""

    def __init__(self, decode: Decode | None) -> None:
        self._decode = decode
        self._known: dict[str, ToolSet | None] = {digest(list(DEFAULT_TOOLS)): ToolSet(DEFAULT_TOOLS)}

    def of(self, request: Recorded) -> ToolSet | None:
        """The request's tools, None where they are not known or there were none."""
        wanted = request.tools_digest
        if not wanted:
            return None
        if self._known.get(wanted) is None and self._decode is not None:
            self._known[wanted] = in_prompt(self._decode(request.prompt), wanted)
        return self._known.get(wanted)


def in_prompt(text: str, wanted: str) -> ToolSet | None:
    """The tools with digest `wanted` that a prompt tells, None when it does not."""
    for block in _BLOCK.findall(text):
        try:
            tools = [json.loads(line) for line in block.splitlines() if line.strip()]
            if digest(tools) == wanted:
                return ToolSet(tools)
        except (ValueError, UsageError):  # prose about tools, or of another template
            continue
    return None


def digest(tools: list[dict[str, Any]]) -> str:
    """As the gateway records it."""
    return "sha256:" + hashlib.sha256(orjson.dumps(tools, option=orjson.OPT_SORT_KEYS)).hexdigest()


def decoder(checkpoint: Path) -> Decode | None:
    """Text of token ids by the checkpoint's tokenizer; None when it has none that can be read."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    except Exception:  # noqa: BLE001  # the library raises no class of its own; then calls are checked for form
        return None

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    return decode
