"""Runs an episode against any OpenAI-compatible base URL: one request after the other, until it stops.

Only transport is tried again: a connection that fails, an answer that says "not now". What the model
wrote is never asked for twice. Not for many episodes at a time: that is the runner's, in threads or
processes of its own.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from cursorbench.errors import DependencyDownError, UsageError
from cursorbench.harness import completion
from cursorbench.harness.chat import ChatRequest
from cursorbench.harness.completion import Attribution, Completion, RefusedError
from cursorbench.harness.episode import Episode
from cursorbench.harness.loop import AgentLoop

FIRST_WAIT_S = 0.1
LAST_WAIT_S = 5.0
WEIGHTS_S = 20.0


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served.

    Attributes:
        base_url: with or without the /v1 of its API.
        key: API key; "" for none.
        model: its name; "" for the first one served.
        answer_s: seconds one answer may take.
        patience_s: how long the service may be away before an episode is given up, from the first failure.
    """

    base_url: str
    key: str = ""
    model: str = ""
    answer_s: float = 600.0
    patience_s: float = 60.0


class _SlowError(DependencyDownError):
    """A request that was taken and not answered in time."""


class Driver:
    """An open connection to one endpoint, for any number of threads. Use as a context manager.

    Args:
        endpoint: where.
        transport: of the HTTP client; for tests.
    """

    def __init__(self, endpoint: Endpoint, transport: httpx.BaseTransport | None = None) -> None:
        self.endpoint = endpoint
        headers = {"Content-Type": "application/json"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        self._root = completion.root_of(endpoint.base_url)
        self._client = httpx.Client(headers=headers, transport=transport, trust_env=False)
        self._model = endpoint.model
        self._failing: set[int] = set()  # threads

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def fails(self) -> bool:
        """Whether a request is under way that got no answer, and is sent again."""
        return bool(self._failing)

    @property
    def model(self) -> str:
        """The model's name. Raises UsageError for what is no such service, DependencyDownError."""
        if not self._model:
            try:
                found = self._send("GET", "/v1/models", None, {}, math.inf)
                self._model = completion.first_model(_json(found))
            except (RefusedError, ValueError) as error:
                raise UsageError(
                    f"{self._root}/v1/models names no model: {error}", hint="give the model a name"
                ) from error
        return self._model

    def weights(self) -> str:
        """What rtrl's gateway calls the weights it serves now; "" of another service, or one that is away.

        By an answer of one token: only there is it told which weights answered.
        """
        plain = {"messages": [{"role": "user", "content": "."}], "max_tokens": 1}
        try:
            listed = self._client.get(f"{self._root}/v1/models", timeout=WEIGHTS_S).json()["data"]
            if listed[0]["owned_by"] != "rtrl":
                return ""
            body = {"model": self._model or listed[0]["id"], **plain}
            headers = Attribution(no_train=True).headers()
            answer = self._client.post(
                f"{self._root}/v1/chat/completions", json=body, headers=headers, timeout=WEIGHTS_S
            )
            return str(answer.json()["system_fingerprint"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
            return ""

    def run(self, loop: AgentLoop, attribution: Attribution | None = None) -> Episode:
        """Carry an episode to its end.

        A service that stays away ends it as aborted, a conversation too long for the model as that.
        Raises UsageError when the key is refused, or any request with these settings.
        """
        who = attribution or Attribution()
        while (request := loop.next_request()) is not None:
            try:
                found = self.complete(request, who, loop.left_s)
            except RefusedError as refused:
                if not loop.turns and completion.is_of_the_request(refused.status):
                    self._require_some_taken(request, who.user, refused)
                if refused.code == completion.CONTEXT_FULL:
                    loop.overflow()
                else:
                    loop.abort(str(refused))
            except DependencyDownError as error:
                # a model that was still writing when the episode's time was over is no infrastructure
                if not isinstance(error, _SlowError) or loop.left_s > 0:
                    loop.abort(error.message)
            else:
                loop.receive(
                    found.message,
                    found.finish_reason,
                    usage=found.usage,
                    generation_id=found.generation_id,
                    model_s=found.seconds,
                )
        return loop.episode()

    def complete(
        self, request: ChatRequest, attribution: Attribution, left_s: float = math.inf
    ) -> Completion:
        """One chat completion. Raises RefusedError, UsageError (key), DependencyDownError."""
        started = time.perf_counter()
        found = self.post(request.body(self.model), attribution, left_s)
        try:
            return completion.read(_json(found), found.headers, time.perf_counter() - started)
        except ValueError as error:
            raise DependencyDownError(f"{self._root}: {error}", hint="is it an OpenAI API?") from error

    def _require_some_taken(self, request: ChatRequest, user: str, refused: RefusedError) -> None:
        """Raise UsageError where a message of one character is refused like an episode's first one."""
        try:
            self.complete(request.plain(), Attribution(user, no_train=True))
        except RefusedError as error:
            raise UsageError(
                f"the engine refuses the first request: {refused}", hint="--model, --max-tokens"
            ) from error
        except DependencyDownError:
            pass  # nothing is known of others; the refusal stands

    def post(
        self,
        body: Mapping[str, Any],
        attribution: Attribution,
        left_s: float = math.inf,
        path: str = "/v1/chat/completions",
    ) -> httpx.Response:
        """The answer to a body as an agent wrote it, streams whole. Raises as `complete`."""
        # ASCII: what a model wrote may hold half a surrogate pair
        content = json.dumps(body).encode()
        return self._send("POST", path, content, attribution.headers(), left_s)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], left_s: float
    ) -> httpx.Response:
        """Send until answered. Raises RefusedError, UsageError (key), DependencyDownError (patience)."""
        try:
            return self._until_answered(method, path, body, headers, left_s)
        finally:
            self._failing.discard(threading.get_ident())

    def _until_answered(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], left_s: float
    ) -> httpx.Response:
        deadline, away = time.monotonic() + left_s, math.inf
        wait = FIRST_WAIT_S
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]  # UTF-8 names
        while True:
            timeout = httpx.Timeout(max(0.001, min(self.endpoint.answer_s, left_s)), connect=10.0)
            try:
                answer = self._client.request(
                    method, self._root + path, content=body, headers=encoded, timeout=timeout
                )
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise UsageError(
                    f"{self._root!r} is no address", hint="for example http://127.0.0.1:8100"
                ) from error
            except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
                raise _SlowError(f"{self._root}{path} takes too long to answer") from error
            except httpx.TransportError as error:
                reason, asked = str(error) or type(error).__name__, 0.0
            else:
                if answer.status_code == httpx.codes.OK:
                    return answer
                reason, asked = _try_again(answer)
            self._failing.add(threading.get_ident())
            wait = min(LAST_WAIT_S, max(wait * 2, asked))
            now = time.monotonic()
            away = min(away, now)  # an answer that broke off may have been under way for long
            if now + wait > min(deadline, away + self.endpoint.patience_s):
                raise DependencyDownError(f"{self._root}{path} does not answer: {reason}")
            time.sleep(wait)


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _try_again(answer: httpx.Response) -> tuple[str, float]:
    """Why it was not answered, and the seconds it asks to wait. Raises RefusedError, UsageError (key)."""
    refused = completion.refused(answer.status_code, answer.text)
    if answer.status_code in (401, 403):
        raise UsageError(f"the service refuses the key: {refused}", hint="keys/default.key of the workspace")
    if not completion.may_be_answered_later(answer.status_code):
        raise refused
    asked = answer.headers.get("Retry-After", "")
    return str(refused), float(asked) if asked.isdecimal() and len(asked) < 4 else 0.0
