"""What a client is told when the engine refused its request: which field, which limit, in words of ours.

vLLM's own words repeat values and names of the request, and are never passed on; numbers are, where they
are the engine's limits. The forms are those of vLLM 0.32 (`sampling_params.py`, `renderers/params.py`,
pydantic's errors).

Not for: what the gateway refuses by itself (`request.py`).
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from stages.gateway.errors import ApiError, invalid, unavailable
from stages.gateway.request_fields import FIELDS

OVERFLOW_CODE = "context_length_exceeded"
_ENGINE_CODE = "engine_refused"
_FIELD = re.compile(r"(?:body\.)?(\w+)")
_MESSAGE = re.compile(r"body\.messages\.(\d{1,6})\b")
# pydantic's own texts: what the schema wants, nothing of what was given. Of a union's, what is said of the
# length of a list is what matters
_WANTED = (
    re.compile(r"'msg': '(?:List|Dictionary) (should have at (?:most|least) \d+ items?)"),
    re.compile(
        r"""'msg': ["']Input (should be (?:a valid \w+|(?:greater|less) than (?:or equal to )?-?\d+"""
        r"""|(?:'\w+'(?:, | or )?)+))"""
    ),
)
# how vLLM's words are recognised, what is told (`{0}`: the first group), and the field
_REFUSALS = (
    (
        r"^max\w+=\d+ cannot .*max_model_len ?= ?(\d+)",
        "max_tokens may be {0} at most, the context",
        "max_tokens",
    ),
    ("^truncate_prompt_tokens=", "truncate_prompt_tokens is more than the context", "truncate_prompt_tokens"),
    (
        r"greater than max allowed: (\d+)",
        "logprobs, or top_logprobs of a chat, may be {0} at most",
        "logprobs",
    ),
    ("^min_tokens must be", "min_tokens must be 0 or more, and not more than max_tokens", "min_tokens"),
    ("^stop cannot contain an empty", "stop must hold no empty string", "stop"),
    ("^bad_words cannot contain an empty", "bad_words must hold no empty string", "bad_words"),
    (
        "(logit_bias|stop_token_ids|allowed_token_ids) contains? out-of-vocab",
        "{0} holds an id that is not in the model's vocabulary",
        "{0}",
    ),
    ("^logit_bias contains key", "the keys of logit_bias must be token ids", "logit_bias"),
    ("^allowed_token_ids is not None and", "allowed_token_ids must not be empty", "allowed_token_ids"),
    (
        "^thinking_token_budget is set but",
        "the engine was not started for thinking_token_budget",
        "thinking_token_budget",
    ),
    ("^Chat template is passed", "a request's own chat_template is not taken", "chat_template"),
    (
        "^As of transformers v4.44, default chat template",
        "the model has no chat template: it takes POST /v1/completions alone",
        "messages",
    ),
    (
        "^continue_final_message and add_generation",
        "continue_final_message needs add_generation_prompt to be false",
        "continue_final_message",
    ),
    (
        "^You (?:can only use|must use) one kind of",
        "structured_outputs must have one of json, regex, choice, grammar, json_object, structural_tag",
        "structured_outputs",
    ),
    ("^Choice '", "choice of structured_outputs must not be empty", "structured_outputs"),
    ("prompt cannot be empty|must be provided and non-empty", "prompt must not be empty", "prompt"),
    ("out of vocabulary", "the prompt holds an id that is not in the model's vocabulary", "prompt"),
    (
        "is not a multimodal model",
        "the model takes text only, and there is something else in messages",
        "messages",
    ),
    (
        "may be provided in one prompt",
        "there are more images or sounds in messages than the model takes",
        "messages",
    ),
    (
        "ToolCallParam",
        "a tool call in messages needs id, type, and a function with name and arguments, all of them strings",
        "messages",
    ),
    (
        "for ValidatorIterator|chat content part type|'type' field in multimodal part",
        'a part in messages is none that the model takes; a text is {{"type": "text", "text": "..."}}',
        "messages",
    ),
    # templates' own words, by which models of a family refuse a conversation
    (
        "^Tool call IDs should be",
        "the model's chat template takes ids of tool calls of nine letters and digits alone",
        "messages",
    ),
    (
        r"^[\w ,]{0,60}roles must alternate",
        "the model's chat template takes messages of user and assistant in turn alone",
        "messages",
    ),
    ("^System role not supported", "the model's chat template takes no system message", "messages"),
    (
        r"^[\w ]{0,40}(?:[Gg]rammar|JSON schema|structural.tag)",
        "the schema or grammar in response_format or structured_outputs, or of a tool that has to be called,"
        " cannot be applied",
        "",
    ),
)
_KNOWN = tuple((re.compile(pattern), told, param) for pattern, told, param in _REFUSALS)
_FULL = re.compile(r"maximum context length is (\d+)")
_FILLED = (
    "max_tokens must be at least 1"  # what a prompt leaves that fills the context: the gateway sends no less
)


def to_blame(status: int) -> bool:
    """Whether a status that is not 200 says that the engine fails, and not that the request is wrong."""
    return status in (401, 403, 404, 405) or status >= 500


def refused(status: int, content: bytes) -> ApiError:
    """The client's error for an engine's answer that is not 200."""
    if to_blame(status):
        return unavailable("engine_error", f"the engine answered {status}")
    try:
        error = orjson.loads(content)["error"]
        said, param = str(error["message"]), error.get("param")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        said, param = "", None
    full = _overflow(said)
    by_form = "validation error" in said[:40] and _known_field(param)
    result = full or (None if by_form else _listed(said)) or _of_field(said, param)
    result.status = status
    if status == 429:  # of a proxy before it
        result.retry_after = 1
    return result


def _overflow(said: str) -> ApiError | None:
    """The prompt does not fit the context, or leaves no room for an answer.

    In OpenAI's words: clients look for them (LiteLLM's `is_error_str_context_window_exceeded`).
    """
    found = _FULL.search(said)
    if found is None and not said.startswith(_FILLED):
        return None
    full = f"{found[1]} tokens: the prompt is longer" if found else "that of the prompt: no answer fits"
    return invalid(f"This model's maximum context length is {full}", code=OVERFLOW_CODE)


def _listed(said: str) -> ApiError | None:
    """A refusal whose form is known."""
    for pattern, told, param in _KNOWN:
        if found := pattern.search(said):
            words = found.groups()
            return invalid(told.format(*words), param=param.format(*words) or None, code=_ENGINE_CODE)
    return None


def _of_field(said: str, param: Any) -> ApiError:
    """Any other: the field, if it is one of ours to name, and what pydantic says it should be."""
    if isinstance(param, str) and (place := _MESSAGE.match(param)):
        field = f"messages[{place[1]}]"
        told = f"{field} is none that the model takes: look at its role and content"
        return invalid(told, param=field, code=_ENGINE_CODE)
    name = _known_field(param) or _known_field(said)
    if name is None:
        return invalid("the engine refused the request", code=_ENGINE_CODE)
    wanted = next((found[1] for words in _WANTED if (found := words.search(said))), "")
    should = f": it {wanted}" if wanted else ""
    return invalid(f"the engine refused {name}{should}", param=name, code=_ENGINE_CODE)


def _known_field(words: Any) -> str | None:
    """The field of a request that `words` begin with (`body.stop[0]`, `top_k must be...`), if it is one."""
    found = _FIELD.match(words) if isinstance(words, str) else None
    return found[1] if found and found[1] in FIELDS else None
