"""TOML that somebody else wrote: a task of a stranger's suite, a repository's pyproject.toml.

tomllib takes memory and time by the square of a key's parts: `a.a.a...` of 100 kB is 10 GB. Not for: settings
of the machine's own user.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

PARTS = 200  # of one key, at most
_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:{_PART}){{{PARTS}}}""")


def loads(text: str) -> dict[str, Any]:
    """The document.

    Raises:
        ValueError: it is no TOML, or has a key of more than PARTS parts.
        RecursionError: it is nested too deeply.
    """
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {PARTS} parts")
    return tomllib.loads(text)
