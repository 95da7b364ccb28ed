"""Votes of a model behind any OpenAI-compatible endpoint: asked several times, kept, never relied upon.

A question is messages; an answer is read by the caller into a vote. The votes of a question that got all
of them are kept under the digest of everything that was asked, so the same again needs no network. What
the endpoint does not answer in time has a reason instead: nothing here raises for what it does. Not for:
what is asked, and what follows from a majority. Texts have to come redacted; what is kept are votes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import httpx
import msgspec

from cursorbench.files import write_whole

V = TypeVar("V")
Messages = Sequence[Mapping[str, str]]

_BACKOFF_S = 0.2
_LONGEST_WAIT_S = 60.0  # that an endpoint may ask for (Retry-After)
_GIVE_UP = 8  # questions in a row without an answer; then the endpoint is taken for down
_LARGEST = 4_000_000  # bytes of a reply; who sends more sends no vote


class Endpoint(Protocol):
    """Who is asked, and how; `stages.distill.config.JudgeConfig` for one.

    Attributes:
        url: of the endpoint up to and with "/v1".
        votes: times each question is asked.
        timeout_s: seconds one reply may take; `deadline_s`: seconds for all questions.
        retries: further tries of a vote after a time-out or an overload.
        concurrency: questions asked at once.
    """

    @property
    def url(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def votes(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def deadline_s(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def concurrency(self) -> int: ...


@dataclass
class Said(Generic[V]):
    """What came of the questions, by name: votes, or why there is no majority of them.

    Attributes:
        cached: names whose votes were kept from another time.
        reasons: `timeout`, `unreachable`, `overloaded`, `refused`, `unclear`, `down`, `deadline`.
        failed: votes that were not to be had.
    """

    votes: dict[str, list[V]] = field(default_factory=dict)
    cached: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    failed: int = 0


class _NoVoteError(Exception):
    """One vote was not to be had; the message is the reason as one word."""


def digest(messages: Messages, endpoint: Endpoint) -> str:
    """sha256 over what is asked, of whom, and how; the endpoint's address does not matter."""
    asked = {
        "messages": messages,
        "model": endpoint.model,
        "votes": endpoint.votes,
        "temperature": endpoint.temperature,
        "max_tokens": endpoint.max_tokens,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def ask(
    questions: Mapping[str, Messages],
    endpoint: Endpoint,
    read: Callable[[str], V | None],
    kind: type[V],
    cache: Path,
    key: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
) -> Said[V]:
    """Votes on every question, from the cache where it has them.

    Args:
        questions: messages by `digest`.
        read: the vote in a reply; None when it has none.
        kind: the type of a vote, plain data.
        cache: folder of kept votes; made when needed.
        key: sent as bearer token, when not empty.
        transport: how the endpoint is reached, for tests.
    """
    found: Said[V] = Said()
    open_: dict[str, Messages] = {}
    for name, messages in questions.items():
        votes = _kept(cache, name, endpoint.votes, kind)
        if votes is None:
            open_[name] = messages
        else:
            found.cached.add(name)
            found.votes[name] = votes
    if open_:
        asyncio.run(_Asking(endpoint, read, cache, found, key, transport).all(open_))
    return found


@dataclass
class _Asking(Generic[V]):
    """One run's questions to the endpoint."""

    endpoint: Endpoint
    read: Callable[[str], V | None]
    cache: Path
    found: Said[V]
    key: str
    transport: httpx.AsyncBaseTransport | None
    unanswered: int = 0  # questions in a row

    async def all(self, open_: Mapping[str, Messages]) -> None:
        """Ask until all is answered, the deadline has passed, or the endpoint is down."""
        waiting = iter(open_.items())
        key = self.key.strip().encode()  # as bytes: what is no ASCII is for the endpoint to refuse
        headers = {b"Authorization": b"Bearer " + key} if key else {}
        headers[b"Accept-Encoding"] = b"identity"

        async def worker(client: httpx.AsyncClient) -> None:
            for name, messages in waiting:
                reason = "down" if self.unanswered >= _GIVE_UP else await self._one(client, name, messages)
                if reason:
                    self.found.reasons[name] = reason

        async with httpx.AsyncClient(
            base_url=self.endpoint.url,
            headers=headers,
            timeout=self.endpoint.timeout_s,
            transport=self.transport,
        ) as client:
            n = min(self.endpoint.concurrency, len(open_))
            workers = [asyncio.create_task(worker(client)) for _ in range(n)]
            _, late = await asyncio.wait(workers, timeout=self.endpoint.deadline_s)
            for task in late:
                task.cancel()
            ended = await asyncio.gather(*workers, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        for name in open_.keys() - self.found.votes.keys() - self.found.reasons.keys():
            self.found.reasons[name] = "deadline"

    async def _one(self, client: httpx.AsyncClient, name: str, messages: Messages) -> str:
        """Votes on one question; "" or why there is no majority."""
        votes: list[V] = []
        why = ""
        needed = self.endpoint.votes // 2 + 1
        for seed in range(self.endpoint.votes):
            try:
                votes.append(await self._vote(client, messages, seed))
            except _NoVoteError as error:
                why = str(error)
                self.found.failed += 1
                if len(votes) + self.endpoint.votes - seed - 1 < needed or why == "refused":
                    break
        if len(votes) < needed:
            self.unanswered += why != "unclear"
            return why
        self.unanswered = 0
        if len(votes) == self.endpoint.votes:
            _keep(self.cache, name, votes)
        self.found.votes[name] = votes
        return ""

    async def _vote(self, client: httpx.AsyncClient, messages: Messages, seed: int) -> V:
        body = {
            "model": self.endpoint.model,
            "messages": messages,
            "temperature": self.endpoint.temperature,
            "max_tokens": self.endpoint.max_tokens,
            "seed": seed,
        }
        why, wait_s = "unreachable", 0.0
        for attempt in range(self.endpoint.retries + 1):
            if attempt:
                await asyncio.sleep(max(wait_s, _BACKOFF_S * 2 ** (attempt - 1)))
            try:
                status, wait_s, reply = await self._reply(client, body)
            except (TimeoutError, httpx.TimeoutException):
                why = "timeout"
                continue
            except httpx.HTTPError:
                why = "unreachable"
                continue
            if status == 429 or status >= 500:
                why = "overloaded"
                continue
            if status != 200:
                raise _NoVoteError("refused")
            said = self.read(_content(reply))
            if said is None:
                raise _NoVoteError("unclear")
            return said
        raise _NoVoteError(why)

    async def _reply(self, client: httpx.AsyncClient, body: Mapping[str, Any]) -> tuple[int, float, bytes]:
        """(status, seconds to wait before another try, body): whole within `timeout_s`, which httpx counts
        anew with each byte that comes."""
        whole = b""
        async with (
            asyncio.timeout(self.endpoint.timeout_s),
            client.stream("POST", "chat/completions", json=body) as reply,
        ):
            if reply.headers.get("content-encoding", "identity") != "identity":
                raise _NoVoteError("unclear")  # nobody asked for it: some kilobytes can become gigabytes
            async for part in reply.aiter_bytes():
                whole += part
                if len(whole) > _LARGEST:
                    raise _NoVoteError("unclear")
        told = reply.headers.get("retry-after", "")
        return reply.status_code, min(float(told), _LONGEST_WAIT_S) if told.isdecimal() else 0.0, whole


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def _content(body: bytes) -> str:
    """The text of a chat completion; "" of one that was cut, for it had not come to its verdict: what it
    names till then is what it ponders. Raises _NoVoteError when the body is none."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
    except (ValueError, RecursionError) as error:
        raise _NoVoteError("unclear") from error
    first = completion.choices[0] if completion.choices else None
    return "" if first is None or first.finish_reason == "length" else first.message.content or ""


def _path(cache: Path, name: str) -> Path:
    return cache / name[:2] / f"{name}.json"


def _kept(cache: Path, name: str, votes: int, kind: type[V]) -> list[V] | None:
    """Kept votes, from now on the youngest of all; None when there are none, or the file is damaged."""
    path = _path(cache, name)
    try:
        found: list[V] = msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except (FileNotFoundError, ValueError):
        return None
    with contextlib.suppress(OSError):  # somebody else's file, or disk
        os.utime(path)
    return found if len(found) == votes else None


def _keep(cache: Path, name: str, votes: Sequence[object]) -> None:
    path = _path(cache, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(votes), durable=False)
