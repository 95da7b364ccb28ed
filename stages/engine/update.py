"""New weights into a running vLLM server, and the proof that it serves them.

`EngineControl` speaks to the engine's loopback port over HTTP. It neither decides what to serve
(the gateway's swap does) nor starts processes (`process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import httpx

from stages.engine.config import EngineConfig
from stages.engine.identity import Identity, identity_of, require_same_model
from stages.engine.port import EnginePort
from stages.engine.under_way import Sampled
from stages.engine.verification import (
    Fingerprint,
    ProbeReport,
    Source,
    TensorReport,
    Verification,
    first_probes,
    judge_probes,
    read_fingerprint,
    tensor_report,
    weights_key,
)
from stages.engine.weights_file import Files
from stages.errors import IntegrityError, RtrlError

Health = Literal["ok", "sick", "silent"]
CACHED_TOKENS = 129  # of a prompt that fills one block of vLLM's cache on CPUs
RESUME_S = 2.0
FEW = 1  # probes that are asked first: 63 tokens tell child from parent but for small steps


class Loaded(NamedTuple):
    """See `Verification`."""

    source: Source
    keeps: str


class EngineControl(EnginePort):
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
        self._sampled = Sampled()
        self._ahead: tuple[Path, asyncio.Task[tuple[str, ...]]] | None = None
        self._kept = ""  # key of the weights that the engine keeps beside those it serves

    @property
    def started_with(self) -> Identity:
        """Of the checkpoint that the process was started on. Raises IntegrityError (12)."""
        if isinstance(self._started, Path):
            self._started = identity_of(self._started)
        return self._started

    async def health(self) -> Health:
        """`ok`; `sick`: the server answers and its core is dead; `silent`: no answer in time."""
        try:
            answer = await self._open().get("/health", timeout=self.config.health_timeout_s)
        except httpx.HTTPError:
            return "silent"
        return "ok" if answer.status_code == 200 else "sick"

    async def prepare(self, checkpoint_dir: Path) -> None:
        """What an update can do while requests are still answered. Raises as `update`."""
        expected = read_fingerprint(checkpoint_dir)
        self._ahead = None
        if weights_key(expected) != self._kept:  # goes on while the engine loads: it has another core
            self._ahead = checkpoint_dir, self._look(checkpoint_dir, expected)
        await self.cached(expected)
        self._prepared = checkpoint_dir

    async def update(self, checkpoint_dir: Path, seen_as: str = "", *, keep: bool = False) -> Verification:
        """Load, reset the prefix cache, verify. The caller keeps requests away meanwhile.

        Weights that the engine kept come out of its memory; where they are not whole, from the file.

        What the engine still works on was cut off by the caller, or its client is gone: it is aborted, for
        the engine notices closed connections late when there are many. Unless it is to be kept: then it goes
        on with the new weights, its keys and values computed again, and `sampled` tells of its tokens.

        Args:
            seen_as: the folder as an engine on another machine has it; default the same path.
            keep: what it works on goes on.

        Raises:
            UpdateImpossibleError, IntegrityError (12): not loadable here, or not what is served after.
            DependencyDownError (13): the engine does not answer.
        """
        self._sampled = Sampled()
        expected = read_fingerprint(checkpoint_dir)
        prepared, self._prepared = self._prepared, None
        pause = "keep" if keep else "abort"
        if prepared != checkpoint_dir:
            await self.cached(expected)  # whatever is cached of it now must be gone after
        if weights_key(expected) == self._kept:
            try:
                return await self._update(checkpoint_dir, expected, seen_as, pause, file=False)
            except IntegrityError:
                if keep:  # what went on has tokens of weights that are none
                    raise
        return await self._update(checkpoint_dir, expected, seen_as, pause, file=True)

    async def _update(
        self, checkpoint_dir: Path, expected: Fingerprint, seen_as: str, pause: str, *, file: bool
    ) -> Verification:
        """`update`, from the engine's memory where it has the weights, or from the `file`."""
        looking = self._looked(checkpoint_dir, expected) if file else None
        try:
            await self._post(f"/pause?mode={pause}")
            try:
                loaded = await self.load_weights(checkpoint_dir, seen_as, file=file)
                if pause == "keep" and not self._sampled.told:
                    raise IntegrityError(
                        "the engine does not tell which tokens it has sampled",
                        hint='set gateway.in_flight = "finish"',
                    )
                await self.reset_prefix_cache()
            except BaseException:
                with contextlib.suppress(TimeoutError, RtrlError):  # a hung engine is not waited for
                    async with asyncio.timeout(RESUME_S):
                        await self._post("/resume")
                raise
            await self._post("/resume")
            if looking is None and loaded.source == "file":  # it had been started anew, or had no room
                looking = self._look(checkpoint_dir, expected)
            found, cached = await asyncio.gather(
                self._verified(checkpoint_dir, expected, looking, seen_as), self.cached(expected)
            )
            if cached:
                raise IntegrityError(
                    f"the engine answers from keys and values of the old weights ({cached} tokens)",
                    hint="it said that its prefix cache was dropped; see the engine's log",
                )
            return replace(found, source=loaded.source, keeps=loaded.keeps)
        finally:
            if looking is not None:
                looking.cancel()

    async def load_weights(self, checkpoint_dir: Path, seen_as: str = "", *, file: bool = False) -> Loaded:
        """Replace the engine's weights in place by the folder's. Proves nothing yet: call `verify`.

        Args:
            file: read the file also when the engine has kept these weights.
        """
        require_same_model(self.started_with, checkpoint_dir)
        key = weights_key(read_fingerprint(checkpoint_dir))
        arguments = {"path": seen_as or str(checkpoint_dir), "key": key, "file": file}
        answer = await self.call("rtrl_load", **arguments, limit_gib=self.config.resident_gib)
        self._kept = str(answer.get("kept", ""))
        self._sampled = Sampled.of(answer.get("under_way") or {})
        return Loaded(answer.get("source", "file"), str(answer.get("keeps", "")))

    def sampled(self, generation: str) -> int | None:
        """Tokens that a generation had when the last update stopped it; None when it was complete.

        0 also of one that the engine did not know yet, or when it does not tell.
        """
        return self._sampled.of_generation(generation)

    async def reset_prefix_cache(self, patience_s: float = 10.0) -> None:
        """Forget keys and values computed with older weights. Refused while requests hold blocks."""
        deadline = time.monotonic() + patience_s
        while not (await self._post("/reset_prefix_cache")).get("success"):
            if time.monotonic() > deadline:
                raise IntegrityError(
                    "the engine would not drop its prefix cache",
                    hint="requests still hold it; let them finish and try again",
                )
            await asyncio.sleep(0.05)

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
        report = await self._held(checkpoint_dir, expected, seen_as)
        probes = await self.judged(expected)
        if looking is not None:
            report = replace(report, file_mismatch=report.file_mismatch + await looking)
        return Verification(str(checkpoint_dir), report, probes).require()

    async def cached(self, expected: Fingerprint, model: str = "") -> int:
        """Tokens of a prompt made of probes that the engine had cached; it has cached it now.

        It answers with two tokens, so that it has computed one prompt and one token by itself.

        0 also where an engine does not tell (`--enable-prompt-tokens-details`).
        """
        ids = [token for probe in expected.probes for token in probe]
        prompt = ids[: min(CACHED_TOKENS, self.config.max_model_len - 2)]
        name = model or self.config.served_name
        body = {"model": name, "prompt": prompt, "max_tokens": 2, "temperature": 0.0}
        usage = (await self._post("/v1/completions", body)).get("usage") or {}
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    async def judged(self, expected: Fingerprint, model: str = "") -> ProbeReport:
        """Whose logprobs are served: a few probes tell, where they do not, all are asked."""
        few = first_probes(expected, FEW)
        report = judge_probes(few.logprobs, await self.probe(few.probes, model), self.config.dtype)
        if report.verdict == "child" or len(expected.probes) <= FEW:
            return report
        served = await self.probe(expected.probes, model)
        return judge_probes(expected.logprobs, served, self.config.dtype)

    def _looked(self, checkpoint_dir: Path, expected: Fingerprint) -> asyncio.Task[tuple[str, ...]]:
        """The look that `prepare` began, or another."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead and ahead[0] == checkpoint_dir else self._look(checkpoint_dir, expected)

    def _look(self, checkpoint_dir: Path, expected: Fingerprint) -> asyncio.Task[tuple[str, ...]]:
        """Begin to look at the checkpoint's files. Whoever gives up may leave the task alone."""
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()}
        if self.config.program == "stub":  # it has no weights, and says itself what it was given
            sums = {}
        looking = asyncio.create_task(asyncio.to_thread(self._files.mismatch, checkpoint_dir, sums))
        looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        return looking

    async def probe(self, probes: list[list[int]], model: str = "") -> list[list[float]]:
        """Served logprobs of the probes' own tokens: for each, one per token after the first, nats.

        Args:
            model: name of an adapter; default the weights alone.
        """
        body = {
            "model": model or self.config.served_name,
            "prompt": probes,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
        answer = await self._post("/v1/completions", body)
        rows: list[list[float]] = [[] for _ in probes]
        for choice in answer["choices"]:
            ids = probes[choice["index"]]
            pairs = zip(ids[1:], choice["prompt_logprobs"][1:], strict=True)
            rows[choice["index"]] = [float(entry[str(token)]["logprob"]) for token, entry in pairs]
        return rows

    async def _held(self, checkpoint_dir: Path, expected: Fingerprint, seen_as: str) -> TensorReport:
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()}
        # the file of a real engine that reads the same folder was looked at here
        looks = bool(seen_as) or self.config.program == "stub"
        arguments = {"path": seen_as or str(checkpoint_dir), "expected": sums if looks else {}}
        answer = await self.call("rtrl_verify", **arguments, key=weights_key(expected))
        self.tells = bool(answer.get("tells"))
        return tensor_report(answer)
