"""A request for tokens, from its body to the last byte of its answer: whose it is, its place, arm and form.

Not here: asking the engine and recording (`answering.py`, `streaming.py`), routes and errors (`app.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from stages.gateway.admission import Admission
from stages.gateway.answering import Answerer
from stages.gateway.arms import Arm, Arms
from stages.gateway.attribution import Who, attribute
from stages.gateway.config import GatewayConfig
from stages.gateway.counting import count_tokens
from stages.gateway.dialects.form import Dialect, Form
from stages.gateway.ended_calls import EndedCalls
from stages.gateway.errors import ApiError
from stages.gateway.exchange import Exchange
from stages.gateway.http import header, read_object, send_json
from stages.gateway.key_file import ApiKey
from stages.gateway.pool import conversation_key
from stages.gateway.reading import Reader
from stages.gateway.request import Request
from stages.gateway.shares import Whose
from stages.gateway.streaming import Stream


class Generator:
    """Answers what is asked in any dialect.

    Args:
        identify: gives the key that was sent; raises ApiError 401 or 429.
        context: how many tokens engines take, None where that is not known.
    """

    def __init__(
        self,
        config: GatewayConfig,
        reader: Reader,
        admission: Admission,
        arms: Arms,
        answerer: Answerer,
        ended_calls: EndedCalls,
        identify: Callable[[Exchange], ApiKey],
        context: int | None,
    ) -> None:
        self._config, self._reader, self._admission, self._arms = config, reader, admission, arms
        self._answerer, self._recorder = answerer, answerer.recorder
        self._ended_calls, self._identify, self._context = ended_calls, identify, context

    async def answer(self, dialect: Dialect, exchange: Exchange) -> None:
        """One generation."""
        key = self._identify(exchange)
        self._admission.require_room(key.id)
        try:
            who, request, form = await self._read(dialect, exchange, key)
            with self._admission.admit(Whose.of(key, who.user)) as place:
                if request.stream:
                    place.stream()
                if not who.no_train:
                    await self._ended_calls.tell(key.id, request.messages, who.at)
                await self._generate(exchange, key, who, request, form)
        except ApiError as error:
            dialect.tell(error)
            raise

    async def count(self, dialect: Dialect, exchange: Exchange) -> None:
        """How many tokens the prompt has; nothing is generated."""
        key = self._identify(exchange)
        self._admission.require_room(key.id)
        try:
            who, request, _ = await self._read(dialect, exchange, key)
            whose = Whose.of(key, who.user)
            with self._admission.admit(whose) as place:
                place.timed = False
                arm = self._arms.of(who.user, key.population)
                arm.served.require_ready()
                counted = await count_tokens(arm.engine, request, whose, self._context)
        except ApiError as error:
            dialect.tell(error)
            raise
        await send_json(exchange.send, 200, {"input_tokens": counted})

    async def _read(self, dialect: Dialect, exchange: Exchange, key: ApiKey) -> tuple[Who, Request, Form]:
        """Whose request it is, what of it is held until it is answered, and how that is told."""
        sent = await read_object(exchange.scope, exchange.receive, self._config.max_body_bytes)
        body, form = dialect.read(sent)
        who = attribute(exchange.scope, body, key, client_clock=self._config.client_clock)
        request = await self._reader.read(dialect.api, body, key.population, Whose.of(key, who.user))
        exchange.receive.keep(len(request.upstream))
        return who, request, form

    async def _generate(
        self, exchange: Exchange, key: ApiKey, who: Who, request: Request, form: Form
    ) -> None:
        conversation = conversation_key(who, request)
        arm = await self._entered(who, key, conversation)
        try:
            client = header(exchange.scope, b"user-agent")[:64].decode("latin-1").split(" ")[0]
            call = self._recorder.begin(key, who, request, client, arm)
            exchange.generation = call.id
        except BaseException:
            arm.served.gate.leave()
            raise
        if request.stream:
            id = exchange.request_id
            await Stream(self._answerer, call, form, exchange.receive, exchange.send, id).run()
        else:
            await self._answerer.answer(call, form, exchange.send)

    async def _entered(self, who: Who, key: ApiKey, conversation: str) -> Arm:
        """The arm to answer with, its gate entered: a swap waits for whoever is in, so nobody waits in there
        for anything but the engine."""
        while True:
            arm = await self._arms.enter(who.user, self._config.hold_timeout_s, key.population, conversation)
            if self._recorder.ready(who):
                return arm
            arm.served.gate.leave()
            await self._recorder.prepare(who)
