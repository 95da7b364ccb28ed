"""Characters that do not show. They go first: one inside of a secret would hide it from every detector.

Not for: what a secret is (the detectors beside this).
"""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    # a terminal's sequences; control, format, private and half characters, but for line breaks and tabs
    r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b[()*+][0-9A-Z]|\x1b\][^\x07\x1b]{0,4096}+(?:\x07|\x1b\\)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)


def visible(text: str) -> str:
    """The text without what does not show or turns its direction."""
    return _INVISIBLE.sub("", text)
