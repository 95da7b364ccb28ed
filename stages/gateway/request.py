"""A chat or completions request taken apart: what is recorded, what the engine gets.

Every field falls into one of five groups (`request_fields.py`, `docs/http.md`): recorded in `Sampling`;
without influence on the distribution; ours alone (not passed on); refused; and anything else, which is
passed on and recorded by name in `Sampling.unknown`, so that its tokens are not trained on as if they
came from the plain distribution. So are parts of messages that are no text: the record has no pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from cursorbench.harness.call_parser import ToolSet
from stages.gateway.config import DefaultSampling
from stages.gateway.errors import invalid, no_model
from stages.gateway.offered_tools import Compile, Offered, offered
from stages.gateway.request_fields import (
    GRAMMAR,
    GUIDED,
    KNOWN,
    OURS,
    REFUSED,
    Modelled,
    check_fields,
    check_template,
    unseen_parts,
    wrong_call,
)
from stages.records import Sampling

Api = Literal["chat", "completions"]

_ALWAYS_SENT = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)

_FIELDS = 1000  # of a request; the names of those that nobody knows are recorded
_MIN_TEMPERATURE = 0.01  # vLLM raises what lies between 0 and this to it, with no word in the answer


class Request(NamedTuple):
    """A request that can be served.

    Attributes:
        upstream: the engine's request body but for the model's name (`addressed`).
        messages: the conversation; empty for plain completions.
        tools: compiled tools whose calls are to be found in the answer, None for no parsing.
    """

    api: Api
    upstream: bytes
    messages: list[dict[str, Any]]
    sampling: Sampling
    stream: bool
    include_usage: bool
    wants_logprobs: bool
    wants_ids: bool
    tools: ToolSet | None
    tools_digest: str
    tool_count: int

    @property
    def doubtful(self) -> bool:
        """Whether a 500 says nothing of the engine: it has a grammar, images, or fields nobody knows."""
        return bool(self.sampling.grammar or self.sampling.unknown)


def parse_request(
    api: Api,
    body: dict[str, Any],
    *,
    model: str,
    defaults: DefaultSampling,
    cache_salt: str = "",
    drafts: bool = False,
    tools_of: Compile | None = None,
) -> Request:
    """Check `body` and build what the engine gets. Raises ApiError 400 or 404.

    Args:
        drafts: whether the engine drafts tokens: vLLM passes over `min_p` then (v1/sample/logits_processor).
        cache_salt: requests with another one share no cached prefix with this; "" for what all others share.
        tools_of: gives compiled tools by digest and JSON; None compiles what is new, which may take seconds.
    """
    given = _given(body, model)
    modelled = check_fields(given)
    check_template(given)
    for name, value in (("n", modelled.n), ("best_of", modelled.best_of)):
        if value is not None and value > 1:
            message = f"{name} above 1 is not supported: send {value} requests"
            raise invalid(message, param=name, code="unsupported_parameter")
    messages = _messages(given) if api == "chat" else []
    if api == "completions":
        given["prompt"] = _prompt(given.get("prompt"))
    tools = offered(given, tools_of) if api == "chat" else Offered()
    unknown = {*(given.keys() - KNOWN), *unseen_parts(messages)}
    sampling = _sampling(given, modelled, defaults, tools, drafts=drafts, unknown=unknown)
    options = given.get("stream_options")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    return Request(
        api=api,
        upstream=_upstream(api, given, modelled, sampling, tools, cache_salt),
        messages=messages,
        sampling=sampling,
        stream=bool(modelled.stream),
        include_usage=include_usage,
        wants_logprobs=modelled.logprobs is not None and modelled.logprobs is not False,  # 0 of completions
        wants_ids=bool(modelled.return_token_ids),
        tools=tools.compiled if tools.callable else None,
        tools_digest=tools.digest,
        tool_count=tools.total,
    )


def _given(body: dict[str, Any], model: str) -> dict[str, Any]:
    """The fields that ask for something. Raises ApiError 400 or 404."""
    if len(body) > _FIELDS:
        raise invalid(f"a request has at most {_FIELDS} fields")
    given = {name: value for name, value in body.items() if _asks(name, value)}
    asked = given.get("model")
    if asked != model:
        raise no_model(asked, model)
    for name in sorted(REFUSED & given.keys()):
        instead = ": use structured_outputs or response_format" if name in GUIDED else ""
        raise invalid(f"{name} is not supported{instead}", param=name, code="unsupported_parameter")
    return given


def _asks(name: str, value: Any) -> bool:
    """Whether a field asks for something. Engines refuse an empty list of tools, and clients mean none."""
    empty = (name, value) in (("tools", []), ("logit_bias", {}))
    return value is not None and not empty and not (name in REFUSED and value is False)


def _sampling(
    given: Mapping[str, Any],
    modelled: Modelled,
    defaults: DefaultSampling,
    tools: Offered,
    *,
    drafts: bool,
    unknown: set[str],
) -> Sampling:
    def either(asked: Any, default: Any) -> Any:
        return default if asked is None else asked

    grammar = {name: given[name] for name in GRAMMAR & given.keys()}
    if grammar.get("response_format") == {"type": "text"}:
        del grammar["response_format"]
    if tools.forced is not None:
        if tools.text is None:  # an answer of calls alone
            grammar.pop("response_format", None)
        grammar["forced_calls"] = msgspec.to_builtins(tools.forced)
    stop = modelled.stop
    temperature = either(modelled.temperature, defaults.temperature)
    min_p = either(modelled.min_p, defaults.min_p)
    return Sampling(
        temperature=max(temperature, _MIN_TEMPERATURE) if temperature else 0.0,
        top_p=either(modelled.top_p, defaults.top_p),
        top_k=max(0, either(modelled.top_k, defaults.top_k)),
        min_p=min_p,
        presence_penalty=either(modelled.presence_penalty, defaults.presence_penalty),
        frequency_penalty=either(modelled.frequency_penalty, defaults.frequency_penalty),
        repetition_penalty=either(modelled.repetition_penalty, defaults.repetition_penalty),
        max_tokens=either(modelled.max_completion_tokens, modelled.max_tokens),
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        grammar=orjson.dumps(grammar, option=orjson.OPT_SORT_KEYS).decode() if grammar else "",
        unknown=(*sorted(unknown), *(("min_p",) if drafts and min_p else ())),
    )


def _upstream(
    api: Api,
    given: Mapping[str, Any],
    modelled: Modelled,
    sampling: Sampling,
    tools: Offered,
    cache_salt: str,
) -> bytes:
    """The engine's body: sampling parameters in full, exact tokens asked for, nothing of ours."""
    body = {name: value for name, value in given.items() if name not in OURS and name != "model"}
    for name in ("n", "best_of", "max_completion_tokens"):
        body.pop(name, None)
    if cache_salt:
        body["cache_salt"] = cache_salt
    for name in _ALWAYS_SENT:
        body[name] = getattr(sampling, name)
    if sampling.max_tokens is not None:
        body["max_tokens"] = sampling.max_tokens
    body["return_token_ids"] = True
    if api == "chat":
        body["logprobs"] = True
        if given.get("tools"):
            body["tool_choice"] = "none"  # rendered into the prompt, parsed by the gateway
        if tools.tag:
            body.pop("response_format", None)
            body["structured_outputs"] = {"structural_tag": tools.tag}
    else:
        body["logprobs"] = int(modelled.logprobs or 0)
    if modelled.stream:
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def addressed(upstream: bytes, model: str, *, shown: bool = False) -> bytes:
    """The engine's request body, for the `model` that it is to be answered by: known when it is sent.

    `shown`: the text is to have special tokens in it, unless the client says otherwise, who comes last.
    """
    told = b',"skip_special_tokens":false,' if shown else b","
    return b'{"model":' + orjson.dumps(model) + told + upstream[1:]


def _messages(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid("every message must be an object with a role", param=f"messages[{index}]")
        content = message.get("content")
        parts = content if isinstance(content, list) else ()
        wrong = content is not None and not isinstance(content, str | list)
        if wrong or not all(isinstance(part, dict | str) for part in parts):
            raise invalid("content must be a string or a list of parts", param=f"messages[{index}].content")
        calls = message.get("tool_calls")
        if calls is not None and not (
            isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
        ):
            raise invalid("tool_calls must be a list of objects", param=f"messages[{index}].tool_calls")
        functions = [call.get("function") for call in calls or ()]
        for one in functions:
            if isinstance(one, dict) and (fault := wrong_call(one)):
                raise invalid(fault, param=f"messages[{index}].tool_calls")
    return messages


def _prompt(prompt: Any) -> str | list[int]:
    """The one prompt; also of a list of one, as LangChain sends it."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        (prompt,) = prompt
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and set(map(type, prompt)) == {int}:
        return prompt
    raise invalid("prompt must be one string or one list of token ids, and not empty", param="prompt")
