"""Whether the answer to a prompt begins within a thought: some templates end with the tag that opens one.

Exact by the prompt's ids, whatever template or variables of it a request had. Not for: the answer's text
(`cursorbench/harness/thoughts.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from cursorbench.harness.thoughts import CLOSE, OPEN
from stages.modelio import TOKENIZER_FILE

_BEHIND = 2  # tokens at a prompt's end: the tag, and line ends behind it


class _Added(msgspec.Struct):
    id: int
    content: str


class _Tokenizer(msgspec.Struct):
    added_tokens: list[_Added] = []


def begins_within(prompt: Sequence[int], checkpoint: Path) -> bool:
    """Whether a thought is open at the end of a prompt (token ids) of the model in folder `checkpoint`."""
    ids = _ids(checkpoint)
    if OPEN not in ids:
        return False
    end = prompt[-_BEHIND:]
    return ids[OPEN] in end and ids.get(CLOSE) not in end


@lru_cache(maxsize=64)
def _ids(checkpoint: Path) -> dict[str, int]:
    """Ids of the tags that are tokens of the model. A tokenizer that cannot be read has none."""
    try:
        read = msgspec.json.decode((checkpoint / TOKENIZER_FILE).read_bytes(), type=_Tokenizer)
    except (OSError, msgspec.MsgspecError):
        return {}
    return {one.content: one.id for one in read.added_tokens if one.content in (OPEN, CLOSE)}
