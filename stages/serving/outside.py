"""An engine that somebody else starts: checked, brought to the served checkpoint, watched.

In the place of a `Supervisor`. It is out of traffic while it does not answer; when it is back it may hold
anything, and gets traffic again once it was verified. It may be back before anybody missed it, or be given
other weights by somebody else: each of its answers names the process (`engine/guard.py`), and one of another
name than the verified is nobody's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.engine.config import EngineConfig
from stages.engine.update import EngineControl, GoesOn
from stages.engine.verification import Verification
from stages.errors import DependencyDownError, InputMissingError, IntegrityError, RtrlError, classified
from stages.gateway.rolling import FULL, Way, in_place
from stages.gateway.served import ServedState
from stages.serving.helper_client import HelperClient, Offer
from stages.serving.probes import probe
from stages.serving.supervisor import POLL_S, Say
from stages.target.config import TargetConfig

OTHER = "it is another process, or somebody else may have changed its weights"
TAKEN = "somebody else may have changed its weights: is it in [targets] of another workspace that is served?"
UNNAMED = "run it with --middleware stages.engine.guard.KeyGuard"


class Outside:
    """One such engine.

    Args:
        config: the served engine's settings: name, dtype, patience.
        served: shared with the gateway; `checkpoint` says what it is to hold.
        offer: as `HelperClient`'s.
    """

    def __init__(
        self,
        name: str,
        target: TargetConfig,
        config: EngineConfig,
        served: ServedState,
        say: Say,
        offer: Offer = lambda *_: None,
    ) -> None:
        self.name, self.target, self.config, self.served = name, target, config, served
        self.key = _token(target.key_file)
        self.verification: Verification | None = None
        self.way = self._read = Way(FULL, "it reads the store's folder itself")
        self._say, self._last = say, ""
        self._prepared = Path()
        self._updating, self._other = False, ""  # the second: why what it is named is not what was verified
        self._alone = asyncio.Lock()
        helper = target.helper, _token(target.helper_key_file), config.update_timeout_s, offer
        self._helper = HelperClient(name, *helper) if target.helper else None
        self.control = EngineControl(self.base_url, self.key, config, served.checkpoint.path)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return self.target.url.rstrip("/")

    async def start(self) -> None:
        """See that it holds the served checkpoint, else load that. Raises RtrlError."""
        async with self._alone:  # an update that is under way decides what that is
            await self._start()

    async def _start(self) -> None:
        checkpoint = self.served.checkpoint
        self.served.engine = "starting"
        self.control.start_with(checkpoint.path)  # for all that is known it is another process
        self._other = ""
        try:
            with self._attributed():
                await self._held(checkpoint.path)
        except RtrlError:
            self.served.engine = "down"
            raise
        self.served.health.starts += 1
        self.served.health.probe_failures = 0
        self.served.health.breaker.reset()
        self.served.engine = "ready" if self.served.checkpoint == checkpoint else "unknown"
        if not self.control.proven:
            self._said(f"it does not say when it is another process: {UNNAMED}")

    async def _held(self, path: Path) -> None:
        """See that it holds these weights, else load them."""
        if await self.control.health() != "ok":
            raise DependencyDownError(
                f"the engine {self.name} at {self.base_url} does not answer",
                hint=f"start it, or remove [targets.{self.name}]",
            )
        try:
            self.verification = await self.control.verify(path, await self._fetched(path))
        except IntegrityError:
            self.verification = await self._update(path)

    @contextmanager
    def _attributed(self) -> Iterator[None]:
        """What is wrong with it, with its helper, or on the way there is tried again, and nobody else's end:
        an RtrlError."""
        try:
            with classified():
                yield
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DependencyDownError(
                f"what answers at {self.base_url} is no engine, by what it says ({type(error).__name__})",
                hint=f"look at url in [targets.{self.name}], and at what stands before it",
            ) from error

    def known(self, name: str) -> bool:
        """Whether what the engine is named is what was verified; if not, no request gets to it any more."""
        proven = self.control.proven or ""
        if self._updating or name == proven:
            return True
        self._other = TAKEN if proven and name.partition(".")[0] == proven.partition(".")[0] else OTHER
        if self.served.engine == "ready":
            self.served.engine = "unknown"
        return False

    def can_keep(self, path: Path) -> bool:
        """It takes all weights in place; whether it tells of its answers."""
        return self.control.tells

    def sampled(self, generation: str) -> int | None:
        """See `EngineControl.sampled`."""
        return self.control.sampled(generation)

    async def update(self, path: Path, *, keep: GoesOn | None = None) -> Verification:
        """New weights into it, verified; `keep` as in `EngineControl.update`. Raises RtrlError."""
        async with self._alone:
            self._updating = True
            try:
                return await self._update(path, keep=keep)
            finally:
                self._updating = False

    async def _update(self, path: Path, *, keep: GoesOn | None = None) -> Verification:
        with self._attributed():
            self.verification = await self.control.update(path, await self._fetched(path), keep=keep)
        self.way = in_place(self.verification, self._read.why, self._read.way)
        return self.verification

    async def prepare(self, path: Path) -> None:
        """Before requests are held: its helper fetches, and it stages the weights. Raises RtrlError."""
        with self._attributed():
            await self.control.prepare(path, await self._fetched(path))

    async def _fetched(self, path: Path) -> str:
        """The checkpoint's folder as the engine sees it, fetched by its helper; "" for the same path.

        Raises DependencyDownError (13), IntegrityError (12).
        """
        if self._helper is None:
            return ""
        found = await self._helper.fetch(f"sha256:{path.name}")  # as the registry names its folders
        if path == self._prepared and not found.bytes:
            return found.path  # fetched a moment ago
        self._prepared = path
        how = f"its helper fetched {found.bytes:,} bytes" if found.bytes else "its helper had it"
        self._read = Way("in place by delta" if found.links else FULL, how)
        return found.path

    async def watch(self) -> None:
        """Until cancelled: notice that it stopped answering or holds unknown weights, and check it again."""
        every = self.config.health_every_s
        while True:
            if self.served.engine == "ready":
                reason = await self.trouble()
                self.served.engine = "down"
                self._say(f"engine {self.name}: {reason}; trying again every {every:g} s")
            try:
                await self.start()
            except RtrlError as error:
                self._said(error.message)
                await asyncio.sleep(every)
            else:
                self._say(f"engine {self.name}: ready")

    async def trouble(self) -> str:
        """Return when it cannot go on, with the reason."""
        next_probe = time.monotonic() + self.config.health_every_s
        while True:
            if self.served.engine == "unknown" and not self.served.gate.closed:
                return self._other or "its weights could not be verified"
            if time.monotonic() >= next_probe:
                answer = await probe(self.control, self.served.health, self.config.health_failures)
                if answer == "sick":
                    return "its core died"
                if self.served.health.probe_failures >= self.config.health_failures:
                    return "it does not answer"
                if answer == "ok" and not self.known(self.control.named):
                    return self._other
                next_probe = time.monotonic() + self.config.health_every_s
            await asyncio.sleep(POLL_S)

    async def stop(self, *, patient: bool = True) -> None:
        """Leave it alone from now on."""
        self.served.engine = "down"
        await self.control.close()

    def _said(self, message: str) -> None:
        if message != self._last:
            self._say(f"engine {self.name}: {message}")
        self._last = message


def _token(path: str) -> str:
    if not path:
        return "none"
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputMissingError(
            f"{path} cannot be read: {error.strerror}", hint="it holds a token"
        ) from error
