"""New weights into a running vLLM server, and the proof that it serves them.

`EngineControl` speaks to the engine's loopback port over HTTP. It neither decides what to serve
(the gateway's swap does) nor starts processes (`process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import httpx

from stages.engine.config import EngineConfig
from stages.engine.identity import Identity, identity_of, require_same_model
from stages.engine.verification import (
    Fingerprint,
    ProbeReport,
    TensorReport,
    Verification,
    first_probes,
    judge_probes,
    read_fingerprint,
)
from stages.engine.weights_file import Signature, file_mismatch, signature
from stages.errors import DependencyDownError, IntegrityError, RtrlError

Health = Literal["ok", "sick", "silent"]
CACHED_TOKENS = 129  # of a prompt that fills one block of vLLM's cache on CPUs
RESUME_S = 2.0
FEW = 2  # probes that are asked first: 126 tokens tell child from parent but for the smallest steps


class EngineControl:
    """The weights of one vLLM server. Not for concurrent use: one update at a time.

    Args:
        base_url, key: where it listens, and the bearer token its port wants.
        config: the engine's settings.
        started_with: the checkpoint folder the process was started on; its tokenizer stays.
    """

    def __init__(self, base_url: str, key: str, config: EngineConfig, started_with: Path) -> None:
        self.base_url = base_url
        self.config = config
        self.start_with(started_with)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._client: httpx.AsyncClient | None = None
        self._prepared: Path | None = None
        self._sound: dict[Path, Signature] = {}  # files that were what they should be, as they stood then

    def start_with(self, checkpoint_dir: Path) -> None:
        """The process was started anew, on this folder."""
        self._started: Path | Identity = checkpoint_dir

    @property
    def started_with(self) -> Identity:
        """Of the checkpoint that the process was started on. Raises IntegrityError (12)."""
        if isinstance(self._started, Path):
            self._started = identity_of(self._started)
        return self._started

    async def __aenter__(self) -> EngineControl:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections. The object can be used again."""
        client, self._client = self._client, None  # at once: who asks while it closes opens another
        if client is not None:
            await client.aclose()

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
        await asyncio.gather(self._look(checkpoint_dir, expected), self._cached(expected))
        self._prepared = checkpoint_dir

    async def update(self, checkpoint_dir: Path, seen_as: str = "") -> Verification:
        """Load, reset the prefix cache, verify. The caller keeps requests away meanwhile.

        What the engine still works on was cut off by the caller, or its client is gone: it is aborted, for
        the engine notices closed connections late when there are many.

        Args:
            seen_as: the folder as an engine on another machine has it; default the same path.

        Raises:
            UpdateImpossibleError, IntegrityError (12): not loadable here, or not what is served after.
            DependencyDownError (13): the engine does not answer.
        """
        expected = read_fingerprint(checkpoint_dir)
        looking = self._look(checkpoint_dir, expected)
        prepared, self._prepared = self._prepared, None
        try:
            if prepared != checkpoint_dir:
                await self._cached(expected)  # whatever is cached of it now must be gone after
            await self._post("/pause?mode=abort")
            try:
                await self.load_weights(checkpoint_dir, seen_as)
                await self.reset_prefix_cache()
            except BaseException:
                with contextlib.suppress(TimeoutError, RtrlError):  # a hung engine is not waited for
                    async with asyncio.timeout(RESUME_S):
                        await self._post("/resume")
                raise
            await self._post("/resume")
            found, cached = await asyncio.gather(
                self._verified(checkpoint_dir, expected, looking, seen_as), self._cached(expected)
            )
            if cached:
                raise IntegrityError(
                    f"the engine answers from keys and values of the old weights ({cached} tokens)",
                    hint="it said that its prefix cache was dropped; see the engine's log",
                )
            return found
        finally:
            looking.cancel()

    async def load_weights(self, checkpoint_dir: Path, seen_as: str = "") -> None:
        """Replace the engine's weights in place by the folder's. Proves nothing yet: call `verify`."""
        require_same_model(self.started_with, checkpoint_dir)
        await self._worker("rtrl_load", path=seen_as or str(checkpoint_dir))

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
        looking: asyncio.Task[tuple[str, ...]],
        seen_as: str,
    ) -> Verification:
        """`verify`, while the checkpoint's files are looked at (`looking`)."""
        report = await self._held(checkpoint_dir, expected, seen_as)
        probes = await self._judged(expected)
        report = replace(report, file_mismatch=report.file_mismatch + await looking)
        return Verification(str(checkpoint_dir), report, probes).require()

    async def _cached(self, expected: Fingerprint) -> int:
        """Tokens of a prompt made of probes that the engine had cached; it has cached it now.

        0 also where an engine does not tell (`--enable-prompt-tokens-details`).
        """
        ids = [token for probe in expected.probes for token in probe]
        prompt = ids[: min(CACHED_TOKENS, self.config.max_model_len - 1)]
        body = {"model": self.config.served_name, "prompt": prompt, "max_tokens": 1, "temperature": 0.0}
        usage = (await self._post("/v1/completions", body)).get("usage") or {}
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    async def _judged(self, expected: Fingerprint) -> ProbeReport:
        """Whose logprobs are served: a few probes tell, where they do not, all are asked."""
        few = first_probes(expected, FEW)
        report = judge_probes(few.logprobs, await self.probe(few.probes), self.config.dtype)
        if report.verdict == "child" or len(expected.probes) <= FEW:
            return report
        served = await self.probe(expected.probes)
        return judge_probes(expected.logprobs, served, self.config.dtype)

    def _look(self, checkpoint_dir: Path, expected: Fingerprint) -> asyncio.Task[tuple[str, ...]]:
        """Begin to look at the checkpoint's files. Whoever gives up may leave the task alone."""
        looking = asyncio.create_task(asyncio.to_thread(self._file_mismatch, checkpoint_dir, expected))
        looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        return looking

    def _file_mismatch(self, checkpoint_dir: Path, expected: Fingerprint) -> tuple[str, ...]:
        if self.config.program == "stub":  # it has no weights, and says itself what it was given
            return ()
        known = signature(checkpoint_dir)
        if self._sound.get(checkpoint_dir) == known:
            return ()
        sums = {name: entry.sha256 for name, entry in expected.tensors.items()}
        found = file_mismatch(checkpoint_dir, sums)
        if not found:
            self._sound[checkpoint_dir] = known
        return found

    async def probe(self, probes: list[list[int]]) -> list[list[float]]:
        """Served logprobs of the probes' own tokens: for each, one per token after the first, nats."""
        body = {
            "model": self.config.served_name,
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
        answer = await self._worker("rtrl_verify", **arguments)
        return tensor_report(answer)

    async def _worker(self, method: str, **arguments: Any) -> dict[str, Any]:
        body = {"method": method, "kwargs": arguments, "timeout": self.config.update_timeout_s}
        results = (await self._post("/collective_rpc", body))["results"]
        return dict(results[0])

    async def _post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = await self._open().post(path, json=body, timeout=self.config.update_timeout_s)
        except httpx.HTTPError as error:
            raise DependencyDownError(
                f"the engine at {self.base_url} does not answer {path}: {error or type(error).__name__}",
                hint="`rtrl serve` starts a dead engine again by itself; its log is in store/logs",
            ) from error
        if answer.status_code != 200:
            raise refused(path, answer.status_code, answer.text)
        return dict(json.loads(answer.text)) if answer.text else {}

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self.base_url, headers=self._headers, trust_env=False)
        return self._client


def tensor_report(answer: dict[str, Any]) -> TensorReport:
    """The worker's answer to `rtrl_verify` as a type."""
    return TensorReport(
        tensors=int(answer["tensors"]),
        different=tuple(answer["different"]),
        file_mismatch=tuple(answer["file_mismatch"]),
        unchecked=tuple(answer["unchecked"]),
        parameters=int(answer["parameters"]),
        parameters_checked=int(answer["parameters_checked"]),
    )


def refused(path: str, status: int, text: str) -> RtrlError:
    """The engine said no: IntegrityError with its own words."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text.strip()[:300] or "no reason given"
    return IntegrityError(f"the engine refused {path} ({status}): {message}", hint="see the engine's log")
