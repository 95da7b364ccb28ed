"""Signals `edited` and `clarified`: whether the episode changed code, or ended in a question without.

The stabiliser of the reward lives on these two, so that questions in place of risky edits do not pay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cursorbench.harness import call_parser
from cursorbench.harness.call_blocks import EVERY
from stages.distill.signals.edits import Edits
from stages.distill.text import LIMIT, column, prose

# with a language, or a question would be free in a fence; with its end, or it could swallow a question
_FENCED = r"(?ms)^[ \t>]*```[ \t]*[^`\s][^`\n]*\n(?:.*?\n)??[ \t>]*```+[ \t]*$"
_FENCED_WORDS = r"(?im)^([ \t>]*```)[ \t]*(?:te?xt|plain(?:text)?|md|markdown)[ \t]*$"
# three words or more and a question mark: in no language a line of code, unless it begins like Ruby's guards
_BEGINS = r"(?i:which|what|where|who|why|how|should|shall|do|does|is|are|can|could|would)\b"
_WORDS = (
    rf"""(?:\p{{Lu}}|{_BEGINS})"""
    r"""[\p{L}\p{N}_',/"-]*(?:[ \t]+[\p{L}\p{N}_',/"-]+){2,}\?"""
)
_FENCED_SAID = (  # what a fence says to a reader: comments and lines of words, no strings and no flags
    r"""(?m)^[ \t>]*(?:[#;%]|//|(?:--|\*)(?:[ \t]|$)|/\*|<!--)[^\n]*$|[ \t](?:#|//|--|/\*|<!--)[ \t][^\n]*$"""
    rf"""|^[ \t>`]*{_WORDS}[ \t]*$"""
    r"""|^[ \t>`]*\p{Lo}[\p{L}\p{M}\p{N}_ ,、，"-]*[?？؟՞፧][ \t]*$"""
)
_INLINE_WORDS = rf"`({_WORDS})`"
_INLINE_CODE = r"`[^`\n]*`"
_PADDING = r"[^\p{L}\p{N}\n`?？؟﹖⁇⁈⁉‽⸮՞፧\x{37E}]{16,}"  # blanks and rules cost few tokens
_BLANK_LINES = r"\n\s*\n"
# another script's mark; one that ends a sentence; the French one, after a blank (plain: at a line's end, or
# before a sentence without the colon of `a ? B : C`); and before a comma or a rule what began as a question,
# for signatures have `id: Int?, name`
_QUESTION = (
    r"""[？؟﹖⁇⁈⁉‽⸮՞፧\x{37E}]"""
    r"""|[^\s?(\[{=][\x{A0}\x{202F}\x{2009}]?\?\.*(?:[?!*_"'»›)\]」』】》）…~]|\p{Cf}|\p{M}|\p{So})*(?:[\s<]|$)"""
    rf"""|(?m:^|[.!?:;])[^\p{{L}}\p{{N}}\n]*{_BEGINS}[\p{{L}}\p{{N}}_',/"*`-]*"""
    r"""(?:[ \t]+[\p{L}\p{N}_',/"*`-]+){2,}\?[\P{L}--[\s\p{N}]]*(?:\s|$)"""
    r"""|[\p{L}\d)\]"'»`*][ \t]+\?(?:[?!*_"'»)\s]*|[*_"'»)]*[ \t]+\p{Lu}[\p{Ll}' ][^:\n]*)(?m:$)"""
)
# a question in a heading, in a quotation or indented, where a line looks like code
_MARKED_OFF = r"(?m)^[ \t>#/]+(\S.*[?？؟﹖⁇⁈])(\W*)$"
_WORDED = (  # a question behind `x = ` or `return `, or before a bracket
    r"(?m)^((?:[\w.]+[ \t]*[:+-]?=[ \t]*)?(?:[\p{L}\p{N}_,'/`-]+[ \t]+){2,}[\p{L}\p{N}_,'/`-]+\?)"
    r"[^\p{L}\p{N}\n]*$"
)
_GUARD = r"(?m)^((?:return|[\w.]+[ \t]*=)[ \t][^\n]*[ \t](?:if|unless)[ \t]+[\w.]+)\?[ \t]*$"  # Ruby's
_ASKING_TOOL = re.compile(r"(?i)(?:^|[^a-z])(?:ask|question|clarify|clarification|user_input)(?:$|[^a-z])")
# characters of words at the end of an answer: about 500 tokens, which cost as much as a question does at the
# initial price (C = 0.18, beside the time they take), so it does not pay to hide one before them; it does
# where the price is high and answers are long (docs/hacks.md)
_LAST = 2_000
_PLEASE = r"(?i)\b(?:please|could you|can you|would you)\b[^.?!]{0,30}\b"
_TELL_ME = r"tell me|give me|let me know (?:what|which|how|if|whether|where)"
_ASKS = (
    rf"{_PLEASE}(?:{_TELL_ME}|clarify|specify|confirm|explain|provide|share)\b"
    r"|\b(?:i need (?:to know|more)|not sure (?:what|which|how|if|whether)|which one|what exactly)\b"
)
# a question whose mark was left away, or what is told to answer it, where a sentence begins. Not "how does it
# work", a heading; nor "let me know how it goes"; nor "confirm which", said of what to do next
_SENTENCE = r"(?im)(?:^|[.!?:;][ \t]+)[ \t>*_-]*(?:(?:so|then|and|but|or|now|please)\b,?[ \t]+)?"
_UNMARKED = (
    rf"{_SENTENCE}(?:(?:which|what|whose)(?:[ \t]+[\w'`/.-]+){{0,4}}[ \t]+"
    r"(?:should|shall|do|does|did|would|could|can)[ \t]+(?:i|we|you|it|this|that|the|they)\b"
    r"|(?:(?:where|when|how)[ \t]+)?(?:(?:should|shall)[ \t]+(?:i|we)|do you (?:want|prefer|need|mean))\b"
    r"|would you (?:like|prefer|rather)\b|tell me (?:which|what|where|how)\b|let me know which\b)"
)
# of a program's comments: "please provide your own key" is said to whoever runs it
_ASKS_ME = rf"{_PLEASE}(?:{_TELL_ME})\b"


def asks(answers: Sequence[str]) -> list[bool]:
    """Whether what each final answer says, its thoughts and calls apart, asks the user something, for
    answers without an edit.

    There is a question in its last `_LAST` characters, code and rows of blanks or marks apart, in English
    also one without its mark, or its text asks for information, or what a reader finds in its code does.
    """
    spoken = column(answers).str.replace_all(_PADDING, "\n").str.replace_all(_BLANK_LINES, "\n\n")
    spoken = spoken.str.replace_all(_FENCED_WORDS, "${1}")
    words = spoken.str.replace_all(_FENCED, "").str.tail(LIMIT)
    words = words.str.replace_all(_INLINE_WORDS, "${1}").str.replace_all(_INLINE_CODE, "`")
    words = words.str.replace_all(_GUARD, "${1}")
    lines = words.str.replace_all(_MARKED_OFF, "${1}${2}").str.replace_all(_WORDED, "- ${1}")
    said = column(prose(lines.to_list()))
    last = said.str.tail(_LAST)
    asking = last.str.contains(_QUESTION) | said.str.contains(_ASKS) | last.str.contains(_UNMARKED)
    fences = spoken.str.tail(LIMIT).str.extract_all(_FENCED).list.join("\n")
    beside = fences.str.extract_all(_FENCED_SAID).list.join("\n")
    return list((asking | beside.str.contains(_QUESTION) | beside.str.contains(_ASKS_ME)).to_list())


def without_calls(said: str) -> str:
    """What an answer says beside its calls, of whatever family. For answers with calls on record: in others
    their tags are text, which people read."""
    kept, at = [], 0
    for call in call_parser.parse(said, blocks=EVERY).calls:
        kept.append(said[at : call.start])
        at = call.end
    return " ".join([*kept, said[at:]])


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
