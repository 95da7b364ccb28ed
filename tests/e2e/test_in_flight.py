"""Answers that go on under new weights in real vLLM: each span has the logprobs of its own checkpoint."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest
import torch

from stages import modelio
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.stage import Artifact
from stages.target.admin import Admin
from stages.vault import Vault
from tests.e2e.conftest import World
from tests.stages.spool.spool_records import full_tokens

pytestmark = pytest.mark.vllm

SETTINGS = """
[gateway]
port = 0
in_flight = "continue"
[engine]
max_num_seqs = 8
max_model_len = 16384
"""
TOKENS = 3000
NEAR = 40  # tokens looked at on each side of a turn


def logprobs(world: World, checkpoint: Artifact, ids: list[int], begin: int, end: int) -> list[float]:
    """Of ids[begin:end] given those before, while the end may not be sampled (`min_tokens`)."""
    model = modelio.load_model(world.store.checkpoint_folder(checkpoint))
    with torch.no_grad():
        logits = model(torch.tensor([ids[:end]])).logits[0, begin - 1 : end - 1].float()
    logits[:, model.config.eos_token_id] = -torch.inf
    chosen = torch.tensor(ids[begin:end])
    return torch.log_softmax(logits, -1).gather(1, chosen[:, None])[:, 0].tolist()


def ask(world: World, stream: bool, answers: list[httpx.Response]) -> None:
    body = {
        "model": "rtrl",
        "prompt": "def f(x):",
        "max_tokens": TOKENS,
        "min_tokens": TOKENS,
        "stream": stream,
    }
    answers.append(httpx.post(f"{world.url}/completions", json=body, headers=world.headers, timeout=600))


def test_each_token_is_recorded_with_the_weights_that_sampled_it(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    start_detached(world.workspace)
    try:
        answers: list[httpx.Response] = []
        asking = [threading.Thread(target=ask, args=(world, stream, answers)) for stream in (True, False)]
        for each in asking:
            each.start()
        with Admin(world.endpoint) as admin:
            while admin.served().in_flight < 2:
                time.sleep(0.05)
            time.sleep(0.5)
            target = world.second
            told = admin.swap(
                line="auto",
                checkpoint=target.digest,
                path=world.store.checkpoint_folder(target),
                deployment="",
                drain_s=1,
                timeout_s=120,
            )
        assert (told["engines"][0]["why"].endswith("2 answers went on"), answers) == (True, [])
        for each in asking:
            each.join()
        assert [answer.status_code for answer in answers] == [200, 200]
        with Admin(world.endpoint) as admin:
            admin.flush_spool()
    finally:
        stop(world.workspace)
    spool, vault = Spool.open(world.workspace.spool_dir), Vault.open(world.workspace.keys_dir)
    found = [generation for _, generation, _ in spool.generations(0, 1 << 60)]
    assert len(found) == 2
    for generation in found:
        tokens = full_tokens(spool, generation.id, vault)
        assert (generation.defect, generation.output_tokens) == ("", TOKENS)
        # nothing of it is in the registry: `rtrl serve` goes back after some seconds, which is a third span
        assert [span.checkpoint for span in generation.spans[:2]] == [world.first.digest, world.second.digest]
        ids, before = [*tokens.prompt.tolist(), *tokens.output.tolist()], len(tokens.prompt)
        for span in generation.spans:
            checkpoint = world.first if span.checkpoint == world.first.digest else world.second
            for begin in (span.start, max(span.start, span.end - NEAR)):
                end = min(begin + NEAR, span.end)
                expected = logprobs(world, checkpoint, ids, before + begin, before + end)
                assert tokens.logprobs[begin:end].tolist() == pytest.approx(expected, abs=2e-3)
