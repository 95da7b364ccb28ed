"""A few short requests to an engine before users' ones: what is made on first use is made then.

Kernels are compiled, graphs recorded, memory pools grown, caches of the operating system filled. The
prompts are the checkpoint's own probes (token ids), so no tokenizer is needed; nothing is recorded.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from stages.engine.config import EngineConfig
from stages.engine.diagnose import refused
from stages.engine.verification import read_fingerprint
from stages.errors import DependencyDownError
from stages.trust import trusted

TOKENS = 8  # generated per request: prefill once, decode several times


async def warm_up(
    base_url: str, key: str, config: EngineConfig, checkpoint: Path, requests: int, model: str
) -> float:
    """Send `requests` completions, one after the other. Returns the seconds they took.

    Args:
        model: the engine's name for the checkpoint.

    Raises:
        DependencyDownError (13), IntegrityError (12): the engine does not generate.
    """
    began = time.monotonic()
    room = config.max_model_len - TOKENS
    prompts = [probe[:room] for probe in read_fingerprint(checkpoint).probes if probe] if requests else []
    if not prompts:
        return 0.0
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        base_url=base_url, headers=headers, trust_env=False, verify=trusted(base_url)
    ) as client:
        for number in range(requests):
            body = {
                "model": model,
                "prompt": prompts[number % len(prompts)],
                "max_tokens": TOKENS,
                "temperature": 1.0,
                "ignore_eos": True,
            }
            try:
                answer = await client.post("/v1/completions", json=body, timeout=config.update_timeout_s)
            except httpx.HTTPError as error:
                raise DependencyDownError(
                    f"the engine did not answer a warm-up request: {str(error) or type(error).__name__}",
                    hint="its log is in store/logs",
                ) from error
            if answer.status_code != 200:
                raise refused("a warm-up request", answer.status_code, answer.text)
    return time.monotonic() - began
