"""Strata of the baseline, from what is known before the first sampled token.

The kind of work by the request's own words (`work.py`), the language of the files it names and the tools it
offers: nothing the policy writes may choose its own baseline. Cold strata shrink to the line's mean, which is
the trainer's part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stages.distill.text import LIMIT

_EXTENSION = re.compile(r"(?<![\w/-])[\w/-]+\.([A-Za-z][A-Za-z0-9]{0,5})\b")
_FENCE_LANGUAGE = re.compile(r"```[ \t]*\{?\.?([A-Za-z+#]+)")
_NAMES = """
python: py pyi python; javascript: js jsx mjs javascript; typescript: ts tsx typescript; go: go golang;
rust: rs rust; java: java; kotlin: kt kts kotlin; ruby: rb ruby; php: php; csharp: cs c# csharp;
cpp: cpp cc cxx hpp c++; c: c h; swift: swift; sql: sql; shell: sh bash zsh shell; scala: scala; dart: dart;
lua: lua; web: html css scss vue svelte; text: md markdown rst txt; config: yml yaml toml json jsonc
"""
_LANGUAGES = {
    name: language.strip()
    for language, _, names in (entry.partition(":") for entry in _NAMES.split(";"))
    for name in names.split()
}


def language(request: str) -> str:
    """The language of the first file or fence that the request names; "" when it names none."""
    text = request[:LIMIT]
    named = [*_FENCE_LANGUAGE.findall(text), *_EXTENSION.findall(text)]
    return next((_LANGUAGES[name.lower()] for name in named if name.lower() in _LANGUAGES), "")


def stratum(request: str, work: str, tools_digest: str, parts: Sequence[str]) -> str:
    """The stratum's name, e.g. "change" or "fix/python".

    Args:
        work: its `kind_of_work`.
        parts: of "kind", "language", "tools", in this order of the spec.
    """
    values = {
        "kind": lambda: work,
        "language": lambda: language(request) or "any",
        "tools": lambda: tools_digest[:8] or "none",
    }
    return "/".join(values[part]() for part in parts) or "all"
