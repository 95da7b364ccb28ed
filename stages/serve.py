"""`rtrl serve`: one engine on the live checkpoint, the gateway before it, until told to stop.

    public listener   gateway.host:gateway.port         OpenAI API, /v1/events (docs/http.md)
    admin listener    run/admin.sock, or a loopback port   deploy and rollback come in here
    engine            a loopback port with a key of its own

One per workspace (`run/serve.lock`). The process ends by SIGTERM or SIGINT: no new generation is taken,
those in flight finish, then the engine stops, then the spool closes; a second signal ends it at once.
Killed by SIGKILL it takes the engine with it. systemd hears of all this (`stages/serving/notify.py`).

Not here: background running (`stages/serving/detach.py`), changes (`stages/target/switch.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages import locks
from stages.engine.process import EngineProcess
from stages.errors import DependencyDownError, InputMissingError, LockedError, RtrlError
from stages.gateway import logs
from stages.gateway.admin import Admin
from stages.gateway.app import Gateway, create_app
from stages.gateway.config import GatewayConfig
from stages.gateway.key_file import DEFAULT_KEY
from stages.gateway.keys import ApiKeys
from stages.gateway.server import Listener, calm_collector, serving_loop
from stages.gateway.tls import Certificate
from stages.interrupts import endings
from stages.populations import FIRST, verdicts_of
from stages.registry.store import Store
from stages.serving.addresses import Addresses, clean_up_after_killed
from stages.serving.ahead import StagedAhead
from stages.serving.announce import Announcer
from stages.serving.canary import keep_canary
from stages.serving.edge import Edge
from stages.serving.ending import BESIDE_S, ending_s
from stages.serving.fleet import Fleet
from stages.serving.notify import Notifier
from stages.serving.reconcile import keep_reconciled, live_checkpoint, lock_now, moved_to
from stages.serving.supervisor import Say
from stages.serving.written import written
from stages.target.completed import complete
from stages.target.endpoint import LOCK, Endpoint, remove_endpoint
from stages.target.switch import end_interrupted
from stages.vault import Vault
from stages.workspace import Workspace

NOTE_AGAIN_S = 5.0


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
    """Serve until SIGTERM, SIGINT or SIGHUP. Call it from the main thread.

    Returns the exit status: 0 after SIGTERM when every accepted request was answered, else 128 and the
    signal's number.

    Args:
        say: one line for people about what is going on; with `gateway.log_format = "json"` it is logged.
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

    notifier = Notifier.from_environment()
    settings = workspace.settings
    logs.configure(settings.gateway.log_format)
    if settings.gateway.log_format == "json":
        say = logs.say
    os.umask(0o077)  # of everything that is written from now on, by the engine too
    workspace.close_to_others()
    lock = locks.acquire(workspace.run_dir / LOCK, what="rtrl serve", hint="stop it with `rtrl serve --stop`")
    try:
        clean_up_after_killed(workspace.run_dir, say)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            notifier.starting("the engine starts", settings.engine.startup_timeout_s + BESIDE_S)
            host = _Host(workspace, store, notifier, say)
            status = runner.run(host.run(ready))
    finally:
        remove_endpoint(workspace.run_dir)
        lock.release()
    if host.is_ready:
        say("stopped")
    return status


class _Host:
    """All that lives as long as one `rtrl serve`; lines of populations are beside, whichever is worked on."""

    def __init__(self, workspace: Workspace, store: Store, notifier: Notifier, say: Say) -> None:
        workspace = workspace.on_line(workspace.settings.workspace.serves)
        settings = workspace.settings
        self.workspace, self.store, self.say = workspace, store, say
        self.config: GatewayConfig = settings.gateway
        self.certificate = Certificate.of(self.config, workspace.root)
        line = settings.workspace.line
        try:
            with lock_now(store, line).held():
                complete(store, workspace.run_dir, line)
                end_interrupted(store, line)
        except LockedError:  # a deploy is going on: it needs no repair
            pass
        except DependencyDownError as error:  # the registry takes no writes
            say(f"what was interrupted is not on record yet: {error.message}")
        live = moved_to(store, workspace.run_dir, line) or live_checkpoint(store, line)
        if live is None:
            raise InputMissingError(f"line {line} has no live checkpoint", hint=FIRST)
        self.announcer = Announcer(notifier)
        changes = self._engine_started, self.announcer.updating
        self.fleet = Fleet.of(workspace, store, line, live, say, *changes)
        self.served, self.swapper = self.fleet.first, self.fleet.swapper
        self.swapper.told = self.announcer.swapped
        self.announcer.engines = [each.served for each in self.fleet.engines]
        self.addresses = Addresses(workspace.run_dir, settings, tls=self.certificate is not None)
        self.is_ready = self.is_ending = False
        self.edge: Edge | None = None

    async def run(self, ready: Callable[[Ready], None]) -> int:
        """Listen, start the engine, serve, shut down. Returns the exit status."""
        begun = time.monotonic()
        stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for wanted in endings():
            asyncio.get_running_loop().add_signal_handler(wanted, self._signalled, stop, wanted)
        serving_loop(asyncio.get_running_loop())
        keys = ApiKeys.open(self.workspace.keys_dir)
        if self.certificate and (warning := self.certificate.warning()):
            self.say(f"warning: {warning}")
        with contextlib.ExitStack() as resources:
            self.addresses.bind(resources)
            vault = Vault.open(self.workspace.keys_dir)
            resources.callback(vault.close)
            into = written(self.workspace, self.store, vault, self.say)
            spool, inbox = resources.enter_context(into)
            first, *more = self.fleet.arms()
            rules = verdicts_of(self.workspace)
            made = (self.config, spool, inbox, vault, keys, first.engine, self.served, rules)
            engine = self.workspace.settings.engine
            gateway = create_app(*made, drafts=engine.drafts, context=engine.max_model_len)
            gateway.arms.pool.members = [gateway.arms.live, *more]
            around = (self.workspace, self.store, gateway, spool.flush, self.announcer, self.say)
            self.edge = edge = Edge.make(*around, self._engine_started)
            key, metrics = self.addresses.admin_key, gateway.metrics
            ahead = StagedAhead(self.store, self.served.line, self.swapper).ask
            admin = Admin(key, gateway.arms, self.swapper, spool, metrics, edge.canary, edge.lines, ahead)
            listeners = [
                Listener(gateway, [self.addresses.public], self.config, self.certificate),
                Listener(admin, [self.addresses.admin], self.config),
            ]
            alive = asyncio.create_task(self.announcer.keep())
            try:
                number, cut = await self._serve(listeners, edge, stop, ready, begun)
            finally:
                alive.cancel()
            whole = self.is_ready and not cut and spool.failed is None
            return 0 if number == signal.SIGTERM and whole else 128 + number

    async def _serve(
        self,
        listeners: list[Listener],
        edge: Edge,
        stop: asyncio.Future[int],
        ready: Callable[[Ready], None],
        begun: float,
    ) -> tuple[int, int]:
        """(the signal that ended it, how many requests were cut short then)."""
        cut = 0
        background: list[asyncio.Task[Any]] = []
        try:
            for listener in listeners:
                await listener.start()
            starting = asyncio.create_task(self.fleet.start())
            first: set[asyncio.Future[Any]] = {starting, stop}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return await self._give_up(starting, stop.result()), 0
            starting.result()
            calm_collector()
            self.is_ready = True
            facts = self._ready(time.monotonic() - begun)
            self.announcer.ready()
            ready(facts)
            drain_s, run_dir = self.config.drain_timeout_s, self.workspace.run_dir
            keeping = (
                self.fleet.watch(),
                keep_reconciled(self.store, self.served, self.swapper, self.say, run_dir),
                keep_canary(self.store, edge.canary, edge.gateway.arms, drain_s, self.say, run_dir),
                edge.lines.keep(),
            )
            background = [asyncio.create_task(each) for each in keeping]
            await asyncio.wait({stop, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()  # a bug in a background task ends the program loudly
            self.say("stopping: requests in flight finish first")
            edge.end()
            cut = await self._drain(edge.gateway)
            return stop.result(), cut
        finally:
            await self._shut_down(listeners, edge, background)

    async def _give_up(self, starting: asyncio.Task[None], number: int) -> int:
        """Told to stop before the engine was there."""
        self.say("stopping while the engine starts")
        await self.fleet.stop(patient=False)
        await asyncio.wait({starting})
        with contextlib.suppress(RtrlError):  # it died of being stopped
            starting.result()
        return number

    async def _drain(self, gateway: Gateway) -> int:
        """Accepted requests finish, while the listeners go on refusing new ones. How many were cut short."""
        limit = self.config.shutdown_timeout_s
        self.announcer.draining(gateway.admission.accepted, limit, ending_s(self.workspace.settings))
        cut = await gateway.drain(limit)
        self.announcer.drained(cut)
        if cut:
            self.say(f"{cut} requests took longer than {limit:g} s and were cut short")
        return cut

    def _signalled(self, stop: asyncio.Future[int], number: int) -> None:
        """The first one asks for a clean end, the second one does not wait for it: what was answered is with
        the operating system. SIGHUP is no second one: a shell says it, and the kernel."""
        if not stop.done():
            stop.set_result(number)
        elif number != signal.SIGHUP:
            self._end_now(number)

    def _end_now(self, number: int) -> None:
        self.say("stopping at once")
        for engine in (*self.fleet.own, *(self.edge.beside() if self.edge else ())):
            engine.kill()
        self.addresses.forget()
        os._exit(128 + number)

    async def _shut_down(
        self, listeners: list[Listener], edge: Edge, background: list[asyncio.Task[Any]]
    ) -> None:
        """Background work first, then the listeners, the engine last."""
        self.is_ending = True
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for listener in listeners:
            await listener.stop()
        await asyncio.gather(edge.canary.close(0.1), edge.lines.close(), self.fleet.stop())

    def _engine_started(self, _process: EngineProcess | None = None) -> None:
        if not self.is_ready or self.is_ending:
            return
        try:
            self._note()
        except OSError as error:  # a full disk: it serves all the same
            self.say(f"{self.workspace.run_dir} takes no note of the engine ({error.strerror}); trying again")
            asyncio.get_running_loop().call_later(NOTE_AGAIN_S, self._engine_started)

    def _note(self) -> Endpoint:
        assert self.edge is not None
        canary, others = self.edge.canary.supervisor, self.edge.lines.supervisors()
        return self.addresses.note(self.served.line, self.fleet.engines, canary, others)

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
