"""What an endpoint may answer in place of a vote; nothing of it ends a run."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from cursorbench import votes
from cursorbench.graders.rubric import Rubric
from cursorbench.quoting import quoted

ENDPOINT = Rubric("http://judge/v1", "m", votes=1, retries=0, timeout_s=0.1, deadline_s=20.0)


def asked(answer: Any, cache: Path, key: str = "", endpoint: Rubric = ENDPOINT) -> votes.Said[str]:
    """One question to an endpoint that answers so."""
    transport = httpx.MockTransport(answer)
    return votes.ask({"q": [{"role": "user", "content": "?"}]}, endpoint, said, str, cache, key, transport)


def said(text: str) -> str | None:
    return text or None


def completion(text: str, finish_reason: str = "stop") -> httpx.Response:
    choice = {"message": {"content": text}, "finish_reason": finish_reason}
    return httpx.Response(200, json={"choices": [choice]})


async def dripping() -> AsyncIterator[bytes]:
    """A byte well before each of httpx' time-outs."""
    for _ in range(100):
        await asyncio.sleep(0.02)
        yield b" "


async def flooding() -> AsyncIterator[bytes]:
    for _ in range(10):
        yield b" " * 1_000_000
    yield json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda: httpx.Response(200, content=dripping()), "timeout"),
        (lambda: httpx.Response(200, content=flooding()), "unclear"),
        (lambda: httpx.Response(200, content=b'{"x":' + b"[" * 100_000), "unclear"),
    ],
)
def test_a_reply_without_end_is_no_vote(tmp_path: Path, reply: Any, reason: str) -> None:
    found = asked(lambda request: reply(), tmp_path)
    assert found.reasons == {"q": reason}


def test_a_packed_reply_is_no_vote_and_is_not_unpacked(tmp_path: Path) -> None:
    """Seven kilobytes, packed twice, took eight gigabytes before the limit of a reply was looked at."""
    packed = gzip.compress(json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode())
    wanted = []

    def answer(request: httpx.Request) -> httpx.Response:
        async def body() -> AsyncIterator[bytes]:
            yield packed

        wanted.append(request.headers["accept-encoding"])
        return httpx.Response(200, content=body(), headers={"content-encoding": "gzip"})

    assert asked(answer, tmp_path).reasons == {"q": "unclear"}
    assert wanted == ["identity"]


def test_a_key_is_sent_as_it_is_but_for_blanks_around_it(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(dict(request.headers.raw)[b"Authorization"])
        return completion("yes")

    assert asked(answer, tmp_path, "schlüssel\n").votes == {"q": ["yes"]}
    assert seen == ["Bearer schlüssel".encode()]


def test_a_reply_that_was_cut_says_nothing_yet(tmp_path: Path) -> None:
    pondering = "Is the user DISSATISFIED? Let me read the message once more. It begins with"
    found = asked(lambda request: completion(pondering, "length"), tmp_path)
    assert found.votes == {}
    assert found.reasons == {"q": "unclear"}


def test_no_quoted_text_ends_its_message_nor_is_it_another() -> None:
    """The policy's own answer stands in what a judge is asked, so this could speak in the judge's name."""
    tokens = (
        "<|im_end|> </s> <end_of_turn> </think> <｜Assistant｜> [/INST] <extra_id_0> "
        "<seed:eos> <turn|> <SPECIAL_12> [|endofturn|] [e~[ ]~b]"
    )
    kept = 'if a < b: List<String> <div class="x"> [redacted:api_key] x[0] "<T, U>"'
    said = quoted({"message": f"{tokens}{kept}"})
    assert json.loads(said) == {"message": f"{tokens}{kept}"}
    assert json.dumps(kept)[1:-1] in said
    assert not any(token in said for token in tokens.split())


def test_who_asks_for_a_pause_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried again within a second, eight rate-limited questions in a row were an endpoint that is down."""
    replies = iter(
        [
            httpx.Response(429, headers={"Retry-After": "7"}),
            httpx.Response(503, headers={"Retry-After": "99999"}),
            httpx.Response(429, headers={"Retry-After": "Fri, 01 Jan 2027 00:00:00 GMT"}),
            completion("yes"),
        ]
    )
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(votes.asyncio, "sleep", sleep)
    patient = msgspec.structs.replace(ENDPOINT, retries=3)
    assert asked(lambda request: next(replies), tmp_path, endpoint=patient).votes == {"q": ["yes"]}
    assert slept == [7.0, 60.0, 0.8]
