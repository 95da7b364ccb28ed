"""The text of single tokens, fit to show: nothing invisible, secrets masked across token boundaries.

Not for: tokens themselves, which are never altered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.redaction import findings, mask, visible
from stages.modelio import TOKENIZER_FILE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MORE = "…"  # a token of a secret whose mask stands at the token before

_UNFINISHED = "\ufffd"  # bytes that are no character, or not yet
_LONGEST = 4  # tokens of one byte each that one character can take


def shown_tokens(folder: Path, token_ids: Sequence[int]) -> list[str]:
    """One text per id, with the tokenizer of the checkpoint in `folder`; all ids of one sequence at once.

    The whole text is looked through, so that a secret of many tokens is known; its mask stands at its first
    token and `…` at the others. A token that only begins a character is "", the one that ends it has it.
    """
    from tokenizers import Tokenizer

    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    return masked_pieces([visible(piece) for piece in _pieces(tokenizer, token_ids)])


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each id adds to the text. Decoded with a few ids before it, on which spaces and bytes depend."""
    found: list[str] = []
    before = shown = (
        0  # ids from `before` are decoded together, those below `shown` are in the pieces already
    )
    for at in range(len(ids)):
        known = tokenizer.decode(ids[before:shown], skip_special_tokens=False)
        text = tokenizer.decode(ids[before : at + 1], skip_special_tokens=False)
        last = at + 1 == len(ids) or at + 1 - shown >= _LONGEST
        if text.endswith(_UNFINISHED) and not last:
            found.append("")
            continue
        found.append(text[len(known) :])
        before, shown = shown, at + 1
    return found


def masked_pieces(pieces: Sequence[str]) -> list[str]:
    """The pieces of one text with the secrets in it masked, wherever the pieces cut it."""
    secrets = findings("".join(pieces))
    shown, begin, first = [], 0, 0
    for piece in pieces:
        end, at, parts = begin + len(piece), begin, []
        while first < len(secrets) and secrets[first][1] <= begin:
            first += 1
        for start, stop, kind in secrets[first:]:
            if start >= end:
                break
            parts += [piece[at - begin : max(start - begin, 0)], mask(kind) if start >= begin else MORE]
            at = min(stop, end)
        shown.append("".join([*parts, piece[at - begin :]]))
        begin = end
    return shown
