"""How a model writes what it thinks and calls, by its checkpoint's files: tags of template and tokenizer.

Some templates end prompts with the tag that opens a thought, so that the answer begins within it: exact by
the prompt's ids, whatever variables of the template a request had. Not for: the answer's text
(`cursorbench/harness/thoughts.py` and `call_parser.py`).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from cursorbench.harness.call_blocks import ANY, Block, blocks_of
from cursorbench.harness.thoughts import CLOSE, OPEN, PAIRS
from stages.modelio import TEMPLATES, TOKENIZER_FILE

_BEHIND = 2  # tokens at a prompt's end: the tag, and line ends behind it
_BRIEF = "[TOOL_CALLS]"  # Mistral's templates refuse a conversation with calls of other ids than `_NINE`
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_TEMPLATES = ("chat_template.jinja", "tokenizer_config.json", f"{TEMPLATES}/*.jinja")


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Tokenizer(msgspec.Struct):
    added_tokens: list[_Added] = []


class ModelForms(NamedTuple):
    """A model's ways of writing.

    Attributes:
        tags: ids of the tags around thoughts, by their text, where these are tokens.
        others: ids of the other tokens that a template may write of its own, blanks apart: behind a tag they
            say that it is the user's.
        blocks: its blocks of calls.
        hidden: some of these tags are special tokens, which engines leave out of texts unless they are told
            to show them (`skip_special_tokens`).
    """

    tags: dict[str, int]
    blocks: tuple[Block, ...] = ANY
    others: frozenset[int] = frozenset()
    hidden: bool = False

    def begins_within(self, prompt: Sequence[int]) -> bool:
        """Whether a thought is open at the end of a prompt (token ids)."""
        end = prompt[-_BEHIND:]
        opened = self.tags.get(OPEN, -1) in end and self.tags.get(CLOSE, -1) not in end
        return opened and self.others.isdisjoint(end[-1:])


PLAIN = ModelForms({})


def brief_ids(blocks: Sequence[Block]) -> bool:
    """Whether a model that writes `blocks` may read no conversation but one whose calls have ids of nine
    letters and digits."""
    return any(block.mark == _BRIEF for block in blocks)


def new_call_id(*, brief: bool) -> str:
    """An id for a call that a model has made."""
    if brief:
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
    return f"call_{uuid4().hex[:24]}"


def with_brief_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation whose calls have such ids, each the same wherever it stands; for ids of others."""
    found = []
    for message in map(dict, messages):
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{**call, "id": _brief(str(call.get("id")))} for call in calls]
        if "tool_call_id" in message:
            message["tool_call_id"] = _brief(str(message["tool_call_id"]))
        found.append(message)
    return found


def _brief(name: str) -> str:
    return name if _NINE.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:9]


def forms_of(checkpoint: Path) -> ModelForms:
    """Of the model in folder `checkpoint`. While that cannot be read it is a model like any."""
    try:
        return _read(checkpoint)
    except OSError:  # asked again by the next request: a store may be away for a while
        return PLAIN


@lru_cache(maxsize=64)
def _read(checkpoint: Path) -> ModelForms:
    names = [entry.name for entry in checkpoint.iterdir()]
    tokenizer = _Tokenizer()
    if TOKENIZER_FILE in names:
        with suppress(msgspec.MsgspecError):
            tokenizer = msgspec.json.decode((checkpoint / TOKENIZER_FILE).read_bytes(), type=_Tokenizer)
    templates = [path for name in _TEMPLATES for path in checkpoint.glob(name)]
    told = [token.content for token in tokenizer.added_tokens]
    told += [path.read_text(errors="replace") for path in templates]
    tags = {token.content: token.id for token in tokenizer.added_tokens if token.content in (OPEN, CLOSE)}
    others = (token.id for token in tokenizer.added_tokens if token.content.strip())
    blocks = blocks_of("\n".join(told))
    tagged = {*PAIRS, *PAIRS.values()}
    tagged |= {tag for block in blocks for tag in (block.open, block.close, block.mark)}
    hidden = any(token.special and token.content in tagged for token in tokenizer.added_tokens)
    return ModelForms(tags, blocks, frozenset(others) - {*tags.values()}, hidden)
