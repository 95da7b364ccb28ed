"""What a running vLLM server is asked before and after other weights: health, probes, its prefix cache.

Not here: changing its weights, and what the answers mean together (`update.py`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import httpx

from stages.engine.port import EnginePort
from stages.engine.verification import Fingerprint, ProbeReport, first_probes, judge_probes
from stages.errors import IntegrityError

Health = Literal["ok", "sick", "silent"]
CACHED_TOKENS = 129  # of a prompt that fills one block of vLLM's cache on CPUs
FEW = 1  # probes that are asked first: 63 tokens tell child from parent but for small steps


class Questions(EnginePort):
    """The port of one engine, and what can be asked of it without changing it."""

    async def health(self) -> Health:
        """`ok`; `sick`: the server answers and its core is dead; `silent`: no answer in time."""
        try:
            answer = await self._open().get("/health", timeout=self.config.health_timeout_s)
        except httpx.HTTPError:
            return "silent"
        self._heard(answer)
        return "ok" if answer.status_code == 200 else "sick"

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

    async def cached_blocks(self) -> int | None:
        """All that the prefix cache holds; None of an engine whose worker cannot see it."""
        blocks = (await self.call("rtrl_cached")).get("blocks")
        return None if blocks is None else int(blocks)

    async def judged(self, expected: Fingerprint, model: str = "") -> ProbeReport:
        """Whose logprobs are served: a few probes tell, where they do not, all are asked."""
        few = first_probes(expected, FEW)
        report = judge_probes(few.logprobs, await self.probe(few.probes, model), self.config.dtype)
        if report.verdict == "child" or len(expected.probes) <= FEW:
            return report
        served = await self.probe(expected.probes, model)
        return judge_probes(expected.logprobs, served, self.config.dtype)

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
