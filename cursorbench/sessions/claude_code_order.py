"""Lines of Claude Code in the order of what happened: what a tool gave behind its call. For `claude_code`.

The client may write what a tool gave before the message that asked for it, a few lines earlier (2.1.97, one
call of a hundred): nobody would know then which edit was applied, or refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import list_of, table_of, text_of

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
        asked, given = _calls(line)
        known.update(dict.fromkeys(asked))
        while len(known) > _CALLS:
            known.popitem(last=False)
        if waiting := given - known.keys():
            held.append((waiting, number + _LINES, one))
            continue
        if held and line.get("type") == "user" and not given and line.get("isMeta") is not True:
            yield from (before for *_, before in held)
            held = []
        yield one
        ready = [each for each in held if each[0] <= known.keys() or each[1] <= number]
        held = [each for each in held if each not in ready]
        yield from (each[2] for each in ready)
    yield from (each[2] for each in held)


def _calls(line: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The ids of the calls that a line makes, and of those that it ends."""
    asked, given = set[str](), set[str]()
    if line.get("type") in ("user", "assistant"):
        for block in map(table_of, list_of(table_of(line.get("message")).get("content"))):
            kind = text_of(block.get("type"))
            if kind.endswith("tool_use"):
                asked.add(text_of(block.get("id")))
            elif kind.endswith("tool_result"):
                given.add(text_of(block.get("tool_use_id")))
    return asked, {one for one in given - asked if one and "REDACTED" not in one}
