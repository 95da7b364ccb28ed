"""Signals `edited` and `clarified`: whether the episode changed code, or ended in a question without.

The stabiliser of the reward lives on these two, so that questions in place of risky edits do not pay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from stages.distill.signals.edits import Edits
from stages.distill.text import LIMIT, column, prose

_CALL = r"(?s)<tool_call>.*?(?:</tool_call>|\z)"
# with a language, or a question would be free in a fence; with its end, or it could swallow a question
_FENCED = r"(?ms)^[ \t>]*```[ \t]*[^`\s][^`\n]*\n(?:.*?\n)??[ \t>]*```+[ \t]*$"
_FENCED_WORDS = r"(?im)^([ \t>]*```)[ \t]*(?:te?xt|plain(?:text)?|md|markdown)[ \t]*$"
_INLINE_CODE = r"`[^`\n]*`"
# another script's mark; one that ends a sentence; the French one, after a blank (plain: at a line's end, or
# before a sentence without the colon of `a ? B : C`)
_QUESTION = (
    r"""[？؟﹖⁇⁈⁉‽⸮՞፧\x{37E}]"""
    r"""|[^\s?(\[{=][\x{A0}\x{202F}\x{2009}]?\?\.*(?:[?!*_"'»›)\]」』】》）…~]|\p{Cf}|\p{M}|\p{So})*(?:[\s<]|$)"""
    r"""|[\p{L}\d)\]"'»`*][ \t]+\?(?:[?!*_"'»)\s]*|[*_"'»)]*[ \t]+\p{Lu}[\p{Ll}' ][^:\n]*)(?m:$)"""
)
# a question in a heading, in a quotation or indented, where a line looks like code
_MARKED_OFF = r"(?m)^[ \t>#/]+(\S.*[?？؟﹖⁇⁈])(\W*)$"
_ASKING_TOOL = re.compile(r"(?i)(?:^|[^a-z])(?:ask|question|clarify|clarification|user_input)(?:$|[^a-z])")
_LAST = 160  # characters: where an answer that asks does so
_THOUGHT = r"(?s)<think>.*?(?:</think>|\z)"
_ASKS = (
    r"(?i)\b(?:please|could you|can you|would you)\b[^.?!]{0,30}\b(?:clarify|specify|confirm|tell me|explain|"
    r"give me|provide|share|let me know (?:what|which|how|if|whether|where))\b"
    r"|\b(?:i need (?:to know|more)|not sure (?:what|which|how|if|whether)|which one|what exactly)\b"
)


def asks(answers: Sequence[str]) -> list[bool]:
    """Whether the raw text of each final answer ends in a question to the user.

    There is a question near its end, or its text asks for information without a question mark. Of a long
    answer the end is looked at, or a question would cost nothing behind enough words.
    """
    spoken = column(answers).str.replace_all(_THOUGHT, " ").str.replace_all(_CALL, " ")
    coded = spoken.str.replace_all(_FENCED_WORDS, "${1}").str.replace_all(_FENCED, "")
    words = coded.str.tail(LIMIT).str.replace_all(_INLINE_CODE, "`")
    plain = words.str.replace_all(_MARKED_OFF, "${1}${2}")
    said = column(prose(plain.to_list()))
    found = said.str.tail(_LAST).str.contains(_QUESTION) | said.str.contains(_ASKS)
    return list(found.to_list())


def asks_by_tool(calls: Sequence[Mapping[str, str]]) -> bool:
    """Whether one of an answer's calls is to a tool that asks the user, by its name.

    Of an episode's last answer: a question that was answered is followed by another, which is the last then.
    """
    return any(_asking(call["name"]) for call in calls)


@lru_cache(maxsize=4096)
def _asking(name: str) -> bool:
    """By a word of the name: ask_user, AskUserQuestion, request_user_input."""
    return _ASKING_TOOL.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


def edited(edits: Edits) -> bool:
    """Whether the episode changed code, going by what became of its edits."""
    return bool(edits.changes or edits.unseen)
