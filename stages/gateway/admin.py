"""The admin listener: what is served, weight swaps, the spool, metrics. Never on the public port.

Routes but `/metrics` and `/health` want the admin key (`run/serve.json`), even on a Unix socket.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import traceback
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from stages.errors import RtrlError
from stages.gateway.arms import Arms
from stages.gateway.errors import ApiError, SwapError, invalid, unavailable
from stages.gateway.http import (
    Receive,
    Scope,
    Send,
    header,
    read_object,
    send_body,
    send_error,
    send_json,
)
from stages.gateway.line_control import CanaryControl, LineControl, Others, Patience
from stages.gateway.metrics import Metrics
from stages.gateway.rolling import Rolling
from stages.gateway.served import Checkpoint
from stages.gateway.swapper import Swapper
from stages.spool import SpoolWriter

log = logging.getLogger("rtrl.gateway")

Asked = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_MAX_BODY = 1 << 20
_LOOPBACK = re.compile(rb"(127\.0\.0\.1|\[::1\]|localhost)?(:\d{1,5})?")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class Admin:
    """The admin side. Call it as an ASGI application.

    Args:
        key: bearer token.
        swapper, canary: None when no engine is under control (swaps and canaries are then answered 409).
        others: lines of populations; None when there are none.
        ahead: told which checkpoint (reference, "" for the next one) a deploy is about to ask for, and
            whether it goes on without a passing report.
    """

    def __init__(
        self,
        key: str,
        arms: Arms,
        swapper: Swapper | Rolling | None,
        spool: SpoolWriter,
        metrics: Metrics,
        canary: CanaryControl | None = None,
        others: Others | None = None,
        ahead: Callable[[str, bool], None] | None = None,
    ) -> None:
        self._expected = b"Bearer " + key.encode()
        self._arms = arms
        self._served = arms.live.served
        self._control = LineControl(arms, swapper, canary, others)
        self._ahead = ahead
        self._spool = spool
        self._metrics = metrics
        self._asked: dict[tuple[str, str], tuple[int, Asked]] = {
            ("POST", "/admin/swap"): (200, self._swap),
            ("POST", "/admin/hurry"): (200, self._hurry),
            ("POST", "/admin/prepare"): (202, self._prepare),
            ("POST", "/admin/canary"): (200, self._open),
            ("POST", "/admin/canary/share"): (200, self._share),
            ("POST", "/admin/canary/close"): (200, self._close),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except ApiError as error:
            await send_error(send, error)
        except SwapError as error:
            await send_json(send, 409, {"error": _swap_error(error), "served": self._arms.as_dict()})
        except RtrlError as error:
            await send_error(send, unavailable(error.kind, error.message))
        except Exception as error:  # noqa: BLE001  # the edge
            log.error(
                "%s in admin\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            )
            await send_error(send, ApiError(500, "server_error", "internal_error", type(error).__name__))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        _check_host(scope)
        route = (scope["method"], scope["path"])
        if route == ("GET", "/metrics"):
            await send_body(send, 200, self._metrics.text(), (_TEXT,))
            return
        if route == ("GET", "/health"):
            self._arms.require_healthy()
            await send_json(send, 200, {"status": "ok"})
            return
        if not hmac.compare_digest(header(scope, b"authorization"), self._expected):
            raise ApiError(
                401, "authentication_error", "invalid_admin_key", "the admin key is missing or wrong"
            )
        if route == ("GET", "/admin/served"):
            await send_json(send, 200, self._arms.as_dict())
        elif route in self._asked:
            status, call = self._asked[route]
            await send_json(send, status, await call(await read_object(scope, receive, _MAX_BODY)))
        elif route == ("POST", "/admin/spool/flush"):
            await self._spool_call(send, self._spool.flush)
        elif route == ("POST", "/admin/spool/seal"):
            await self._spool_call(send, self._spool.seal)
        else:
            raise ApiError(404, "invalid_request_error", "not_found", "there is no such admin route")

    async def _hurry(self, body: dict[str, Any]) -> dict[str, Any]:
        self._control.hurry(self._line(body))
        return {"served": self._arms.as_dict()}

    async def _prepare(self, body: dict[str, Any]) -> dict[str, Any]:
        ref, override = body.get("checkpoint", ""), body.get("override", False)
        if not isinstance(ref, str) or not isinstance(override, bool):
            raise invalid("checkpoint must be a string, override a boolean", param="checkpoint")
        if self._line(body) == self._served.line and self._ahead is not None:
            self._ahead(ref, override)
        return {"served": self._arms.as_dict()}

    async def _open(self, body: dict[str, Any]) -> dict[str, Any]:
        line, target = self._line(body), _checkpoint(body)
        salt = body.get("salt")
        if not isinstance(salt, str) or not salt:
            raise invalid("salt is required", param="salt")
        verification = await self._control.open_canary(line, target, salt, _share(body))
        return {"served": self._arms.as_dict(), "verification": verification.as_dict()}

    async def _share(self, body: dict[str, Any]) -> dict[str, Any]:
        deployment = str(body.get("deployment", ""))
        arms = self._control.arms(self._line(body))
        if arms is not None and deployment and arms.overtaken == deployment:
            raise SwapError("overtaken", "a rollback came before: the candidate's engine was ended")
        try:
            if arms is None:
                raise ValueError(f"deployment {deployment} is not the canary")
            arms.share(deployment, _share(body))
        except ValueError as error:
            raise ApiError(409, "conflict", "other_canary", str(error)) from None
        return {"served": self._arms.as_dict()}

    async def _close(self, body: dict[str, Any]) -> dict[str, Any]:
        ended = await self._control.close_canary(self._line(body), _seconds(body) or 5.0)
        return {"served": self._arms.as_dict(), "ended": ended}

    def _line(self, body: dict[str, Any]) -> str:
        """The line that a request is about. Raises ApiError 409 for one that is not served here."""
        line = body.get("line", self._served.line)
        if not isinstance(line, str):
            raise invalid("line must be a string", param="line")
        self._control.arms(line)
        return line

    async def _swap(self, body: dict[str, Any]) -> dict[str, Any]:
        line = self._line(body)
        target = _checkpoint(body, self._control.known(line))
        patience = Patience(_seconds(body), _seconds(body, "limit_s"), _cut(body))
        done = await self._control.swap(line, target, patience)
        report = done.verification.as_dict() if hasattr(done.verification, "as_dict") else {}
        return {
            "served": self._arms.as_dict(),
            "previous": done.before.digest,
            "verification": report,
            **({"restarting": True} if done.restarting else {}),
            **({"engines": done.engines} if done.engines else {}),
            "drained_s": round(done.drained_s, 6),
            "seconds": round(done.seconds, 6),
        }

    async def _spool_call(self, send: Send, call: Callable[[], int]) -> None:
        seq = await asyncio.to_thread(call)
        await send_json(send, 200, {"last_seq": seq})


def _check_host(scope: Scope) -> None:
    """On a loopback port a page in a browser may come by under a name of its own. Raises ApiError 403."""
    if scope.get("client") is None:
        return  # a Unix socket
    if not _LOOPBACK.fullmatch(header(scope, b"host").lower()):
        message = "the admin listener is reached as 127.0.0.1, [::1] or localhost"
        raise ApiError(403, "invalid_request_error", "wrong_host", message)


def _swap_error(error: SwapError) -> dict[str, Any]:
    cause = error.cause
    return {
        "message": error.message,
        "type": "conflict",
        "param": None,
        "code": error.code,
        "kind": cause.kind if cause else "",
        "exit_code": cause.code if cause else None,
        "hint": cause.hint if cause else "",
    }


def _seconds(body: dict[str, Any], name: str = "drain_timeout_s") -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise invalid(f"{name} must be a positive number", param=name)
    return float(value)


def _share(body: dict[str, Any]) -> float:
    """Of the users; 0 is none yet."""
    share = body.get("share")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise invalid("share must be a number from 0 to below 1", param="share")
    return float(share)


def _cut(body: dict[str, Any]) -> bool:
    value = body.get("cut", False)
    if not isinstance(value, bool):
        raise invalid("cut must be true or false", param="cut")
    return value


def _checkpoint(body: dict[str, Any], known: Collection[Path] = ()) -> Checkpoint:
    """What is to be served; its folder may be away when it is one of `known`. Raises ApiError 400."""
    for field in ("checkpoint", "path"):
        if not isinstance(body.get(field), str) or not body[field]:
            raise invalid(f"{field} is required", param=field)
    deployment = body.get("deployment", "")
    if not isinstance(deployment, str):
        raise invalid("deployment must be a string", param="deployment")
    path = Path(body["path"])
    if not path.is_absolute() or not (path in known or path.is_dir()):
        raise invalid("path must be an existing folder, absolute", param="path")
    return Checkpoint(body["checkpoint"], path, deployment)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
