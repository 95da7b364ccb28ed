"""Recorded requests asked again of an engine that no user is answered by. Nothing of it is kept but counts.

The prompt goes in as the token ids that were recorded, so chat templates and tool results are what they
were; sampling parameters too. The engine is asked directly, past the gateway: nothing is captured, so
nothing can be collected. Not for: which requests (`recorded.py`), what the answers mean (`compare.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx

from cursorbench.harness import hermes
from stages.records import Sampling
from stages.shadow.compare import Answered
from stages.shadow.recorded import Recorded

_PATH = "/v1/completions"
_GONE = ("unreachable", "broke_off")
Tools = Callable[[Recorded], "hermes.ToolSet | None"]


def replay(
    requests: Sequence[Recorded],
    *,
    url: str,
    key: str,
    model: str,
    context: int,
    side_by_side: int,
    timeout_s: float,
    tools: Tools,
    asked: Callable[[], None] = lambda: None,
) -> list[Answered]:
    """What the engine at `url` answers, in the order of `requests`.

    Args:
        context: most tokens of prompt and answer together.
        tools: the tools of a request, where they are known; None checks only whether calls parse.
        asked: called after each answer.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=side_by_side)
    with (
        httpx.Client(base_url=url, headers=headers, timeout=timeout_s, limits=limits) as client,
        ThreadPoolExecutor(side_by_side) as pool,
    ):

        def ask(request: Recorded) -> Answered:
            found = _ask(client, request, model, context, partial(broken, tools=tools(request)))
            asked()
            return found

        return list(pool.map(ask, requests))


def _ask(
    client: httpx.Client, request: Recorded, model: str, context: int, calls: Callable[[str], int]
) -> Answered:
    began = time.perf_counter()
    try:
        answer = client.post(_PATH, json=body(request, model, context))
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
    return Answered(tokens=tokens, ms=ms, broken_calls=calls(text), empty=not text.strip())


def recorded_answer(request: Recorded, tools: hermes.ToolSet | None) -> Answered:
    """What the live checkpoint answered, measured as the candidate's answers are."""
    return Answered(
        tokens=request.output_tokens,
        ms=request.ms,
        broken_calls=broken(request.answer, tools=tools),
        empty=not request.answer.strip(),
    )


def broken(text: str, *, tools: hermes.ToolSet | None) -> int:
    """Calls in an answer that do not parse or, where its tools are known, that no tool takes."""
    return sum(
        bool(call.error or (tools is not None and tools.check(call))) for call in hermes.parse(text).calls
    )


def body(request: Recorded, model: str, context: int) -> dict[str, Any]:
    """The engine's request: the tokens, and how they were sampled."""
    sampling: Sampling = request.sampling
    room = max(1, context - len(request.prompt))
    asked: Mapping[str, Any] = json.loads(sampling.grammar) if sampling.grammar else {}
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
