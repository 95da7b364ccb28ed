"""Lines of Claude Code in the order of what happened: what a tool gave behind its call. For `claude_code`.

The client may write what a tool gave before the message that asked for it, a few lines earlier (2.1.97, one
call of a hundred): nobody would know then which edit was applied, or refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import table_of, text_of

_CALLS = 1000  # the latest ones that are remembered
_LINES = 64  # a call that does not come in so many lines stands in another file
_Found = tuple[Place, dict[str, Any]] | Quarantined


def behind_their_calls(found: Iterator[_Found]) -> Iterator[_Found]:
    """The lines in their order, but for results that stand before their calls, which come right behind them.

    None comes behind a message of a person's that it stood before.
    """
    known: OrderedDict[str, None] = OrderedDict()
    held: list[tuple[set[str], int, _Found]] = []  # the calls that it waits for, and until which line
    for number, one in enumerate(found):
        line = {} if isinstance(one, Quarantined) else one[1]
        kind = line.get("type")
        if kind == "assistant":
            for call in _ids(line, "tool_use", "id"):
                known[call] = None
            while len(known) > _CALLS:
                known.popitem(last=False)
        elif kind == "user":
            given = _ids(line, "tool_result", "tool_use_id")
            if waiting := {call for call in given if call not in known}:
                held.append((waiting, number + _LINES, one))
                continue
            if held and not given and line.get("isMeta") is not True:
                yield from (before for *_, before in held)
                held = []
        yield one
        if held:
            ready = [each for each in held if each[0] <= known.keys() or each[1] <= number]
            held = [each for each in held if each not in ready]
            yield from (each[2] for each in ready)
    yield from (each[2] for each in held)


def _ids(line: dict[str, Any], kind: str, name: str) -> list[str]:
    """The ids in the blocks of this kind; those that Entire has blacked out are none."""
    content = table_of(line.get("message")).get("content")
    if not isinstance(content, list):
        return []
    blocks = (block for block in content if isinstance(block, dict) and block.get("type") == kind)
    found = (text_of(block.get(name)) for block in blocks)
    return [one for one in found if one and "REDACTED" not in one]
