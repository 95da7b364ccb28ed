"""Routes for clients that know other systems' HTTP: OTLP, Continue's development data, TensorZero's feedback.

Not for: what becomes of the records (`received.py`), OTLP's encodings (`otlp_http.py`).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from stages.clock import now_ms
from stages.gateway import otlp_http
from stages.gateway.attribution import MAX_NAME, Who, attribute, attribute_resource
from stages.gateway.errors import ApiError, invalid
from stages.gateway.http import header, parse_json, parse_object, read_body, send_body, send_json
from stages.gateway.key_file import ApiKey
from stages.gateway.metrics import Metrics
from stages.gateway.received import Intake, Taken
from stages.verdicts import is_word

if TYPE_CHECKING:
    from stages.gateway.config import GatewayConfig
    from stages.gateway.exchange import Exchange

Identify = Callable[["Exchange"], ApiKey]
_LINES = 4  # times a body's limit: as much as an export's records may take, each with its resource
_VALUES: dict[str, tuple[type, ...]] = {
    "comment": (str,),
    "demonstration": (str, list, dict),
}  # TensorZero's reserved metrics


class Telemetry:
    """Handlers of the routes."""

    def __init__(self, config: GatewayConfig, intake: Intake, metrics: Metrics, identify: Identify) -> None:
        self._config, self._intake, self._metrics = config, intake, metrics
        self._identify = identify
        self._unpacking = asyncio.Lock()  # an export may take a gigabyte for a while, and threads are shared

    async def otlp(self, signal: otlp_http.Signal, exchange: Exchange) -> None:
        """`POST /v1/traces`, `/v1/logs`, `/v1/metrics`. Raises ApiError."""
        key = self._identify(exchange)
        media = otlp_http.media_type(header(exchange.scope, b"content-type"))
        body = await self._otlp(signal, media, key, exchange)
        await send_body(exchange.send, 200, body, [(b"content-type", media.encode())])

    async def _otlp(self, signal: otlp_http.Signal, media: str, key: ApiKey, exchange: Exchange) -> bytes:
        limit = self._config.max_body_bytes
        body = await read_body(exchange.scope, exchange.receive, limit)
        who = self._who(exchange, key)
        encoding = header(exchange.scope, b"content-encoding")
        async with self._unpacking:
            resources = await asyncio.to_thread(_resources, signal, media, body, encoding, limit)
        exchange.receive.hold(sum(len(line or b"") for one in resources for line in one.lines))
        if signal is otlp_http.METRICS:  # sums and counts: no session can be told from them
            self._metrics.received("otel", "passed_over", sum(len(one.lines) for one in resources))
            return otlp_http.answer(signal, media, 0, "")
        total = Taken()
        for whose, lines in self._shared_out(resources, who, total).items():
            taken = await self._intake.take("otel", key.id, whose, lines)
            total.rejected += taken.rejected
        return otlp_http.answer(signal, media, total.rejected.total(), total.message)

    def _shared_out(
        self, resources: list[otlp_http.Records], who: Who, total: Taken
    ) -> dict[Who, list[bytes | None]]:
        """The records by whose they are, each person's to be written at once: who forwards for many sends
        thousands of resources. Adds to `total` what cannot be anybody's."""
        found: dict[Who, list[bytes | None]] = {}
        for resource in resources:
            try:
                whose = attribute_resource(resource.said, who)
            except ApiError as error:  # of this resource alone: exporters do not send a refused batch again
                total.rejected[error.message] += len(resource.lines)
                self._metrics.received("otel", "rejected", len(resource.lines))
            else:
                found.setdefault(whose, []).extend(resource.lines)
        return found

    async def continue_data(self, exchange: Exchange) -> None:
        """`POST /v1/continue/data`: one event in Continue's envelope, or a list of such."""
        key = self._identify(exchange)
        body = await self._body(exchange)
        value = parse_json(body)
        events = value if isinstance(value, list) else [value]
        if len(events) > self._config.max_events:
            raise invalid(f"at most {self._config.max_events} events at a time", code="too_many_events")
        who = self._who(exchange, key)
        taken = await self._intake.take("continue", key.id, who, [_line(one) for one in events])
        rejected = [{"reason": reason, "count": n} for reason, n in taken.rejected.most_common()]
        answer = {"accepted": len(events) - taken.rejected.total(), "rejected": rejected}
        await send_json(exchange.send, 200, answer)

    async def feedback(self, exchange: Exchange) -> None:
        """`POST /feedback`: TensorZero's. The answer names the feedback."""
        key = self._identify(exchange)
        call = parse_object(await self._body(exchange))
        _check(call)
        who, wall = self._who(exchange, key), now_ms()
        one = _uuid7(wall)
        if call.get("dryrun") is not True:
            record = {"request": call, "response": {"feedback_id": one}, "timestamp": wall}
            taken = await self._intake.take("tensorzero", key.id, who, [_line(record)])
            if taken.rejected:
                _refuse(taken.message)
        await send_json(exchange.send, 200, {"feedback_id": one})

    async def _body(self, exchange: Exchange) -> bytes:
        """Without its content encoding. Raises ApiError 400, 413 or 415."""
        limit = self._config.max_body_bytes
        body = await read_body(exchange.scope, exchange.receive, limit)
        encoding = header(exchange.scope, b"content-encoding")
        unpacked = await asyncio.to_thread(otlp_http.unpacked, body, encoding, limit)
        if unpacked is not body:
            exchange.receive.hold(len(unpacked))
        return unpacked

    def _who(self, exchange: Exchange, key: ApiKey) -> Who:
        return attribute(exchange.scope, {}, key, client_clock=self._config.client_clock)


def _resources(
    signal: otlp_http.Signal, media: str, body: bytes, encoding: bytes, limit: int
) -> list[otlp_http.Records]:
    data = otlp_http.unpacked(body, encoding, limit)
    found = otlp_http.export(signal, media, data, _LINES * limit)
    return otlp_http.records(signal, media, found, _LINES * limit)


def _check(call: dict[str, Any]) -> None:
    """Raises ApiError 400 for what TensorZero would not take either."""
    name, value = call.get("metric_name"), call.get("value")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise invalid(f"metric_name must be a string of 1 to {MAX_NAME} characters", param="metric_name")
    targets = [field for field in ("inference_id", "episode_id") if call.get(field) is not None]
    if len(targets) != 1:
        raise invalid("exactly one of inference_id and episode_id is needed", param="inference_id")
    if not isinstance(call[targets[0]], str) or not call[targets[0]]:
        raise invalid(f"{targets[0]} must be a string", param=targets[0])
    kinds = _VALUES.get(name, (bool, int, float))
    if not isinstance(value, kinds) and (name in _VALUES or not is_word(value)):
        what = {"comment": "a string", "demonstration": "an answer"}.get(
            name, "a boolean, a number, up or down"
        )
        raise invalid(f"the value of {name} must be {what}" if name in _VALUES else f"value must be {what}",
                      param="value")  # fmt: skip
    tags = call.get("tags") or {}
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise invalid("tags must be an object of strings", param="tags")
    if not isinstance(call.get("dryrun"), bool | None):
        raise invalid("dryrun must be a boolean", param="dryrun")


def _refuse(message: str) -> None:
    """A feedback that could be read and cannot be taken. Raises ApiError."""
    if "other_key" in message:
        raise ApiError(
            404, "invalid_request_error", "unknown_target", "no such inference was made with this API key",
            param="inference_id",
        )  # fmt: skip
    if "too_many_pending" in message:
        raise ApiError(
            429, "rate_limit_error", "too_many_pending", "too many wait for their inference", retry_after=60
        )
    raise invalid(f"the feedback was not taken: {message}", param="value")


def _line(value: Any) -> bytes | None:
    """As one line; None for what is no object or is nested too deeply."""
    try:
        return orjson.dumps(value) if isinstance(value, dict) else None
    except (orjson.JSONEncodeError, RecursionError):
        return None


def _uuid7(wall: int) -> str:
    """A UUID of version 7 (RFC 9562): milliseconds, then random bits."""
    low = (0b10 << 62) | secrets.randbits(62)
    return str(uuid.UUID(int=wall << 80 | 7 << 76 | secrets.randbits(12) << 64 | low))
