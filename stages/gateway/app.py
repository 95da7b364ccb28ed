"""The public ASGI application: routes of OpenAI's and Anthropic's APIs, `/v1/events`, and those for other
systems' records.

Routing, authentication, and turning errors into answers. Nothing of a request's content is ever
logged: failures name their type and place in the code only.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence

import orjson

from stages.gateway import logs, otlp_http
from stages.gateway.admission import Admission
from stages.gateway.answering import Answerer
from stages.gateway.arms import Arm, Arms
from stages.gateway.attribution import attribute
from stages.gateway.capture import Recorder
from stages.gateway.config import GatewayConfig
from stages.gateway.dialects.all import CHAT, COMPLETIONS, MESSAGES, MESSAGES_PROMPT, RESPONSES
from stages.gateway.dialects.messages_answer import error_body
from stages.gateway.ended_calls import EndedCalls
from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import ApiError
from stages.gateway.events import EventIntake
from stages.gateway.exchange import Exchange
from stages.gateway.generator import Generator
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
from stages.gateway.models import MODEL, Models
from stages.gateway.otlp_http import LOGS, METRICS, TRACES
from stages.gateway.rates import Rates
from stages.gateway.reading import Reader
from stages.gateway.received import Intake
from stages.gateway.served import ServedState
from stages.gateway.telemetry import Telemetry
from stages.inbox.writer import InboxWriter
from stages.spool import SpoolWriter
from stages.vault import Vault
from stages.verdicts import Verdicts

_MESSAGES = "/v1/messages"

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
        verdicts: Sequence[Verdicts],
        *,
        drafts: bool,
        context: int | None,
    ) -> None:
        self._config = config
        self._keys = keys
        self._rates = Rates(config.key_rate, config.key_burst)
        self._bodies = Bodies(config.max_bodies_bytes)
        self.arms = Arms(Arm(served, engine))
        bounds = config.engine_connections, config.max_queue, config.max_streams
        self.admission = Admission(*bounds, config.fair_s)
        self.metrics = Metrics(spool, served)
        self.metrics.watch(self.admission, self.arms)
        self._models = Models(served.model)
        self._logged = config.log_requests
        links = Links(spool.folder)
        self._recorder = Recorder(spool, vault, self.metrics, links)
        reader = Reader(served.model, config.sampling, drafts=drafts)
        answerer = Answerer(self._recorder, self.metrics)
        ended = EndedCalls(spool, links, self.metrics, vault.pseudonym)
        around = reader, self.admission, self.arms, answerer, ended, self._identify
        self._generator = Generator(config, *around, context)
        self._events = EventIntake(
            spool, self.metrics, max_events=config.max_events, client_clock=config.client_clock
        )
        intake = Intake(config, spool, inbox, links, self.metrics, verdicts, vault.pseudonym)
        self._telemetry = Telemetry(config, intake, self.metrics, self._identify)
        self._routes = self._handlers()

    def _handlers(self) -> dict[str, dict[str, Handler]]:
        """By path and method."""
        return {
            "/v1/chat/completions": {"POST": lambda x: self._generator.answer(CHAT, x)},
            "/v1/completions": {"POST": lambda x: self._generator.answer(COMPLETIONS, x)},
            "/v1/responses": {"POST": lambda x: self._generator.answer(RESPONSES, x)},
            _MESSAGES: {"POST": lambda x: self._generator.answer(MESSAGES, x)},
            f"{_MESSAGES}/count_tokens": {"POST": lambda x: self._generator.count(MESSAGES_PROMPT, x)},
            "/v1/events": {"POST": self._take_events},
            "/v1/traces": {"POST": lambda x: self._telemetry.otlp(TRACES, x)},
            "/v1/logs": {"POST": lambda x: self._telemetry.otlp(LOGS, x)},
            "/v1/metrics": {"POST": lambda x: self._telemetry.otlp(METRICS, x)},
            "/v1/continue/data": {"POST": self._telemetry.continue_data},
            "/feedback": {"POST": self._telemetry.feedback},
            "/v1/models": {"GET": self._list_models},
            f"{MODEL}NAME": {"GET": self._list_models},
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
        path = f"{MODEL}NAME" if path.startswith(MODEL) else path
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
            path: str = exchange.scope["path"]
            media = otlp_http.asked(path, header(exchange.scope, b"content-type"))
            shape = error_body if path.startswith(_MESSAGES) else ApiError.body
            if media:
                body = media.encode(), otlp_http.status(media, error)
            else:
                body = JSON_TYPE[1], orjson.dumps(shape(error, exchange.request_id))
            await send_error(exchange.send, error, body=body)
        else:
            await exchange.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _identify(self, exchange: Exchange) -> ApiKey:
        """What is known of the key that was sent. Raises ApiError 401, or 429 when it asks too often."""
        scheme, _, key = header(exchange.scope, b"authorization").decode("latin-1").partition(" ")
        sent = key.strip() if scheme.lower() == "bearer" else ""
        sent = sent or header(exchange.scope, b"x-api-key").decode("latin-1").strip()
        found = self._keys.identify(sent) if sent else None
        if found is None:
            raise ApiError(401, "authentication_error", "invalid_api_key", "no valid API key was sent")
        exchange.key_id = found.id
        self._rates.take(found)
        return found

    async def _take_events(self, exchange: Exchange) -> None:
        key = self._identify(exchange)
        body = await read_object(exchange.scope, exchange.receive, self._config.max_body_bytes)
        who = attribute(exchange.scope, {}, key, client_clock=self._config.client_clock)
        await send_json(exchange.send, 200, await self._events.take(key.id, body, no_train=who.no_train))

    async def _list_models(self, exchange: Exchange) -> None:
        self._identify(exchange)
        await send_json(exchange.send, 200, self._models.told(exchange.scope["path"]))

    async def _health(self, exchange: Exchange) -> None:
        self.admission.require_open()
        self.arms.require_healthy()
        await send_json(exchange.send, 200, {"status": "ok"})

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
    verdicts: Sequence[Verdicts] = (),
    *,
    drafts: bool = False,
    context: int | None = None,
) -> Gateway:
    """The public application. `verdicts` say what feedback is, by line (`collect.metrics`), `drafts` whether
    engines draft tokens (`engine.draft_tokens`), `context` how many they take (`engine.max_model_len`).

    Whoever calls this owns spool, inbox and vault and closes them afterwards."""
    made = config, spool, inbox, vault, keys, engine, served, verdicts
    return Gateway(*made, drafts=drafts, context=context)
