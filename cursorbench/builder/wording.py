"""How many words a text has, in whatever script. Not for: what they mean."""

from __future__ import annotations

import re

# Thai, Lao, Burmese, Khmer, kana, Chinese characters: nothing stands between their words
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_PER_WORD = 2  # of these letters
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def words(text: str, letters_alone: bool = False) -> int:
    """Words by blanks, or runs of letters; where a script has no blanks, two letters are counted as one."""
    rest, letters = _UNSPACED.subn(" ", text)
    if letters_alone:
        found = len(_LETTERS.findall(rest))
    else:
        found = sum(any(map(str.isalnum, word)) for word in rest.split())
    return found + letters // _PER_WORD
