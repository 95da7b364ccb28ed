"""Chat completions over HTTP as every client of ours understands them; without the HTTP.

Which answers count, which are worth another try, what says whose request it is (docs/http.md). Shared
by the harness's own driver (`driver.py`) and by the simulated people (`evals/population/client.py`),
who differ in how they carry bytes.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cursorbench.harness.budget import Usage
from cursorbench.harness.results import printable

_LATER = frozenset({408, 409, 425, 429})  # beside 5xx: nothing was answered, and may be later
_OF_THE_REQUEST = frozenset({400, 413, 414, 422, 431})  # these say what was asked is at fault
CONTEXT_FULL = "context_length_exceeded"
# how engines and proxies say so that have no such code: vLLM, SGLang, llama.cpp, LiteLLM, Anthropic
_FULL = re.compile(
    r"maximum context length|max_model_len|model's context length|context (?:size|window)|prompt is too long"
)
GENERATION_HEADER = "X-Rtrl-Generation-Id"


class RefusedError(Exception):
    """The service refused this request for good: the same request would be refused again.

    Attributes:
        status: HTTP status.
        code: the error's `code`, "" when it has none.
    """

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Completion:
    """One model call, answered. `usage` is None where the service does not count."""

    generation_id: str
    message: dict[str, Any]
    finish_reason: str
    usage: Usage | None
    seconds: float

    @property
    def tokens(self) -> int:
        """Output tokens, 0 where nobody counted them."""
        return self.usage.output if self.usage else 0


@dataclass(frozen=True)
class Attribution:
    """Whose request it is: what links the generations of one episode, those after a summary too.

    Attributes:
        user: a person; "" leaves it to the API key.
        session, episode: names; by default such as nobody has used.
        at: event time in epoch seconds, None for now.
        no_train: serve and count it, write none of its content: for trials of a benchmark.
    """

    user: str = ""
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    episode: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: float | None = None
    no_train: bool = False

    def headers(self) -> dict[str, str]:
        """The headers of docs/http.md."""
        given = {
            "X-Rtrl-User": self.user,
            "X-Rtrl-Session": self.session,
            "X-Rtrl-Episode": self.episode,
            "X-Rtrl-At": "" if self.at is None else f"{self.at:.3f}",
            "X-Rtrl-No-Train": "1" if self.no_train else "",
        }
        return {name: value for name, value in given.items() if value}


def root_of(base_url: str) -> str:
    """The address without the /v1 of its API: clients are given either."""
    return base_url.rstrip("/").removesuffix("/v1")


def first_model(body: Any) -> str:
    """The first model that `GET /v1/models` names. Raises ValueError."""
    try:
        return str(body["data"][0]["id"])
    except (LookupError, TypeError) as error:
        raise ValueError("it names no model") from error


def read(body: Any, headers: Mapping[str, str], seconds: float) -> Completion:
    """A chat completion as it came. Raises ValueError when it is none."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage") or {}
        if not isinstance(message, dict):
            raise TypeError
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        return Completion(
            generation_id=id_of(headers, str(body.get("id") or "")),
            message=message,
            finish_reason=printable(str(choice.get("finish_reason") or "stop")),
            usage=Usage(prompt, output) if isinstance(prompt, int) and isinstance(output, int) else None,
            seconds=seconds,
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("the answer is no chat completion") from error


def id_of(headers: Mapping[str, str], told: str) -> str:
    """The name of an answer: as rtrl's gateway has it recorded, else as its body tells it."""
    return headers.get(GENERATION_HEADER) or printable(told)


def may_be_answered_later(status: int) -> bool:
    """Whether an answer with this status is one of a server, or a proxy before it, that is not itself."""
    return status in _LATER or status >= 500


def is_of_the_request(status: int) -> bool:
    """Whether a refusal with this status is for what was asked, and not for who asked, where or how much."""
    return status in _OF_THE_REQUEST


def refused(status: int, text: str) -> RefusedError:
    """The error of an answer that trying again will not change."""
    full = is_of_the_request(status) and _FULL.search(text)
    return RefusedError(status, CONTEXT_FULL if full else _code(text), f"HTTP {status}: {text[:300]}")


def _code(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["code"] or "")
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
