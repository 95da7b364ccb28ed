"""A small JSON document posted to somebody else's address, within a time that holds for all of it.

Of the answer nobody wants more than the status. Time-outs of httpx begin anew with every byte, so an answer
that drips kept a cycle for as long as it liked; and a resolver knows of no time-out. So a post has a thread,
which nobody waits for when its time is over. Not for: what is told, or whether it is tried again
(`stages/monitor/alert.py`, `stages/cycle/ping.py`).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

_JSON = {"content-type": "application/json"}


class _Loop(asyncio.SelectorEventLoop):
    """Asks the resolver in its own thread. The usual loop has others for that, and whoever closes it waits
    for them, as Python itself does at its end."""

    async def getaddrinfo(self, *place: Any, **kind: Any) -> Any:
        return socket.getaddrinfo(*place, **kind)


def post(url: str, body: dict[str, Any], timeout_s: float, *, redirects: bool = False) -> tuple[int, str]:
    """POST as JSON: the status of the answer, and "" or why there is none (status 0).

    Args:
        timeout_s: seconds for connecting, sending and the answer's head together.
        redirects: whether they are followed.
    """
    import httpx

    content = json.dumps(body)

    async def told() -> int:
        async with (
            httpx.AsyncClient(timeout=timeout_s, follow_redirects=redirects) as client,
            client.stream("POST", url, content=content, headers=_JSON) as answer,
        ):
            return answer.status_code

    async def in_time() -> int:
        return await asyncio.wait_for(told(), timeout_s)

    found: Future[int] = Future()
    threading.Thread(target=_run, args=(in_time, found), daemon=True).start()
    try:
        return found.result(timeout_s), ""
    except ImportError as error:  # the environment names a proxy that needs one more package
        return 0, f"ImportError: {error}"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:  # also of a proxy, certificates
        return 0, type(error).__name__


def _run(work: Callable[[], Coroutine[Any, Any, int]], found: Future[int]) -> None:
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            status = runner.run(work())
    except BaseException as error:  # noqa: BLE001  # whoever waits raises it
        found.set_exception(error)
    else:
        found.set_result(status)
