"""The public ASGI application: OpenAI's routes, `/v1/events`, and routes for other systems' records.

Routing, authentication, and turning errors into answers. Nothing of a request's content is ever
logged: failures name their type and place in the code only.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable

import orjson

from stages.gateway import logs, otlp_http
from stages.gateway.admission import Admission
from stages.gateway.answering import Answerer
from stages.gateway.arms import Arm, Arms
from stages.gateway.attribution import Who, attribute
from stages.gateway.capture import Recorder
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import ApiError, no_model
from stages.gateway.events import EventIntake
from stages.gateway.exchange import Exchange
from stages.gateway.http import (
    JSON_TYPE,
    Bodies,
    ClientGoneError,
    Receive,
    Scope,
    Send,
    check_headers,
    header,
    read_object,
    send_error,
    send_json,
)
from stages.gateway.key_file import ApiKey
from stages.gateway.keys import ApiKeys
from stages.gateway.links import Links
from stages.gateway.metrics import Metrics
from stages.gateway.otlp_http import LOGS, METRICS, TRACES
from stages.gateway.pool import conversation_key
from stages.gateway.rates import Rates
from stages.gateway.reading import Reader
from stages.gateway.received import Intake
from stages.gateway.request import Api, Request
from stages.gateway.served import ServedState
from stages.gateway.shares import Whose
from stages.gateway.streaming import Stream
from stages.gateway.telemetry import Telemetry
from stages.inbox.writer import InboxWriter
from stages.spool import SpoolWriter
from stages.vault import Vault
from stages.verdicts import Verdicts

_MODEL = "/v1/models/"  # and a name

Handler = Callable[[Exchange], Awaitable[None]]


class Gateway:
    """The public side. Call it as an ASGI application."""

    def __init__(
        self,
        config: GatewayConfig,
        spool: SpoolWriter,
        inbox: InboxWriter,
        vault: Vault,
        keys: ApiKeys,
        engine: EngineClient,
        served: ServedState,
        verdicts: Verdicts,
        *,
        drafts: bool,
    ) -> None:
        self._config = config
        self._keys = keys
        self._rates = Rates(config.key_rate, config.key_burst)
        self._reader = Reader(served.model, config.sampling, drafts=drafts)
        self._bodies = Bodies(config.max_bodies_bytes)
        self.arms = Arms(Arm(served, engine))
        bounds = config.engine_connections, config.max_queue, config.max_streams
        self.admission = Admission(*bounds, config.fair_s)
        self.metrics = Metrics(spool, served)
        self.metrics.watch(self.admission, self.arms)
        self._served = served
        self._logged = config.log_requests
        links = Links(spool.folder)
        self._recorder = Recorder(spool, vault, self.metrics, links)
        self._answerer = Answerer(self._recorder, self.metrics)
        self._events = EventIntake(
            spool, self.metrics, max_events=config.max_events, client_clock=config.client_clock
        )
        intake = Intake(config, spool, inbox, links, self.metrics, verdicts, vault.pseudonym)
        self._telemetry = Telemetry(config, intake, self.metrics, self._identify)
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/chat/completions": {"POST": lambda x: self._generate("chat", x)},
            "/v1/completions": {"POST": lambda x: self._generate("completions", x)},
            "/v1/events": {"POST": self._take_events},
            "/v1/traces": {"POST": lambda x: self._telemetry.otlp(TRACES, x)},
            "/v1/logs": {"POST": lambda x: self._telemetry.otlp(LOGS, x)},
            "/v1/metrics": {"POST": lambda x: self._telemetry.otlp(METRICS, x)},
            "/v1/continue/data": {"POST": self._telemetry.continue_data},
            "/feedback": {"POST": self._telemetry.feedback},
            "/v1/models": {"GET": self._models},
            f"{_MODEL}NAME": {"GET": self._model},
            "/health": {"GET": self._health},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            body = self._bodies.of(receive)
            try:
                await self._http(Exchange(scope, body, send))
            finally:
                body.done()
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        path = f"{_MODEL}NAME" if path.startswith(_MODEL) else path
        route = path if path in self._routes else "other"
        exchange.closing = self.admission.draining
        try:
            await self._route(path)(exchange)
        except ApiError as error:
            await self._fail(exchange, error)
        except ClientGoneError:
            exchange.status = 499
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the client gets an answer
            logs.event(
                "bug",
                logging.ERROR,
                error=type(error).__name__,
                request_id=exchange.request_id,
                route=route,
                where="".join(traceback.format_tb(error.__traceback__)),
            )
            await self._fail(exchange, ApiError(500, "server_error", "internal_error", "this is a bug"))
        seconds = time.perf_counter() - exchange.began
        self.metrics.request(route, exchange.status, seconds)
        if self._logged == "all" or (self._logged == "errors" and exchange.status >= 500):
            exchange.log(route, seconds)

    async def drain(self, timeout_s: float) -> int:
        """Take no more generations and answer those accepted (`Admission.drain`)."""
        return await self.admission.drain(timeout_s, [arm.gate for arm in self.arms.served()])

    def _route(self, path: str) -> Handler:
        methods = self._routes.get(path)

        async def handle(exchange: Exchange) -> None:
            check_headers(exchange.scope, self._config.max_header_bytes, self._config.max_headers)
            if methods is None:
                raise ApiError(404, "invalid_request_error", "not_found", "there is no such route")
            method = exchange.scope["method"]
            handler = methods.get("GET" if method == "HEAD" else method)  # the server drops the body
            if handler is None:
                allow = ", ".join(methods)
                message = f"this route takes {allow}"
                raise ApiError(405, "invalid_request_error", "method_not_allowed", message, allow=allow)
            await handler(exchange)

        return handle

    async def _fail(self, exchange: Exchange, error: ApiError) -> None:
        """Tell the client, if nothing has been sent yet."""
        exchange.code = error.code
        self.metrics.error(error.code)
        if exchange.status == 0:
            media = otlp_http.asked(exchange.scope["path"], header(exchange.scope, b"content-type"))
            if media:
                body = media.encode(), otlp_http.status(media, error)
            else:
                body = JSON_TYPE[1], orjson.dumps(error.body(exchange.request_id))
            await send_error(exchange.send, error, body=body)
        else:
            await exchange.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _identify(self, exchange: Exchange) -> ApiKey:
        """What is known of the key that was sent. Raises ApiError 401, or 429 when it asks too often."""
        scheme, _, key = header(exchange.scope, b"authorization").decode("latin-1").partition(" ")
        found = self._keys.identify(key.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise ApiError(401, "authentication_error", "invalid_api_key", "no valid API key was sent")
        exchange.key_id = found.id
        self._rates.take(found)
        return found

    async def _generate(self, api: Api, exchange: Exchange) -> None:
        key = self._identify(exchange)
        self.admission.require_room(key.id)
        who, request = await self._read(api, exchange, key)
        with self.admission.admit(Whose.of(key, who.user)) as place:
            if request.stream:
                place.stream()
            await self._answer(exchange, key, who, request)

    async def _read(self, api: Api, exchange: Exchange, key: ApiKey) -> tuple[Who, Request]:
        """Whose request it is, and what of it is held until it is answered."""
        body = await read_object(exchange.scope, exchange.receive, self._config.max_body_bytes)
        who = attribute(exchange.scope, body, key, client_clock=self._config.client_clock)
        request = await self._reader.read(api, body, key.population, Whose.of(key, who.user))
        exchange.receive.keep(len(request.upstream))
        return who, request

    async def _answer(self, exchange: Exchange, key: ApiKey, who: Who, request: Request) -> None:
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
            await Stream(self._answerer, call, exchange.receive, exchange.send, id).run()
        else:
            await self._answerer.answer(call, exchange.send)

    async def _entered(self, who: Who, key: ApiKey, conversation: str) -> Arm:
        """The arm to answer with, its gate entered: a swap waits for whoever is in, so nobody waits in there
        for anything but the engine."""
        while True:
            arm = await self.arms.enter(who.user, self._config.hold_timeout_s, key.population, conversation)
            if self._recorder.ready(who):
                return arm
            arm.served.gate.leave()
            await self._recorder.prepare(who)

    async def _take_events(self, exchange: Exchange) -> None:
        key = self._identify(exchange)
        body = await read_object(exchange.scope, exchange.receive, self._config.max_body_bytes)
        who = attribute(exchange.scope, {}, key, client_clock=self._config.client_clock)
        await send_json(exchange.send, 200, await self._events.take(key.id, body, no_train=who.no_train))

    async def _models(self, exchange: Exchange) -> None:
        self._identify(exchange)
        await send_json(exchange.send, 200, {"object": "list", "data": [self._model_card()]})

    async def _model(self, exchange: Exchange) -> None:
        self._identify(exchange)
        asked = exchange.scope["path"].removeprefix(_MODEL)
        if asked != self._served.model:
            raise no_model(asked, self._served.model)
        await send_json(exchange.send, 200, self._model_card())

    async def _health(self, exchange: Exchange) -> None:
        self.admission.require_open()
        self.arms.require_healthy()
        await send_json(exchange.send, 200, {"status": "ok"})

    def _model_card(self) -> dict[str, object]:
        return {"id": self._served.model, "object": "model", "created": 0, "owned_by": "rtrl"}

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                for arm in self.arms.all():
                    await arm.engine.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def create_app(
    config: GatewayConfig,
    spool: SpoolWriter,
    inbox: InboxWriter,
    vault: Vault,
    keys: ApiKeys,
    engine: EngineClient,
    served: ServedState,
    verdicts: Verdicts | None = None,
    *,
    drafts: bool = False,
) -> Gateway:
    """The public application. `verdicts` says what feedback is (`collect.metrics`), `drafts` whether engines
    draft tokens (`engine.draft_tokens`).

    Whoever calls this owns spool, inbox and vault and closes them afterwards."""
    return Gateway(config, spool, inbox, vault, keys, engine, served, verdicts or Verdicts(), drafts=drafts)
