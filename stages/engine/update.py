"""New weights into a running vLLM server, and the proof that it serves them.

`EngineControl` speaks to the engine's loopback port over HTTP. It neither decides what to serve
(the gateway's swap does) nor starts processes (`process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine.config import EngineConfig
from stages.engine.identity import Identity, UpdateImpossibleError, identity_of, require_same_model
from stages.engine.questions import Questions
from stages.engine.under_way import Sampled
from stages.engine.verification import (
    Fingerprint,
    Source,
    TensorReport,
    Verification,
    not_published,
    read_fingerprint,
    stale,
    tensor_report,
    weights_key,
)
from stages.engine.weights_file import Files, Signature, signature
from stages.errors import IntegrityError, RtrlError

RESUME_S = 2.0
GoesOn = Callable[[], None]


class Loaded(NamedTuple):
    """See `Verification`."""

    source: Source
    keeps: str


class EngineControl(Questions):
    """The weights of one vLLM server. Not for concurrent use: one update at a time.

    Args:
        base_url, key: where it listens, and the bearer token its port wants.
        config: the engine's settings.
        started_with: the checkpoint folder the process was started on; its tokenizer stays.
    """

    def __init__(self, base_url: str, key: str, config: EngineConfig, started_with: Path) -> None:
        super().__init__(base_url, key, config)
        self.start_with(started_with)
        self._prepared: Path | None = None
        self._files = Files()

    def start_with(self, checkpoint_dir: Path) -> None:
        """The process was started anew, on this folder."""
        self._started: Path | Identity = checkpoint_dir
        self.tells = False  # whether the engine can say how many tokens its answers have
        self._counts = False  # whether it has been seen to count what its prefix cache holds
        self._sampled = Sampled()
        self._ahead: tuple[Path, Signature, asyncio.Task[tuple[str, ...]]] | None = None
        self._kept = ""  # key of the weights that the engine keeps beside those it serves
        self._staged = ""  # and of those that are ready to be served, and whose file was looked at
        self._unstaged = ""  # why none are
        # what the engine was named when it was last found to hold what it should; None while nothing is known
        self.proven: str | None = None

    @property
    def started_with(self) -> Identity:
        """Of the checkpoint that the process was started on. Raises IntegrityError (12)."""
        if isinstance(self._started, Path):
            self._started = identity_of(self._started)
        return self._started

    async def prepare(self, checkpoint_dir: Path, seen_as: str = "") -> None:
        """What an update can do while requests are still answered. Raises as `update`; nothing is changed."""
        expected = read_fingerprint(checkpoint_dir)
        await self.stage(checkpoint_dir, seen_as)
        await self._witness(expected)
        self._prepared = checkpoint_dir

    async def stage(self, checkpoint_dir: Path, seen_as: str = "") -> None:
        """Have the weights read, packed and compared beside those that are served, between its steps.

        Goes on where it was stopped, also by being cancelled. Where there is no room for them (or the engine
        cannot do it), the update loads the file as if nothing had been asked. Raises as `update`.
        """
        await asyncio.to_thread(require_same_model, self.started_with, checkpoint_dir)  # it may take seconds
        expected = read_fingerprint(checkpoint_dir)
        key = weights_key(expected)
        if key == self._kept:
            return
        state = signature(checkpoint_dir)
        looking = self._looked(checkpoint_dir, expected)
        self._ahead = checkpoint_dir, state, looking  # goes on meanwhile: it has another core
        answer = {"state": "going"}
        arguments = self._named(checkpoint_dir, expected, seen_as) | {"key": key, "about": repr(state)}
        while answer.get("state") == "going":
            answer = await self.call("rtrl_stage", **arguments, limit_gib=self.config.resident_gib)
        self._staged, self._unstaged = "", str(answer.get("why") or "")
        if answer.get("state") != "staged":
            return
        found = await asyncio.shield(looking)
        self._ahead = None
        wrong = (*found, *answer.get("file_mismatch", ()))
        if not wrong and signature(checkpoint_dir) == state:  # what was looked at is what was staged
            self._staged = key
            return
        await self.unstage()
        if wrong:
            raise not_published(checkpoint_dir, wrong)

    async def unstage(self) -> None:
        """Nobody came for what was staged: its memory is free again. Raises DependencyDownError (13)."""
        self._staged = ""
        await self.call("rtrl_unstage")

    async def update(
        self, checkpoint_dir: Path, seen_as: str = "", *, keep: GoesOn | None = None
    ) -> Verification:
        """Load, reset the prefix cache, verify. The caller keeps requests away meanwhile.

        Weights that the engine kept, or that were staged, are exchanged for those it holds; where they are
        not whole then, they come from the file.

        What the engine still works on was cut off by the caller, or its client is gone: it is aborted, for
        the engine notices closed connections late when there are many. Unless it is to be kept: then it goes
        on with the new weights, its keys and values computed again, and `sampled` tells of its tokens.

        Args:
            seen_as: the folder as an engine on another machine has it; default the same path.
            keep: what it works on goes on. Called before it does: what is sampled from then on, and until
                this returns, is of weights that are not proven yet.

        Raises:
            UpdateImpossibleError, IntegrityError (12): not loadable here, or not what is served after.
            DependencyDownError (13): the engine does not answer.
        """
        self._sampled = Sampled()
        expected = read_fingerprint(checkpoint_dir)
        prepared, self._prepared = self._prepared, None
        if prepared != checkpoint_dir:
            await self._witness(expected)
        if weights_key(expected) in (self._kept, self._staged):
            try:
                return await self._update(checkpoint_dir, expected, seen_as, keep, file=False)
            except IntegrityError:
                if keep:  # what went on has tokens of weights that are none
                    raise
        return await self._update(checkpoint_dir, expected, seen_as, keep, file=True)

    async def _update(
        self, checkpoint_dir: Path, expected: Fingerprint, seen_as: str, keep: GoesOn | None, *, file: bool
    ) -> Verification:
        """`update`, from the engine's memory where it has the weights, or from the `file`."""
        looking = self._looked(checkpoint_dir, expected) if file else None
        try:
            await self._post(f"/pause?mode={'keep' if keep else 'abort'}")
            try:
                loaded = await self._exchanged(checkpoint_dir, seen_as, keep, file=file)
            except BaseException:
                with contextlib.suppress(TimeoutError, RtrlError):  # a hung engine is not waited for
                    async with asyncio.timeout(RESUME_S):
                        await self._post("/resume")
                raise
            await self._post("/resume")
            if looking is None and loaded.source == "file":  # it had been started anew
                looking = self._look(checkpoint_dir, expected)
            found, _ = await asyncio.gather(
                self._verified(checkpoint_dir, expected, looking, seen_as), self._require_computed(expected)
            )
            return replace(found, source=loaded.source, keeps=loaded.keeps, unstaged=self._unstaged)
        finally:
            if looking is not None:
                looking.cancel()

    async def _exchanged(
        self, checkpoint_dir: Path, seen_as: str, keep: GoesOn | None, *, file: bool
    ) -> Loaded:
        """The weights and an empty prefix cache, while the engine stands still. Calls `keep` in any case."""
        try:
            loaded = await self.load_weights(checkpoint_dir, seen_as, file=file)
            if keep:
                self._sampled.require()
            await self.reset_prefix_cache()
            if self._counts and (blocks := await self.cached_blocks()) != 0:
                raise stale(f"{blocks} blocks")
            return loaded
        finally:
            if keep:
                keep()

    async def _witness(self, expected: Fingerprint) -> None:
        """See that a prefix cache which is not emptied by an update gives itself away.

        An engine that is seen to count what it has cached is asked for that count, once it was told to drop
        all; another one for a prompt, which it has cached now.
        """
        if not self._counts:
            await self.cached(expected)
            self._counts = bool(await self.cached_blocks())

    async def _require_computed(self, expected: Fingerprint) -> None:
        """The prompt of `_witness` is computed anew. Raises IntegrityError (12)."""
        if not self._counts and (tokens := await self.cached(expected)):
            raise stale(f"{tokens} tokens")

    async def load_weights(self, checkpoint_dir: Path, seen_as: str = "", *, file: bool = False) -> Loaded:
        """Replace the engine's weights in place by the folder's. Proves nothing yet: call `verify`.

        Args:
            file: read the file also when the engine has kept these weights.
        """
        require_same_model(self.started_with, checkpoint_dir)
        key = weights_key(read_fingerprint(checkpoint_dir))
        arguments = {"path": seen_as or str(checkpoint_dir), "key": key, "file": file}
        answer = await self.call("rtrl_load", changes=True, **arguments, limit_gib=self.config.resident_gib)
        self._kept, self._staged = str(answer.get("kept", "")), ""
        self._sampled = Sampled.of(answer.get("under_way") or {})
        return Loaded(answer.get("source", "file"), str(answer.get("keeps", "")))

    def sampled(self, generation: str) -> int | None:
        """Tokens that a generation had when the last update stopped it; None when it was complete.

        0 also of one that the engine did not know yet.
        """
        return self._sampled.of_generation(generation)

    async def verify(self, checkpoint_dir: Path, seen_as: str = "") -> Verification:
        """Prove that the engine serves this checkpoint: held tensors and probe logprobs. See `require`."""
        _ = self.started_with  # its folder may be gone at the next update
        expected = read_fingerprint(checkpoint_dir)
        looking = self._look(checkpoint_dir, expected)
        try:
            return await self._verified(checkpoint_dir, expected, looking, seen_as)
        finally:
            looking.cancel()

    async def _verified(
        self,
        checkpoint_dir: Path,
        expected: Fingerprint,
        looking: asyncio.Task[tuple[str, ...]] | None,
        seen_as: str,
    ) -> Verification:
        """`verify`, while the checkpoint's files are looked at (`looking`), if they matter."""
        self.proven = None
        report = await self._held(checkpoint_dir, expected, seen_as)
        named = self.named
        probes = await self.judged(expected)
        if self.named != named:
            raise IntegrityError(
                f"the engine at {self.base_url} was another one from one answer to the next",
                hint="one engine behind one address, and one gateway before it",
            )
        if looking is not None:
            report = replace(report, file_mismatch=report.file_mismatch + await looking)
        found = Verification(str(checkpoint_dir), report, probes).require()
        self.proven = named
        return found

    def _looked(self, checkpoint_dir: Path, expected: Fingerprint) -> asyncio.Task[tuple[str, ...]]:
        """The look that `stage` began, or another when the files are not as they were then."""
        ahead, self._ahead = self._ahead, None
        if ahead and ahead[:2] == (checkpoint_dir, signature(checkpoint_dir)):
            return ahead[2]
        return self._look(checkpoint_dir, expected)

    def _look(self, checkpoint_dir: Path, expected: Fingerprint) -> asyncio.Task[tuple[str, ...]]:
        """Begin to look at the checkpoint's files. Whoever gives up may leave the task alone."""
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()}
        if self.config.program == "stub":  # it has no weights, and says itself what it was given
            sums = {}
        looking = asyncio.create_task(asyncio.to_thread(self._files.mismatch, checkpoint_dir, sums))
        looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        return looking

    async def _held(self, checkpoint_dir: Path, expected: Fingerprint, seen_as: str) -> TensorReport:
        arguments = self._named(checkpoint_dir, expected, seen_as)
        answer = await self.call("rtrl_verify", **arguments, key=weights_key(expected))
        self.tells = bool(answer.get("tells"))
        if others := answer.get("other_files"):
            raise UpdateImpossibleError(
                f"the engine at {self.base_url} was started with another {others[0]} than {checkpoint_dir}",
                hint="start it on a checkpoint of this line: only weights can be changed in place",
            )
        return tensor_report(answer)

    def _named(self, checkpoint_dir: Path, expected: Fingerprint, seen_as: str) -> dict[str, Any]:
        """The folder for the worker, and what it has to find in the files itself: the file of a real engine
        that reads the same folder is looked at here."""
        looks = bool(seen_as) or self.config.program == "stub"
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()} if looks else {}
        return {"path": seen_as or str(checkpoint_dir), "expected": sums}
