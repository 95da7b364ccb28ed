"""`python -m stages.delivery --store URL --cache FOLDER --port N`: the helper beside an engine.

Fetches the checkpoints that the gateway asks for and says where they lie, for an engine that reads the same
folder. Wants `Authorization: Bearer` with the token in RTRL_HELPER_KEY on every route. Credentials of the
store are in the environment too (docs/serving.md).

    POST /fetch {"checkpoint": "sha256:..."}  ->  {"path": ..., "bytes": ..., "links": ..., "seconds": ...}
    GET /health

Whatever goes wrong, a bug too, is told as {"error": {"code": ..., "message": ..., ...}}.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import logging
import os
import re
import sys
import time
import traceback
from pathlib import Path

from stages.delivery.depot import Depot, LostError
from stages.delivery.fetch import fetch, held
from stages.delivery.place import place
from stages.errors import RtrlError, UsageError, classified
from stages.gateway.errors import ApiError, invalid
from stages.gateway.http import (
    ClientGoneError,
    Receive,
    Scope,
    Send,
    answer_lifespan,
    header,
    parse_object,
    read_body,
    send_error,
    send_json,
)

KEY_VARIABLE = "RTRL_HELPER_KEY"
_log = logging.getLogger("rtrl.delivery")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Helper:
    """The helper as an ASGI application."""

    def __init__(self, store: str, cache: Path, key: str) -> None:
        self._store, self._cache = store, cache
        self._expected = f"Bearer {key}".encode()
        self._busy = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await answer_lifespan(receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except ApiError as error:
            await send_error(send, error)
        except RtrlError as error:
            told = {"message": error.message, "hint": error.hint, "exit_code": error.code, "code": error.kind}
            if isinstance(error, LostError):
                told["lost"] = error.digest
            await send_json(send, 503 if error.code == 13 else 409, {"error": told})
        except ClientGoneError:
            pass
        except Exception as error:  # noqa: BLE001  # the edge: whoever asked has to know that it is the helper
            # never the exception's words: they may hold credentials
            name, where = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            _log.error("%s in the helper\n%s", name, where)
            told = {"message": f"a bug: {name}", "hint": "see its log", "exit_code": 1, "code": "bug"}
            await send_json(send, 500, {"error": told})

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not hmac.compare_digest(header(scope, b"authorization"), self._expected):
            raise ApiError(401, "authentication_error", "invalid_key", "the helper's key is missing or wrong")
        route = (scope["method"], scope["path"])
        if route == ("GET", "/health"):
            await send_json(send, 200, {"status": "ok"})
        elif route == ("POST", "/fetch"):
            body = parse_object(await read_body(scope, receive, 1 << 16))
            digest = body.get("checkpoint")
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                raise invalid("checkpoint must be a sha256 digest", param="checkpoint")
            began = time.monotonic()
            with classified():  # a full disk
                if (found := held(digest, self._cache)) is None:
                    async with self._busy:
                        found = await asyncio.to_thread(fetch, self._store, digest, self._cache)
            seconds = round(time.monotonic() - began, 3)
            told = {"path": str(found.path), "bytes": found.bytes, "links": found.links, "seconds": seconds}
            await send_json(send, 200, told)
        else:
            raise ApiError(404, "invalid_request_error", "not_found", "there is no such route")


def main() -> int:
    """Serve until interrupted; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, help="as `deploy.store`")
    parser.add_argument("--cache", type=Path, required=True, help="folder that the engine reads too")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    try:
        _serve(parser.parse_args())
    except RtrlError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.code
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    """Raises UsageError (2): no key, or no URL; InputMissingError (5): the store's package is missing."""
    import uvicorn

    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise UsageError(f"{KEY_VARIABLE} is not set", hint="any long random text, the same in the gateway")
    try:
        Depot(place(arguments.store))
    except ValueError as error:
        raise UsageError(f"--store: {error}", hint="as deploy.store in docs/serving.md") from None
    helper = Helper(arguments.store, arguments.cache.resolve(), key)
    uvicorn.run(helper, host=arguments.host, port=arguments.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    sys.exit(main())
