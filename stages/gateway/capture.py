"""From an engine's answer to a record in the spool. The one place where generations are written.

Exact or marked: lengths that do not agree are recorded with a `defect`, never padded, cut or made again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import msgspec

from stages import owners
from stages.clock import now_ms
from stages.errors import DependencyDownError, RtrlError
from stages.gateway import logs
from stages.gateway.arms import Arm
from stages.gateway.asking import Asked, asked
from stages.gateway.attribution import Who
from stages.gateway.conversations import Conversations, Owner
from stages.gateway.episodes import Episodes
from stages.gateway.errors import ApiError, unavailable
from stages.gateway.ids import new_id
from stages.gateway.key_file import ApiKey
from stages.gateway.links import Links
from stages.gateway.metrics import Metrics
from stages.gateway.request import Request, addressed
from stages.gateway.sampled import Sampled, arrays, find_defect
from stages.gateway.served import Checkpoint
from stages.gateway.tools import Answer
from stages.gateway.turns import defect_of, spans_of
from stages.model_forms import forms_of
from stages.records import BEGUN, GOES_ON, GROUP, POPULATION, RETRIED, Generation, Sampling
from stages.spool import SpoolFullError, SpoolWriter, Tokens
from stages.vault import Vault


@dataclass(frozen=True)
class Call:
    """One generation in the making."""

    id: str
    key: ApiKey
    who: Who
    request: Request
    arm: Arm
    checkpoint: Checkpoint  # what the arm served when it began
    route: str  # the engine's name for that, "" for its weights
    client: str  # product name of the user agent
    at: int
    wall: int
    began: float  # perf_counter

    @property
    def upstream(self) -> bytes:
        """The engine's request body."""
        shown = self.request.api == "chat" and forms_of(self.checkpoint.path).hidden
        return addressed(self.request.upstream, self.route or self.arm.engine.model, shown=shown)


class Recorder:
    """Writes generations; knows the spool and the vault."""

    def __init__(self, spool: SpoolWriter, vault: Vault, metrics: Metrics, links: Links) -> None:
        self._spool = spool
        self._links = links
        self._vault = vault
        self._metrics = metrics
        self._conversations, self._episodes = Conversations(vault), Episodes()
        self._wanted: set[str] = set()
        self._making: asyncio.Task[None] | None = None
        self._refused = ""  # why the last record found no place, "" when it did

    def begin(self, key: ApiKey, who: Who, request: Request, client: str, arm: Arm) -> Call:
        """A generation is about to be made by `arm`; events may come for its id from now on."""
        wall = now_ms()
        call = Call(
            id=new_id(wall),
            key=key,
            who=who,
            request=request,
            arm=arm,
            checkpoint=arm.served.checkpoint,
            route=arm.served.route,
            client=client,
            at=wall if who.at is None else who.at,
            wall=wall,
            began=time.perf_counter(),
        )
        arm.served.turns.begin(call.id, call.route)
        self._spool.expect(call.id, key.id, who.user, no_train=who.no_train)
        return call

    def abandon(self, call: Call, reason: str) -> None:
        """Nothing was generated."""
        self._spool.abandon(call.id)
        call.arm.served.turns.end(call.id)
        self._metrics.unrecorded(reason)

    def ready(self, who: Who) -> bool:
        """Whether a generation for this user can be recorded without waiting for the disk."""
        return who.no_train or self._vault.has_key(who.user)

    async def prepare(self, who: Who) -> None:
        """Returns when `ready`, by a key of the user's own; raises ApiError 503.

        It may wait for long, for another process that writes keys: hold nothing for which others wait.
        """
        while not self.ready(who):
            self._wanted.add(who.user)
            if self._making is None:
                self._making = asyncio.create_task(self._make_keys())
            try:
                await asyncio.shield(self._making)
            except RtrlError as error:
                self._metrics.unrecorded("spool_full")
                self._told(error.message)
                raise _not_recorded() from error

    async def _make_keys(self) -> None:
        """Keys of all users waiting, in one transaction outside of the event loop."""
        users, self._wanted = self._wanted, set()
        try:
            await asyncio.to_thread(self._vault.ensure, sorted(users))
        finally:
            self._making = None

    def record(
        self, call: Call, sampled: Sampled, answer: Answer, *, ttft_s: float, ended: float | None = None
    ) -> None:
        """Write the generation. Returns when it survives the death of this process.

        `ended`: on the clock of `call.began`, None for now. Raises ApiError 503: do not give the answer.
        """
        seconds = (time.perf_counter() if ended is None else ended) - call.began
        of = asked(call.request.messages)
        generation, tokens = self._generation(call, sampled, answer, of, ttft_s, seconds)
        try:
            self._spool.append_generation(generation, tokens, of.text, sampled.text)
        except DependencyDownError as error:
            self.abandon(call, "spool_full" if isinstance(error, SpoolFullError) else "spool_failed")
            self._told(error.message)
            raise _not_recorded() from error
        self._told("")
        self._links.add(generation)
        call.arm.pace.add(generation.duration_ms, generation.output_tokens, call.key.whose(call.who.user))
        kind = "no_train" if generation.no_train else "defect" if generation.defect else "exact"
        self._metrics.generation(kind, len(tokens.prompt), len(tokens.output), answer.invalid)

    def _told(self, refused: str) -> None:
        """Log why records find no place, and that they do again: once, whatever the requests."""
        if refused != self._refused:
            state = {"state": "refused", "reason": refused} if refused else {"state": "well"}
            logs.event("capture", logging.WARNING, **state)
        self._refused = refused

    def _generation(
        self, call: Call, sampled: Sampled, answer: Answer, of: Asked, ttft_s: float, seconds: float
    ) -> tuple[Generation, Tokens]:
        request, who = call.request, call.who
        tokens = arrays(sampled)
        n = len(tokens.output)
        session, episode, ordinal, back_to = self._place(call, answer, of, sampled.finish_reason, n)
        spans = spans_of(call.checkpoint.digest, call.arm.served.turns.end(call.id), n)
        generation = Generation(
            id=call.id,
            key_id=call.key.id,
            user=who.user,
            session=session,
            episode=episode,
            ordinal=ordinal,
            at=call.at,
            wall=call.wall,
            line=call.arm.served.line,
            arm=call.arm.served.arm,
            deployment=call.checkpoint.deployment,
            api=request.api,
            sampling=_numbers(request.sampling) if who.no_train else request.sampling,
            spans=spans,
            finish_reason=sampled.finish_reason,
            prompt_tokens=len(tokens.prompt),
            output_tokens=n,
            ttft_ms=round(ttft_s * 1000, 3),
            duration_ms=round(seconds * 1000, 3),
            tool_calls=tuple(answer.records),
            invalid_tool_calls=answer.invalid,
            tools_digest="" if who.no_train else request.tools_digest,
            features={
                "stream": str(int(request.stream)),
                "tools": str(request.tool_count),
                "client": call.client,
                **({POPULATION: call.key.population} if call.key.population else {}),
                **({GROUP: owners.own_name(who.group, call.key.id, who.user)} if who.group else {}),
                **({} if answer.begun is None else {BEGUN: str(int(answer.begun))}),
                **({RETRIED: "1"} if who.retried else {}),
                **({GOES_ON: back_to} if back_to else {}),
            },
            no_train=who.no_train,
            defect=sampled.defect or defect_of(spans) or find_defect(sampled, tokens),
        )
        return generation, tokens

    def _place(self, call: Call, answer: Answer, of: Asked, end: str, n: int) -> tuple[str, str, int, str]:
        """Session, episode, place in its chain, and the one gone back to, if any. `n` tokens were sampled."""
        messages, who, back_to = call.request.messages, call.who, ""
        reply = {"content": answer.content, "tool_calls": answer.calls}
        if who.session:
            session = owners.own_name(who.session, call.key.id, who.user)
        elif call.request.api == "chat":
            owner = Owner(call.key.id, who.user, who.no_train)
            session = self._conversations.session(call.id, owner, messages, reply, end, who.conversation)
        else:
            session = f"s_{call.id}"
        if who.episode:
            episode = owners.own_name(who.episode, call.key.id, who.user)
        elif call.request.api == "chat":
            back_to = self._episodes.gone_back_to(session, of, messages, no_train=who.no_train)
            said = reply if n else None
            episode = self._episodes.derived(call.id, session, of, messages, said, no_train=who.no_train)
        else:
            episode = f"{session}/{call.id}"
        return session, episode, self._episodes.ordinal(episode, of), back_to


def _numbers(sampling: Sampling) -> Sampling:
    """What is kept of a no-train request's: stop strings, a grammar and names of fields are content."""
    return msgspec.structs.replace(sampling, stop=(), grammar="", unknown=())


def _not_recorded() -> ApiError:
    return unavailable("capture_unavailable", "the answer could not be recorded", retry_after=10)
