"""`rtrl serve`: one engine on the live checkpoint, the gateway before it, until told to stop.

    public listener   gateway.host:gateway.port         OpenAI API, /v1/events (docs/http.md)
    admin listener    run/admin.sock, or a loopback port   deploy and rollback come in here
    engine            a loopback port with a key of its own

One per workspace (`run/serve.lock`). The process ends by SIGTERM or SIGINT: requests in flight finish,
then the engine stops, then the spool closes. Killed by SIGKILL it takes the engine with it.

Not here: background running (`stages/serving/detach.py`), changing what is served
(`stages/target/switch.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stages import locks
from stages.engine.process import EngineProcess
from stages.errors import InputMissingError, LockedError, RtrlError
from stages.gateway.admin import Admin
from stages.gateway.app import create_app, open_inbox, open_spool
from stages.gateway.config import GatewayConfig
from stages.gateway.keys import ApiKeys
from stages.gateway.server import Listener, bind_tcp, bind_unix, calm_collector
from stages.gateway.tls import Certificate
from stages.registry.store import Store
from stages.serving.canary import CanaryEngine, keep_canary
from stages.serving.fleet import Fleet, engine_at
from stages.serving.lines import Lines
from stages.serving.reconcile import keep_reconciled, live_checkpoint, target_lock
from stages.serving.supervisor import Say
from stages.target.endpoint import LOCK, Endpoint, read_endpoint, remove_endpoint, write_endpoint
from stages.target.switch import complete, end_interrupted
from stages.vault import Vault
from stages.verdicts import Verdicts
from stages.workspace import Workspace

SOCKET_PATH_LIMIT = 100  # bytes; the kernel's is 107
NOTE_AGAIN_S = 5.0
DEFAULT_KEY = "default.key"  # in keys/, made by `rtrl init`


@dataclass(frozen=True)
class Ready:
    """What a person or script needs to know once it serves."""

    endpoint: Endpoint
    model: str
    checkpoint: str  # reference, for example checkpoint@v3
    digest: str
    deployment: str
    key_file: str
    seconds: float


def serve(workspace: Workspace, store: Store, *, say: Say, ready: Callable[[Ready], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns that signal's number. Call it from the main thread.

    Args:
        say: one line for people about what is going on.
        ready: called once, when requests can be answered.

    Raises:
        LockedError (11): another `rtrl serve` runs in this workspace; names it.
        InputMissingError (5): the line has no live checkpoint, or there are no keys.
        UsageError (2): an address cannot be listened on, the TLS files are no certificate with its key, or
            vLLM refuses a setting.
        DependencyDownError (13): the engine does not start; says why.
        IntegrityError (12): the engine does not serve the live checkpoint.
    """
    import uvloop

    os.umask(0o077)  # of everything that is written from now on, by the engine too
    workspace.close_to_others()
    lock = locks.acquire(workspace.run_dir / LOCK, what="rtrl serve", hint="stop it with `rtrl serve --stop`")
    try:
        _clean_up_after_killed(workspace.run_dir)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_Host(workspace, store, say).run(ready))
    finally:
        remove_endpoint(workspace.run_dir)
        lock.release()


def _clean_up_after_killed(run_dir: Path) -> None:
    """Remove what a killed `rtrl serve` left: its file and its engine's temporary folder."""
    if (left := read_endpoint(run_dir)) is not None:
        for engine in left.engines():
            if engine.temporary.startswith("/tmp/rtrl-engine-"):
                shutil.rmtree(engine.temporary, ignore_errors=True)
        remove_endpoint(run_dir)


class _Host:
    """Everything that lives as long as one `rtrl serve`."""

    def __init__(self, workspace: Workspace, store: Store, say: Say) -> None:
        settings = workspace.settings
        self.workspace, self.store, self.say = workspace, store, say
        self.config: GatewayConfig = settings.gateway
        self.certificate = Certificate.of(self.config, workspace.root)
        line = settings.workspace.line
        with contextlib.suppress(LockedError):  # a deploy is going on: it needs no repair
            lock = target_lock(store, line)
            complete(store, workspace.run_dir, line)
            end_interrupted(store, line)
            lock.release()
        live = live_checkpoint(store, line)
        if live is None:
            raise InputMissingError(
                f"line {line} has no live checkpoint", hint="`rtrl init` makes a line with one"
            )
        self.fleet = Fleet.of(workspace, store, line, live, say, self._engine_started)
        self.served, self.swapper = self.fleet.first, self.fleet.swapper
        self.admin_key = secrets.token_urlsafe(32)
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.sockets: dict[str, socket.socket] = {}
        self.admin_socket = ""
        self.is_ready = False

    async def run(self, ready: Callable[[Ready], None]) -> int:
        """Listen, start the engine, serve, shut down. Returns the signal's number."""
        begun = time.monotonic()
        stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, _finish, stop, number)
        keys = ApiKeys.open(self.workspace.keys_dir)
        if self.certificate and (warning := self.certificate.warning()):
            self.say(f"warning: {warning}")
        with contextlib.ExitStack() as resources:
            self._bind(resources)
            vault = Vault.open(self.workspace.keys_dir)
            resources.callback(vault.close)
            spool = open_spool(self.workspace.spool_dir, vault, self.config)
            resources.callback(spool.close)
            inbox = open_inbox(self.workspace.inbox_dir, vault, self.config)
            resources.callback(inbox.close)
            first, *more = self.fleet.arms()
            verdicts = Verdicts(self.workspace.settings.collect.metrics)
            gateway = create_app(self.config, spool, inbox, vault, keys, first.engine, self.served, verdicts)
            gateway.arms.pool.members = [gateway.arms.live, *more]
            self.canary = CanaryEngine(
                self.workspace.settings.engine,
                self.config,
                gateway.arms,
                self.store.dir / "logs" / "canary.log",
                self.say,
                self._engine_started,
            )
            self.arms = gateway.arms
            self.lines = Lines(
                self.workspace, self.store, self.arms, spool.flush, self.say, self._engine_started
            )
            admin = Admin(
                self.admin_key, self.arms, self.swapper, spool, gateway.metrics, self.canary, self.lines
            )
            listeners = [
                Listener(gateway, [self.sockets["public"]], self.config, self.certificate),
                Listener(admin, [self.sockets["admin"]], self.config),
            ]
            return await self._serve(listeners, stop, ready, begun)

    async def _serve(
        self,
        listeners: list[Listener],
        stop: asyncio.Future[int],
        ready: Callable[[Ready], None],
        begun: float,
    ) -> int:
        background: list[asyncio.Task[Any]] = []
        try:
            for listener in listeners:
                await listener.start()
            starting = asyncio.create_task(self.fleet.start())
            first: set[asyncio.Future[Any]] = {starting, stop}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return await self._give_up(starting, stop.result())
            starting.result()
            calm_collector()
            self.is_ready = True
            ready(self._ready(time.monotonic() - begun))
            background = [
                asyncio.create_task(self.fleet.watch()),
                asyncio.create_task(
                    keep_reconciled(self.store, self.served, self.swapper, self.say, self.workspace.run_dir)
                ),
                asyncio.create_task(
                    keep_canary(self.store, self.canary, self.arms, self.config.drain_timeout_s, self.say)
                ),
                asyncio.create_task(self.lines.keep()),
            ]
            await asyncio.wait({stop, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()  # a bug in a background task ends the program loudly
            self.say("stopping: requests in flight finish first")
            return stop.result()
        finally:
            await self._shut_down(listeners, background)

    async def _give_up(self, starting: asyncio.Task[None], number: int) -> int:
        """Told to stop before the engine was there."""
        self.say("stopping while the engine starts")
        await self.fleet.stop(patient=False)
        await asyncio.wait({starting})
        with contextlib.suppress(RtrlError):  # it died of being stopped
            starting.result()
        return number

    async def _shut_down(self, listeners: list[Listener], background: list[asyncio.Task[Any]]) -> None:
        """Background work first, then the public side with its requests, the engine last."""
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for listener in listeners:
            await listener.stop()
        await asyncio.gather(self.canary.close(0.1), self.lines.close(), self.fleet.stop())

    def _bind(self, resources: contextlib.ExitStack) -> None:
        self.sockets["public"] = resources.enter_context(bind_tcp(self.config.host, self.config.port))
        path = Path(self.config.admin_socket or self.workspace.run_dir / "admin.sock")
        if self.config.admin_port is None and len(str(path).encode()) <= SOCKET_PATH_LIMIT:
            self.sockets["admin"] = resources.enter_context(bind_unix(path))
            self.admin_socket = str(path)
            resources.callback(path.unlink, missing_ok=True)
        else:
            self.sockets["admin"] = resources.enter_context(
                bind_tcp("127.0.0.1", self.config.admin_port or 0)
            )

    def _engine_started(self, _process: EngineProcess | None = None) -> None:
        if not self.is_ready:
            return
        try:
            self._note()
        except OSError as error:  # a full disk: it serves all the same
            self.say(f"{self.workspace.run_dir} takes no note of the engine ({error.strerror}); trying again")
            asyncio.get_running_loop().call_later(NOTE_AGAIN_S, self._engine_started)

    def _note(self) -> Endpoint:
        engines = [engine_at(each) for each in self.fleet.engines]
        endpoint = Endpoint(
            pid=os.getpid(),
            started_at=self.started_at,
            line=self.served.line,
            url=url_of(self.sockets["public"], "https" if self.certificate else "http"),
            admin_key=self.admin_key,
            admin_socket=self.admin_socket,
            admin_url="" if self.admin_socket else url_of(self.sockets["admin"]),
            engine=engines[0],
            more=tuple(engines[1:]),
            canary=engine_at(self.canary.supervisor) if self.canary.supervisor else None,
            others={name: engine_at(one) for name, one in self.lines.supervisors().items()},
        )
        write_endpoint(self.workspace.run_dir, endpoint)
        return endpoint

    def _ready(self, seconds: float) -> Ready:
        checkpoint = self.served.checkpoint
        artifact = self.store.artifact(checkpoint.digest)
        return Ready(
            endpoint=self._note(),
            model=self.served.model,
            checkpoint=artifact.ref if artifact else checkpoint.digest,
            digest=checkpoint.digest,
            deployment=checkpoint.deployment,
            key_file=str(self.workspace.keys_dir / DEFAULT_KEY),
            seconds=round(seconds, 2),
        )


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """`http://host:port` of a TCP socket."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _finish(stop: asyncio.Future[int], number: int) -> None:
    """The first signal asks for a clean end; the second one does not wait for it."""
    if not stop.done():
        stop.set_result(number)
    else:
        raise SystemExit(128 + number)
