"""What answers in the place of a helper, or of an engine outside, may be anything: the gateway goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import orjson
import pytest

from stages.engine.config import EngineConfig
from stages.engine.guard import KEY_VARIABLE
from stages.errors import DependencyDownError, IntegrityError
from stages.gateway.served import Checkpoint, ServedState
from stages.serving.helper_client import HelperClient
from stages.serving.outside import Outside
from stages.target.config import TargetConfig
from tests.stages.serving.test_outside import World, folder, world

PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
STRANGE = {
    "a proxy's page": (502, PAGE),
    "a page": (200, PAGE),
    "what uvicorn says of a bug": (500, b"Internal Server Error"),
    "nothing": (200, b""),
    "nothing, and an error": (409, b""),
    "not even text": (200, b"\xff\xfe\x00"),
    "a list": (200, b"[]"),
    "a number": (200, b"7"),
    "other names": (200, b'{"folder": "/x", "size": 3}'),
    "other types": (200, b'{"path": 1, "bytes": "many", "links": null}'),
    "an error of another shape": (409, b'{"error": "no"}'),
    "an error that is null": (409, b'{"error": null}'),
    "an error in a list": (503, b'[{"error": {}}]'),
    "a hundred thousand lists": (200, b'{"path": "/x", "more": ' + b"[" * 100_000),
    "a redirection": (302, b""),
    "another 2xx": (202, b'{"path": "/x", "bytes": 0, "links": 0}'),
}


class Server:
    """Gives the same answer to whoever asks for whatever. `asked`: how often."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer, self.asked = (status, body), 0

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Its URL."""
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                told.asked += 1
                status, body = told.answer
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")


@asynccontextmanager
async def with_helper(root: Path, status: int, body: bytes) -> AsyncIterator[tuple[World, Server]]:
    helper = Server(status, body)
    with helper.listening() as url:
        async with world(root, helper=url) as made:
            yield made, helper


def offering_to(made: World, offer: Callable[[str, str], object]) -> None:
    assert made.outside._helper is not None
    made.outside._helper._offer = offer


def told(**what: object) -> bytes:
    """What a helper says that does not do it."""
    return orjson.dumps({"error": {"message": "so it is", "hint": "do that", **what}})


def had(path: Path) -> bytes:
    """What a helper says that has it."""
    return orjson.dumps({"path": str(path), "bytes": 0, "links": 0, "seconds": 0.0})


@pytest.mark.parametrize("what", STRANGE)
async def test_what_no_helper_says_is_a_dependency_that_is_down(tmp_path: Path, what: str) -> None:
    """It was a ValueError (a KeyError, ...), for which `rtrl serve` ended, again at each start."""
    async with with_helper(tmp_path, *STRANGE[what]) as (made, helper):
        outside, path = made.outside, made.live
        for ask in (outside.start, lambda: outside.prepare(path), lambda: outside.update(path)):
            with pytest.raises(DependencyDownError, match="the helper of far") as caught:
                await ask()
            assert caught.value.hint
            assert str(STRANGE[what][0]) in caught.value.message
        assert (outside.served.engine, helper.asked) == ("down", 3)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (409, {"exit_code": 12, "code": "integrity"}, IntegrityError),
        (503, {"exit_code": 13, "code": "dependency_down"}, DependencyDownError),
        (409, {"exit_code": 5, "code": "input_missing"}, DependencyDownError),
        (401, {"type": "authentication_error", "param": None, "code": "invalid_key"}, DependencyDownError),
    ],
)
async def test_what_a_helper_says_is_repeated(
    tmp_path: Path, status: int, error: dict[str, object], kind: type[Exception]
) -> None:
    """Only damage is damage: all else may be mended there, and is tried again."""
    async with with_helper(tmp_path, status, told(**error)) as (made, _):
        with pytest.raises(kind, match="the helper of far: so it is") as caught:
            await made.outside.prepare(made.live)
        assert caught.value.hint == "do that"  # type: ignore[attr-defined]


async def test_what_is_lost_is_offered_once(tmp_path: Path) -> None:
    lost = told(exit_code=12, lost="sha256:base")
    async with with_helper(tmp_path, 409, lost) as (made, helper):
        offered: list[tuple[str, str]] = []
        offering_to(made, lambda digest, base: offered.append((digest, base)))
        with pytest.raises(IntegrityError, match="so it is"):
            await made.outside.prepare(made.live)
        assert (offered, helper.asked) == ([("sha256:live", "sha256:base")], 2)


async def test_a_store_that_fails_while_something_is_offered_is_tried_again(tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/srv/weights")

    async with with_helper(tmp_path, 409, told(exit_code=12, lost="sha256:base")) as (made, _):
        offering_to(made, full)
        with pytest.raises(DependencyDownError, match="the disk is full"):
            await made.outside.start()
        assert made.outside.served.engine == "down"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_engine_is_back_when_its_helper_is(tmp_path: Path) -> None:
    async with with_helper(tmp_path, *STRANGE["a proxy's page"]) as (made, helper):
        watching = asyncio.create_task(made.outside.watch())
        await until(lambda: helper.asked > 2 or watching.done())
        assert not watching.done()
        assert len(made.said) == 1, "said once"
        helper.answer = 200, had(made.live)
        await until(lambda: made.outside.served.engine == "ready")
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@pytest.mark.parametrize("what", [each for each in STRANGE if STRANGE[each][0] == 200])
async def test_a_server_that_is_no_engine_is_a_dependency_that_is_down(tmp_path: Path, what: str) -> None:
    """Its health is 200, as that of any page."""
    path = folder(tmp_path, "live")
    served = ServedState("auto", "rtrl", Checkpoint("sha256:live", path))
    with Server(*STRANGE[what]).listening() as url:
        engine = EngineConfig(program="stub", health_every_s=0.05)
        outside = Outside("far", TargetConfig(url=url), engine, served, lambda _: None)
        for ask in (outside.start, lambda: outside.prepare(path), lambda: outside.update(path)):
            with pytest.raises(DependencyDownError, match="no engine") as caught:
                await ask()
            assert caught.value.hint
        assert served.engine == "down"
        await outside.stop()


async def test_a_helper_that_is_still_fetching_is_not_told_to_be_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large checkpoint from a slow store: "does not answer, start it" was said of one that was at work."""

    async def late(*_: object, **__: object) -> None:
        raise httpx.ReadTimeout("")

    monkeypatch.setattr(httpx.AsyncClient, "post", late)
    helper = HelperClient("far", "http://127.0.0.1:1", "k", 120.0, lambda *_: None)
    with pytest.raises(DependencyDownError, match="far has not fetched") as caught:
        await helper.fetch("sha256:" + "0" * 64)
    assert "engine.update_timeout_s" in caught.value.hint
