"""Recorded requests asked again, of the candidate's engine and of a live one. Only counts are kept.

The two are asked the same request one right after the other, by turns the one or the other first: whatever
else the machine does, it does to both, so their times can be compared. The prompt goes in as the token ids
that were recorded, so chat templates and tool results are what they were; sampling parameters too. What the
live engine has in its prefix cache does not count: prompts are salted. The engines are asked directly, past
the gateway: nothing is captured, so nothing can be collected. Not for: which requests (`recorded.py`), what
the answers mean (`compare.py`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import msgspec

from cursorbench.harness import call_parser
from cursorbench.harness.forced_calls import ForcedCalls, schema_of_text, structural_tag
from cursorbench.harness.thoughts import apart
from stages.model_forms import PLAIN, ModelForms
from stages.records import Sampling
from stages.shadow.compare import Answered
from stages.shadow.recorded import Recorded
from stages.target.endpoint import EngineAt
from stages.trust import trusted

_PATH = "/v1/completions"
_GONE = ("unreachable", "broke_off")
Tools = Callable[[Recorded], "call_parser.ToolSet | None"]
Pair = tuple[Answered, Answered]  # of the live engine, of the candidate's


def replay(
    requests: Sequence[Recorded],
    *,
    live: EngineAt,
    candidate: EngineAt,
    model: str,
    context: int,
    side_by_side: int,
    timeout_s: float,
    tools: Tools,
    forms: ModelForms = PLAIN,
    asked: Callable[[], None] = lambda: None,
    gone: Callable[[], None] = lambda: None,
) -> list[Pair]:
    """What the two engines answer, in the order of `requests`.

    Args:
        model: the name that both serve their model under, where they have none of their own.
        context: most tokens of prompt and answer together.
        side_by_side: requests that are asked at a time, each of one engine.
        tools: the tools of a request, where they are known; None checks only whether calls parse.
        forms: how the model writes thoughts and calls.
        asked: called after each pair.
        gone: called before that when an engine was not there to answer; what it raises ends the replay.
    """
    told: dict[str, Any] = {"cache_salt": secrets.token_hex(16), "skip_special_tokens": not forms.hidden}
    with (
        _client(live, side_by_side, timeout_s) as ours,
        _client(candidate, side_by_side, timeout_s) as theirs,
        ThreadPoolExecutor(side_by_side) as pool,
    ):

        def pair(numbered: tuple[int, Recorded]) -> Pair:
            number, request = numbered
            offered = tools(request)
            begun = not request.sampling.grammar and forms.begins_within(request.prompt)
            read = partial(_read, tools=offered, forms=forms, begun=begun)
            sides = [(ours, live.model or model), (theirs, candidate.model or model)]
            found = {
                client: _ask(client, body(request, name, context, offered) | told, read)
                for client, name in (sides if number % 2 == 0 else reversed(sides))
            }
            if any(each.error in _GONE for each in found.values()):
                gone()
            asked()
            return found[ours], found[theirs]

        return list(pool.map(pair, enumerate(requests)))


def _client(engine: EngineAt, side_by_side: int, timeout_s: float) -> httpx.Client:
    headers = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
    limits = httpx.Limits(max_connections=side_by_side)
    return httpx.Client(
        base_url=engine.url,
        headers=headers,
        timeout=timeout_s,
        limits=limits,
        trust_env=False,
        verify=trusted(engine.url),
    )


def _ask(
    client: httpx.Client, wanted: Mapping[str, Any], read: Callable[[str], tuple[int, bool]]
) -> Answered:
    began = time.perf_counter()
    try:
        answer = client.post(_PATH, json=wanted)
    except httpx.TimeoutException:
        return Answered(error="timeout")
    except httpx.ConnectError:
        return Answered(error=_GONE[0])
    except httpx.HTTPError:
        return Answered(error=_GONE[1])
    ms = (time.perf_counter() - began) * 1000
    if answer.status_code != 200:
        return Answered(error=f"status_{answer.status_code}")
    try:
        value = answer.json()
        text, tokens = str(value["choices"][0]["text"]), int(value["usage"]["completion_tokens"])
    except (json.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
        return Answered(error="unreadable")
    broken_calls, empty = read(text)
    return Answered(tokens=tokens, ms=ms, broken_calls=broken_calls, empty=empty)


def _read(
    text: str, *, tools: call_parser.ToolSet | None, forms: ModelForms, begun: bool
) -> tuple[int, bool]:
    """How many calls of an answer are broken, and whether it says nothing."""
    said = said_of(text, begun=begun)
    return broken(said, tools=tools, forms=forms), not said.strip()


def said_of(text: str, *, begun: bool) -> str:
    """What an answer says: a user has nothing of its thoughts. `begun`: its prompt ended within one."""
    return apart(text, begun=begun).said


def broken(said: str, *, tools: call_parser.ToolSet | None, forms: ModelForms = PLAIN) -> int:
    """Calls in what an answer says that do not parse or, where its tools are known, that no tool takes."""
    calls = call_parser.parse(said, tools.parameters if tools is not None else {}, forms.blocks).calls
    return sum(bool(call.error or (tools is not None and tools.check(call))) for call in calls)


def body(
    request: Recorded, model: str, context: int, tools: call_parser.ToolSet | None = None
) -> dict[str, Any]:
    """The engine's request: the tokens, and how they were sampled."""
    sampling: Sampling = request.sampling
    room = max(1, context - len(request.prompt))
    asked: dict[str, Any] = json.loads(sampling.grammar) if sampling.grammar else {}
    forced = msgspec.convert(asked.pop("forced_calls", None), ForcedCalls | None)
    text = schema_of_text(asked.get("response_format"))
    if forced is not None or text is not None:
        asked.pop("response_format", None)
        tag = structural_tag(forced, {} if tools is None else tools.parameters, text)
        asked["structured_outputs"] = {"structural_tag": tag}
    return {
        **asked,
        "model": model,
        "prompt": request.prompt,
        "max_tokens": min(sampling.max_tokens or room, room),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop": list(sampling.stop),
    }
