"""Strata of the baseline: what kind of work a request is, from what is known before the first sampled token.

Only the request's own words, the language of the files it names and the tools it offers: nothing the
policy writes may choose its own baseline. The kinds are generic families of words, in order: the first
that fits wins. Cold strata shrink to the line's mean, which is the trainer's part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stages.distill.text import LIMIT, column, has_trace, prose

_KINDS: Mapping[str, tuple[str, ...]] = {
    "rename": (
        r"\brenam\w+\b",
        r"\bcall (?:it|this|that)\b",
        r"\b(?:better|different|new|another) name\b",
        r"\bname\b.*\binstead\b",
    ),
    "test": (
        r"\b(?:add|write|extend|need|more|missing) (?:\w+ ){0,3}tests?\b",
        r"\btest (?:for|that)\b",
        r"\bcoverage\b",
    ),
    "document": (
        r"\b(?:docs?|documentation|document(?:ed)?|docstrings?|comments?|readme|changelog)\b",
        r"\b(?:type hints?|annotat\w+)\b",
    ),
    "refactor": (
        r"\b(?:refactor|clean\w* up|simplif\w+|extract|split|inline|dedup\w*|move)\b",
        r"\b(?:reorgani[sz]e|restructure)\b",
    ),
    "remove": (r"^(?:please |can you |could you )?(?:remove|delete|drop|get rid of)\b",),
    "create": (r"\b(?:add|implement|create|write|build|introduce|support|generate|make an?|new)\b",),
    "change": (
        r"\b(?:change|set|increase|decrease|raise|lower|bump|update|replace|use|switch|swap|turn)\b",
        r"\b(?:should (?:be|return|use)|must be|instead of|to \d|multiply|add up|subtract|divide)\b",
        r"\b(?:reduce|double|halve)\b",
        r"\bmake (?:it|this|that|\w+) (?:return|use|be|equal|\d)",
    ),
    "fix": (
        r"\b(?:fix|bug|broken|wrong|error|fails?|failing|crash\w*|not work\w*|doesn'?t|isn'?t|incorrect)\b",
        r"\b(?:issue|problem|debug|repair)\b",
    ),
    "question": (
        r"\?\s*$",
        r"^(?:what|why|how|where|when|which|who|is|are|does|do|can|could|should|explain|describe)\b",
    ),
}
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


def kind_of_work(requests: Sequence[str]) -> list[str]:
    """rename, test, document, refactor, remove, create, change, fix, question, vague or none, for each."""
    said = prose(requests)
    traces = has_trace(requests)
    kinds = ["vague" if text else "none" for text in said]
    texts = column(said)
    for kind, patterns in reversed(list(_KINDS.items())):
        for row in texts.str.contains("(?im)" + "|".join(patterns)).arg_true():
            kinds[row] = kind
    return ["fix" if trace else kind for kind, trace in zip(kinds, traces, strict=True)]


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
