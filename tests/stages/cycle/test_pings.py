"""Who watches the cycle is told of its start and its end."""

from __future__ import annotations

import errno
import http.server
import threading
from collections.abc import Iterator

import pytest

from stages import locks
from stages.cycle.record import Record
from stages.cycle.stub import StubStage, chain
from stages.errors import DependencyDownError, InputMissingError, LockedError, UsageError
from stages.eval.config import EvalConfig
from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.cycle.cycle_world import fail, run


class Checking(StubStage):
    """A stage that finds its settings wrong before the cycle begins."""

    def __init__(self) -> None:
        super().__init__("eval", EvalConfig, "checkpoint", "report")

    def check(self, workspace: Workspace) -> None:
        raise UsageError("there is no such suite")


@pytest.fixture
def monitor() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            heard.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/check", heard
    server.shutdown()


def test_pings(
    world: tuple[Workspace, Store], monitor: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, heard = monitor
    run(world, chain(), ping_url=url)
    assert heard == ["/check/start", "/check"]
    heard.clear()
    stages = chain()
    stages["collect"].use, stages["eval"].verdict = 1, "rejected"
    run(world, stages, ping_url=url)
    assert heard == ["/check/start", "/check/3"]
    heard.clear()
    stages["collect"].use = 2
    stages["collect"].before = fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(world, stages, ping_url=url)
    assert heard == ["/check/start", "/check/1"]
    heard.clear()
    stages["collect"].before = lambda: None
    with monkeypatch.context() as patched:
        no_room = fail(OSError(errno.ENOSPC, "No space left on device"))
        patched.setattr(Record, "save", lambda *_: no_room())
        with pytest.raises(DependencyDownError):
            run(world, stages, ping_url=url)
    assert heard == ["/check/start", "/check/13"]
    heard.clear()
    typo = {**chain(), "eval": Checking()}
    with pytest.raises(UsageError):
        run(world, typo, ping_url=url)
    assert heard == ["/check/start", "/check/2"]


def test_a_deaf_monitor_costs_a_warning(world: tuple[Workspace, Store]) -> None:
    result = run(world, chain(), ping_url="http://127.0.0.1:9/nobody")
    assert result.exit_code == 0
    assert len(result.warnings) == 2
    assert result.warnings[0] == "ping of http://127.0.0.1 failed: ConnectError"


def test_a_query_stays_behind_what_is_told(
    world: tuple[Workspace, Store], monitor: tuple[str, list[str]]
) -> None:
    """An address with a slug may say `?create=1`, and `/start` was added to that."""
    url, heard = monitor
    run(world, chain(), ping_url=f"{url}?create=1")
    assert heard == ["/check/start?create=1", "/check?create=1"]


def test_a_cycle_that_cannot_begin_is_told_unless_another_is_going_on(
    world: tuple[Workspace, Store], monitor: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without room, nothing live: the monitor heard neither of a start nor of an end."""
    (workspace, store), (url, heard) = world, monitor
    lock = store.lock_path(f"cycle-{workspace.settings.workspace.line}")
    with locks.hold(lock, what="another"), pytest.raises(LockedError):
        run(world, chain(), ping_url=url)
    assert heard == []
    nothing = fail(InputMissingError("nothing is live"))
    monkeypatch.setattr("stages.cycle.run.begin_line", lambda *_: nothing())
    with pytest.raises(InputMissingError):
        run(world, chain(), ping_url=url)
    assert heard == ["/check/5"]
