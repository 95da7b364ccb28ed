"""The load: many users at a constant rate, whatever comes back. A process of its own, with its own records.

    python -m chaosing.load URL KEY RATE RECORDS SEED [vllm]

Open loop: requests leave on schedule (Poisson arrivals). Half of them are streamed; half of the answers get
feedback events, which are sent again under the same id until they are acknowledged, as docs/http.md tells
clients to do. Ends by SIGTERM, when what is in flight has come to its end. Records are in `records.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from chaosing.records import Asked, Record, Rejected, Told

USERS = 150
PATIENCE_S = 40.0  # of a client for a whole answer
RETRY_S = 0.5
TURNS = 4  # of a conversation
LEAVING = 0.03  # share of streams that their client leaves
BEFORE, AFTER = "def f(x):\n    return x\n", "def f(x):\n    return x + {}\n"


class Load:
    """Sends requests and writes down what comes back."""

    def __init__(self, url: str, key: str, rate: float, records: Path, seed: int, real: bool) -> None:
        self.url, self.key, self.rate, self.real = url, key, rate, real
        self.random = random.Random(seed)
        self.file = records.open("ab", buffering=0)
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        self.said: dict[str, list[dict[str, str]]] = {}  # of each user's conversation

    def note(self, record: Record) -> None:
        """Write one record; it is read while this goes on."""
        self.file.write(msgspec.json.encode(record) + b"\n")

    async def run(self) -> None:
        """Until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self.session:
            due = time.monotonic()
            while not self.stopping.is_set():
                due += self.random.expovariate(self.rate)
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                self._start(self._ask(due))
            await asyncio.gather(*self.tasks)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _words(self) -> str:
        """What a user says; to the stub also how long its answer is and takes."""
        text = f"please change f {uuid.UUID(int=self.random.getrandbits(128)).hex}"
        if self.real:
            return text
        slow = self.random.random() < 0.03
        gap = 0.15 if slow else self.random.choice((0.002, 0.005, 0.02))
        return f"{text} stub:tokens={self.random.randrange(4, 16)} stub:gap={gap}"

    def _before(self, user: str) -> list[dict[str, str]]:
        """What the user goes on with: the conversation of before, or nothing."""
        said = self.said.get(user, [])
        return said if len(said) < 2 * TURNS and self.random.random() < 0.4 else []

    async def _ask(self, due: float) -> None:
        user = f"user-{self.random.randrange(USERS)}"
        stream = self.random.random() < 0.5
        words = self._words()
        messages = [*self._before(user), {"role": "user", "content": words}]
        body = {
            "model": "rtrl",
            "messages": messages,
            "max_tokens": 24,
            "logprobs": True,
            "return_token_ids": True,
            "stream": stream,
        }
        headers = {"Authorization": f"Bearer {self.key}", "X-Rtrl-User": user}
        sent = time.monotonic()
        found: dict[str, Any] = {"outcome": "cut"}
        try:
            where = f"{self.url}/v1/chat/completions"
            async with self.session.post(where, json=body, headers=headers) as response:
                found["status"] = response.status
                found["retry_after"] = "Retry-After" in response.headers
                found["id"] = response.headers.get("X-Rtrl-Generation-Id", "")
                if stream and response.status == 200:
                    if self.random.random() < 0.1:  # it is seen before it is complete
                        self._start(self._tell(found["id"], [("completion_shown", {})], headers))
                    await _streamed(response, found, 3 if self.random.random() < LEAVING else 0)
                else:
                    await _whole(response, found)
        except aiohttp.ClientConnectorError:
            found = {"outcome": "unreachable"}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            found |= {"outcome": "cut", "code": type(error).__name__}
        record = Asked(
            user=user, stream=stream, request=words, due=due, sent=sent, ended=time.monotonic(), **found
        )
        self.note(record)
        if record.outcome == "complete":
            self.said[user] = [*messages, {"role": "assistant", "content": record.answer}]
        if record.outcome == "complete" and self.random.random() < 0.5 and not self.stopping.is_set():
            await self._tell(record.id, self._reaction(), headers)

    def _reaction(self) -> list[tuple[str, dict[str, Any]]]:
        """What a user does with an answer."""
        after = AFTER.format(self.random.randrange(1000))
        rows: list[tuple[str, dict[str, Any]]] = [
            ("edit_applied", {"path": "a.py", "before": BEFORE, "after": after}),
            ("user_message", {"text": self.random.choice(("thanks", "still wrong"))}),
        ]
        return rows[: self.random.randint(1, 2)]

    async def _tell(
        self, generation_id: str, rows: list[tuple[str, dict[str, Any]]], headers: dict[str, str]
    ) -> None:
        """Send events of a generation until they are acknowledged."""
        unsent = [
            {"id": uuid.uuid4().hex, "generation_id": generation_id, "type": kind, "data": data}
            for kind, data in rows
        ]
        for _ in range(100):
            try:
                where = f"{self.url}/v1/events"
                async with self.session.post(where, json={"events": unsent}, headers=headers) as response:
                    answer = await response.json() if response.status == 200 else None
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                answer = None
            if answer is not None:
                self._acknowledged(unsent, answer)
                return
            if self.stopping.is_set():
                return
            await asyncio.sleep(RETRY_S)

    def _acknowledged(self, events: list[dict[str, Any]], answer: dict[str, Any]) -> None:
        reasons = {one["id"]: one["reason"] for one in answer["rejected"]}
        now = time.monotonic()
        for event in events:
            about = {"id": event["id"], "generation_id": event["generation_id"], "at": now}
            if event["id"] in reasons:
                self.note(Rejected(**about, reason=reasons[event["id"]]))
            else:
                self.note(Told(**about, data=event["data"]))


async def _whole(response: aiohttp.ClientResponse, found: dict[str, Any]) -> None:
    document = await response.json(content_type=None)
    if response.status != 200:
        found |= {"outcome": "refused", "code": document["error"]["code"]}
        return
    (choice,) = document["choices"]
    found |= {
        "outcome": "complete",
        "id": document["id"],
        "fingerprint": document["system_fingerprint"],
        "answer": choice["message"]["content"] or "",
        "ids": choice["token_ids"],
        "prompt": document["prompt_token_ids"],
        "logprobs": [entry["logprob"] for entry in choice["logprobs"]["content"]],
    }


async def _streamed(response: aiohttp.ClientResponse, found: dict[str, Any], leave_after: int) -> None:
    """Reads to `[DONE]`, an error event, or the end of the connection (`cut`, as it stands in `found`).

    With `leave_after` it closes the connection after so many tokens.
    """
    found |= {"answer": "", "ids": [], "logprobs": []}
    async for line in response.content:
        if leave_after and len(found["ids"]) >= leave_after:
            found["code"] = "left"
            response.close()
            return
        text = line.strip()
        if text == b"data: [DONE]":
            found["outcome"] = "complete"
        if not text.startswith(b"data: {"):
            continue
        piece = json.loads(text[6:])
        if "error" in piece:
            found |= {"outcome": "told", "code": piece["error"]["code"]}
            continue
        found["fingerprint"] = piece["system_fingerprint"]
        for choice in piece["choices"]:
            found["answer"] += choice["delta"].get("content") or ""
            found["ids"] += choice.get("token_ids") or ()
            found["logprobs"] += [e["logprob"] for e in (choice.get("logprobs") or {}).get("content") or ()]


def main() -> None:
    url, key, rate, records, seed, *real = sys.argv[1:]
    load = Load(url, key, float(rate), Path(records), int(seed), bool(real))
    uvloop.run(load.run())


if __name__ == "__main__":
    main()
