"""Users of the gateway who write down what they were promised. Plain HTTP, streamed and not.

They go on when the gateway dies: a request that broke off was not promised, an event that was not
acknowledged is sent again under the same id, as docs/http.md tells clients to do.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx

from killsweeps.ledger import Answered, Ledger, Taken

Where = Callable[[], tuple[str, str] | None]  # the gateway's URL and key, None while there is none
BEFORE, AFTER = "def f(x):\n    return x\n", "def f(x):\n    return x + {}\n"


class User(threading.Thread):
    """One user: asks, reads the answer, reacts, until told to stop."""

    def __init__(
        self, name: str, seed: int, where: Where, ledger: Ledger, clock: itertools.count[int]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._random = random.Random(f"{name}/{seed}")
        self._where, self._ledger, self._clock = where, ledger, clock
        self._stopping = threading.Event()
        self._unsent: list[dict[str, Any]] = []
        self.refused: list[str] = []

    def stop(self) -> None:
        """End after the request at hand."""
        self._stopping.set()

    def run(self) -> None:
        with httpx.Client(timeout=20) as client:
            while not self._stopping.is_set():
                place = self._where()
                if place is None:
                    time.sleep(0.05)
                    continue
                try:
                    self._turn(client, *place)
                except httpx.HTTPError:
                    time.sleep(0.05)  # the gateway is dead or dying: nothing was promised

    def _turn(self, client: httpx.Client, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}", "X-Rtrl-User": self.name}
        self._react(client, url, headers)
        text = f"please change f {uuid.uuid4().hex} " + "x" * self._random.randrange(200)
        moment = 1_700_000_000 + 300 * next(self._clock)
        headers |= {"X-Rtrl-At": str(moment), "X-Rtrl-Session": f"{self.name}-{uuid.uuid4().hex[:8]}"}
        body = {"model": "rtrl", "messages": [{"role": "user", "content": text}], "max_tokens": 40}
        ask = self._streamed if self._random.random() < 0.5 else self._whole
        found = ask(client, url + "/v1/chat/completions", headers, body)
        if found is None:
            return
        generation_id, answer = found
        self._ledger.note(Answered(generation_id, text, answer))
        self._unsent += self._events(generation_id, moment)
        if self._random.random() < 0.8:
            self._react(client, url, headers)

    def _whole(
        self, client: httpx.Client, url: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[str, str] | None:
        response = client.post(url, headers=headers, json=body)
        if response.status_code != 200:
            self._refused(response.status_code, response.text)
            return None
        document = response.json()
        return document["id"], document["choices"][0]["message"]["content"] or ""

    def _streamed(
        self, client: httpx.Client, url: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[str, str] | None:
        pieces, done, generation_id = [], False, ""
        with client.stream("POST", url, headers=headers, json={**body, "stream": True}) as response:
            if response.status_code != 200:
                self._refused(response.status_code, response.read().decode())
                return None
            generation_id = response.headers["X-Rtrl-Generation-Id"]
            if self._random.random() < 0.2:  # seen before the answer is complete
                self._unsent.append(self._event(generation_id, "completion_shown", 0, {}))
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    choices = json.loads(line[6:]).get("choices") or [{}]
                    pieces.append(choices[0].get("delta", {}).get("content") or "")
        return (generation_id, "".join(pieces)) if done else None

    def _refused(self, status: int, text: str) -> None:
        if status != 503:  # 503: the engine starts, or weights are being changed
            self.refused.append(f"{status} {text[:200]}")
        time.sleep(0.05)

    def _events(self, generation_id: str, moment: int) -> list[dict[str, Any]]:
        kept = self._random.random() < 0.5
        after = AFTER.format(self._random.randrange(1000))
        edit = {"path": "a.py", "before": BEFORE, "after": after}
        later = {"path": "a.py", "horizon_s": 600, "now": after if kept else BEFORE}
        rows: list[tuple[str, int, dict[str, Any]]] = [
            ("edit_applied", 5, edit),
            ("edit_survival", 605, later),
            ("user_message", 30, {"text": "thanks" if kept else "still wrong"}),
        ]
        return [
            self._event(generation_id, kind, moment + after_s, data)
            for kind, after_s, data in rows[: self._random.randint(1, 3)]
        ]

    def _event(self, generation_id: str, kind: str, at: int, data: dict[str, Any]) -> dict[str, Any]:
        event = {"id": uuid.uuid4().hex, "generation_id": generation_id, "type": kind, "data": data}
        return event | ({"at": at} if at else {})

    def _react(self, client: httpx.Client, url: str, headers: dict[str, str]) -> None:
        """Send what was not acknowledged yet; some of it that was, again: it must count once."""
        if not self._unsent:
            return
        response = client.post(url + "/v1/events", headers=headers, json={"events": self._unsent})
        if response.status_code != 200:
            self._refused(response.status_code, response.text)
            return
        rejected = {one["id"]: one["reason"] for one in response.json()["rejected"]}
        for event in self._unsent:
            if event["id"] in rejected:
                self.refused.append(f"event {event['type']}: {rejected[event['id']]}")
            else:
                self._ledger.note(Taken(event["id"], event["generation_id"], event["data"]))
        self._unsent = self._unsent[-1:] if self._random.random() < 0.1 else []
