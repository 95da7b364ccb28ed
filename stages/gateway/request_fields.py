"""The fields of chat and completions requests: which group each is in, and what the known ones may be.

The groups stand in `docs/http.md`, and a test compares them. What engines look at themselves is left to them,
but for what they answer with 500.

Not for: what becomes of the fields (`request.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from stages.gateway.errors import invalid

GRAMMAR = {"response_format", "structured_outputs"}
HARMLESS = {
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "include_stop_str_in_output",
    "logprobs",
    "messages",
    "model",
    "priority",
    "prompt",
    "reasoning_effort",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "stream",
    "tools",
    "top_logprobs",
    "truncate_prompt_tokens",
}
OURS = {
    "metadata",
    "parallel_tool_calls",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "return_token_ids",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "stream_options",
    "tool_choice",
    "user",
    "verbosity",
    "web_search_options",
}
# vLLM's names of old: engines since 0.11 pass over them, and the answer would be bound by nothing
GUIDED = {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag"}
REFUSED = GUIDED | {
    "echo",
    "functions",
    "function_call",
    "kv_transfer_params",
    "logits_processors",
    "modalities",
    "audio",
    "prompt_embeds",
    "prompt_logprobs",
    "suffix",
    "use_beam_search",
}

# kinds of a message's parts, as vLLM reads them: text, and what no token id says
_TEXTS = {"input_text", "output_text", "refusal", "text", "thinking", "tool_reference"}
_UNSEEN = """
    audio_embeds audio_url file image_embeds image_pil image_url input_audio input_image prompt_embeds
    video_embeds video_url
"""
_UNSEEN_KINDS = frozenset(_UNSEEN.split())
_OTHER_PART = "content_part"  # of a kind that is none of these: clients make up no names

# of transformers' apply_chat_template: vLLM lets a request set them, and pads a prompt before it is measured
_OF_RENDERING = {
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "max_length",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
}
_ARGUMENT_DEPTH = 500  # levels of a call's arguments; an engine stumbles over a thousand
_NAME = 1000  # characters of a function's; an engine's log would hold all of it
_BRACKETS = b"[]{}"
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")  # as int8: a level deeper, and one back
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))

_Number = Annotated[float, msgspec.Meta(ge=-2, le=2)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Stop = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # an int32 to the engine


class Modelled(msgspec.Struct):
    """The fields of `Sampling` as clients send them, with their ranges."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: _Share | None = None
    presence_penalty: _Number | None = None
    frequency_penalty: _Number | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: _Stop | list[_Stop] | None = None
    n: Count | None = None
    best_of: Count | None = None
    stream: bool | None = None
    logprobs: bool | Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_token_ids: bool | None = None


class _Checked(Modelled):
    """And fields that are only passed on, of a type or range that engines stumble over."""

    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None  # OpenAI's limit, and vLLM's own
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None  # anything else is a 500 of vLLM 0.32
    tools: list[Any] | None = None


MODELLED = frozenset(Modelled.__struct_fields__)
_CHECKED = frozenset(_Checked.__struct_fields__)
KNOWN = MODELLED | HARMLESS | GRAMMAR | OURS
_OF_ENGINES = """
    allowed_token_ids bad_words cache_salt chat_template detokenize ignore_eos length_penalty logit_bias
    logprob_token_ids min_tokens mm_processor_kwargs repetition_detection return_tokens_as_token_ids
    stream_interval thinking_token_budget vllm_xargs watermarking
"""
FIELDS = KNOWN | frozenset(_OF_ENGINES.split())  # names that no client has made up


def check_template(given: Mapping[str, Any]) -> None:
    """That a request gives the chat template nothing but variables of its own. Raises ApiError 400."""
    asked = given.get("chat_template_kwargs")
    for name in sorted(_OF_RENDERING & asked.keys()) if isinstance(asked, dict) else ():
        message = f"chat_template_kwargs has variables of the template; {name} is none"
        raise invalid(message, param="chat_template_kwargs", code="unsupported_parameter")


def unseen_parts(messages: Any) -> set[str]:
    """Kinds of parts that a model sees otherwise than as tokens (images, sounds), by their names."""
    said = (message.get("content") for message in messages)
    parts = (part for one in said if isinstance(one, list) for part in one if isinstance(part, dict))
    return {name for part in parts if (name := _unseen(part))}


def _unseen(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind is None:  # vLLM goes by the part's fields then
        return min(_UNSEEN_KINDS & part.keys(), default="")
    if isinstance(kind, str) and kind in _TEXTS:
        return ""
    return kind if isinstance(kind, str) and kind in _UNSEEN_KINDS else _OTHER_PART


def wrong_call(function: Mapping[str, Any]) -> str:
    """What of a call in the conversation no engine is to be given; "" for nothing."""
    name = function.get("name")
    if isinstance(name, str) and len(name) > _NAME:
        return f"a function's name has at most {_NAME} characters"
    return "arguments are nested too deeply" if _is_too_deep(function.get("arguments")) else ""


def _is_too_deep(arguments: Any) -> bool:
    """Whether a call's arguments, JSON in a string that engines read, have more levels than they can."""
    if not isinstance(arguments, str) or arguments.count("[") + arguments.count("{") <= _ARGUMENT_DEPTH:
        return False
    plain = arguments.encode().replace(b"\\\\", b"").replace(b'\\"', b"")  # each quote left bounds a string
    outside = b"".join(plain.split(b'"')[::2])
    steps = np.frombuffer(outside.translate(_STEPS, _NO_BRACKETS), np.int8)
    return int(steps.cumsum(dtype=np.int64).max(initial=0)) > _ARGUMENT_DEPTH


def check_fields(given: Mapping[str, Any]) -> Modelled:
    """The known fields of a request, in their ranges. Raises ApiError 400."""
    try:
        return msgspec.convert({name: given[name] for name in _CHECKED & given.keys()}, _Checked)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        param = where.strip("`$.").partition("[")[0] or None
        raise invalid(f"{param}: {what[:1].lower()}{what[1:]}", param=param) from None
