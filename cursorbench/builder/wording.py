"""How many words a text has, in whatever script, and whether they are but an assent.

Not for: what else they mean.
"""

from __future__ import annotations

import re

# Thai, Lao, Burmese, Khmer, kana, Chinese characters: nothing stands between their words
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_PER_WORD = 2  # of these letters
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_SHORT = 3  # words: a shorter message alone ("yes", "go on") does not say what is wanted
_SPOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ASSENTING = re.compile(
    r"y|yes|yeah|yep|yup|ok|okay|k|sure|fine|good|great|nice|cool|perfect|right|correct|agreed|exactly|lgtm"
    r"|alright|thanks|thank|you|please|pls|go|going|on|ahead|continue|proceed|carry|keep|do|it|that|this|these"
    r"|those|them|all|of|both|so|now|next|then|and|the|let|let's|lets|sounds|looks|implement|start|begin|plan"
)


def words(text: str, letters_alone: bool = False) -> int:
    """Words by blanks, or runs of letters; where a script has no blanks, two letters are counted as one."""
    rest, letters = _UNSPACED.subn(" ", text)
    if letters_alone:
        found = len(_LETTERS.findall(rest))
    else:
        found = sum(any(map(str.isalnum, word)) for word in rest.split())
    return found + letters // _PER_WORD


def assents(text: str) -> bool:
    """Whether a message says no more than yes to what the agent had said: too short, or words of assent alone
    (English ones)."""
    spoken = _SPOKEN.findall(text.lower().replace("’", "'"))
    return words(text) < _SHORT or (bool(spoken) and all(map(_ASSENTING.fullmatch, spoken)))
