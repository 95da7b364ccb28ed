"""Request and answer as one attribute each, `gen_ai.prompt` and `gen_ai.completion`. For `otel_messages`.

LangSmith's SDK and OpenRouter have inputs and outputs there as JSON, Cloudflare's gateway with `_json` behind
the names, OpenLIT's of before `gen_ai.input.messages` all messages as one text, each behind its role;
of calls it told no more than that there were some.

Source: langchain-ai/langsmith-sdk (`_otel_exporter.py`), openlit/openlit (`instrumentation/*/utils.py`).
"""

from __future__ import annotations

import re
from typing import Any

from cursorbench.sessions import langchain
from cursorbench.sessions.chat import Message, message_of
from cursorbench.sessions.openai_answers import answer_of
from cursorbench.sessions.reading import list_of, nested_or_text, table_of, text_of
from cursorbench.sessions.records import first_text

_ASKED = ("gen_ai.prompt", "gen_ai.prompt_json")
_ANSWERED = ("gen_ai.completion", "gen_ai.completion_json")
_KIND = "langsmith.span.kind"
_ROLE = re.compile(r"^(system|developer|user|assistant|tool|function): ", re.MULTILINE)
_NOTHING = re.compile(r"(?:None|\[[0-9]+ tool call\(s\)\])?")  # said by an answer that only calls


def is_other(told: dict[str, Any]) -> bool:
    """Whether it is a span of LangSmith's that is no call of a model: those tell the same."""
    return text_of(told.get(_KIND)) not in ("", "llm")


def inputs(told: dict[str, Any]) -> dict[str, Any]:
    """What a call of LangSmith's was given."""
    return table_of(nested_or_text(told.get("gen_ai.prompt"))) if _KIND in told else {}


def asked(told: dict[str, Any]) -> list[Message]:
    """The messages that the model was sent."""
    value = nested_or_text(first_text(told, *_ASKED))
    table = table_of(value)
    listed = table.get("messages", table.get("input")) if table else value
    if isinstance(listed, str):
        return by_roles(listed) or ([Message("user", text=listed)] if listed else [])
    found = (message_of(langchain.message(one)) for one in langchain.flat(list_of(listed)))
    return [one for one in found if one is not None]


def answers(told: dict[str, Any]) -> list[Message]:
    """What it answered."""
    value = nested_or_text(first_text(told, *_ANSWERED))
    if isinstance(value, list):
        return [one for one in map(message_of, value) if one is not None]
    if isinstance(value, dict):
        words = value.get("completion")  # OpenRouter's
        value = {"role": "assistant", "content": words, **value} if words else langchain.answer(value)
    answer = answer_of(value)
    return [answer.message] if answer is not None and answer.message is not None else []


def by_roles(text: str) -> list[Message]:
    """The messages of a text that has each behind its role; none of any other."""
    found = []
    if not _ROLE.match(text):
        return []
    _, *pieces = _ROLE.split(text)
    for role, said in zip(pieces[::2], pieces[1::2], strict=True):
        words = said.removesuffix("\n").removeprefix("text: ")
        if role not in ("tool", "function") and not _NOTHING.fullmatch(words):
            found.append(Message({"developer": "system"}.get(role, role), text=words))
    return found
