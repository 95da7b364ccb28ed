"""Adapters swapped in a real vLLM on CPU: nobody waits, every token is its checkpoint's, no lie is served."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stages import modelio
from stages.errors import IntegrityError
from stages.served_fingerprint import write_fingerprint
from stages.serving.detach import start_detached, stop
from stages.serving.reconcile import lock_now
from stages.spool import Spool
from stages.stage import Artifact
from stages.target.admin import Admin
from stages.train.fake_child import write_lora_child
from stages.vault import Vault
from tests.e2e.conftest import World
from tests.stages.spool.spool_records import full_tokens

pytestmark = pytest.mark.vllm

SETTINGS = """
[gateway]
port = 0
[engine]
lora_rank = 8
max_num_seqs = 8
max_model_len = 4096
resident_gib = 0
"""
LONG, SHORT = 1500, 24


class Lora(World):
    """A line with `one` and `two`, adapters of `first`; `liar`'s adapter is not what it was merged from."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SETTINGS)
        self.one = self.child("one", seed=3)
        self.two = self.child("two", seed=4)
        self.liar = self.child("liar", seed=5, lie=True)
        self.store.move_alias("auto", "live", self.first.digest, reason="test", by="test")

    def child(self, name: str, *, seed: int, lie: bool = False) -> Artifact:
        first = self.root / "first"
        folder = write_lora_child(
            first, self.root / name, base=self.first.digest, rank=4, step=0.05, seed=seed
        )
        if lie:
            file = folder / "adapter" / "adapter_model.safetensors"
            tensors = load_file(file)
            layer = next(key for key in tensors if key.endswith("lora_B.weight"))
            save_file(tensors | {layer: tensors[layer] * 1.01}, file)
        write_fingerprint(folder, parent=first)
        return self.publish(folder, self.first)

    def swap(self, target: Artifact) -> dict[str, Any]:
        """What the gateway says of the one engine."""
        admin = Admin(self.endpoint)
        told = admin.swap(
            line="auto",
            checkpoint=target.digest,
            path=self.store.checkpoint_folder(target),
            deployment="",
            drain_s=60,
            timeout_s=300,
        )
        engine: dict[str, Any] = told["engines"][0]
        return engine

    def ask(self, tokens: int) -> None:
        body = {"model": "rtrl", "prompt": "def f(x):", "max_tokens": tokens, "min_tokens": tokens}
        answer = httpx.post(f"{self.url}/completions", json=body, headers=self.headers, timeout=600)
        assert answer.status_code == 200, answer.text

    def served(self) -> str:
        admin = Admin(self.endpoint)
        return str(admin.served().checkpoint)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lora]:
    made = Lora(tmp_path_factory.mktemp("lora"))
    start_detached(made.workspace)
    lock = lock_now(made.store, "auto")  # else `rtrl serve` goes back to what the registry says
    yield made
    lock.release()
    stop(made.workspace)


def policy(lora: Lora, checkpoint: Artifact, ids: list[int], begin: int) -> list[float]:
    """Logprobs of ids[begin:] under the checkpoint's merged weights, while the end may not be sampled."""
    model = modelio.load_model(lora.store.checkpoint_folder(checkpoint)).double()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, begin - 1 : -1]
    logits[:, model.config.eos_token_id] = -torch.inf
    chosen = torch.tensor(ids[begin:])
    return torch.log_softmax(logits, -1).gather(1, chosen[:, None])[:, 0].tolist()


def test_the_story_of_a_line_of_adapters(lora: Lora) -> None:
    asked: list[Artifact] = []
    for _ in range(5):  # a machine that stands still may come to the swap when the answer is there
        long = threading.Thread(target=lora.ask, args=(LONG,))
        long.start()
        asked.append(lora.first)
        admin = Admin(lora.endpoint)
        while admin.served().in_flight < 1 and long.is_alive():
            time.sleep(0.05)
        told = lora.swap(lora.one)
        assert (told["way"], "no request waits" in told["why"]) == ("adapter swap", True)
        if long.is_alive():
            break
        lora.swap(lora.first)
    assert long.is_alive(), "it goes on, and the swap did not wait for it"
    asked.append(lora.one)
    lora.ask(SHORT)  # beside the long one, which has no adapter
    assert lora.swap(lora.two)["way"] == "adapter swap"
    long.join()
    for target, way in (
        (None, ""),
        (lora.one, "adapter swap"),  # a rollback: it was still loaded
        (lora.first, "adapter swap"),  # the base itself
        (lora.second, "in place, full weights"),  # no adapter
        (lora.two, "in place, full weights"),  # the base again, and its adapter beside it
        (lora.one, "adapter swap"),
    ):
        if target is not None:
            told = lora.swap(target)
            assert told["way"] == way, told
        asked.append(target or lora.two)
        lora.ask(SHORT)
    with pytest.raises(IntegrityError, match=r"not its base with its adapter.*previous weights are served"):
        lora.swap(lora.liar)
    assert lora.served() == lora.one.digest
    asked.append(lora.one)
    lora.ask(SHORT)
    admin = Admin(lora.endpoint)
    admin.flush_spool()
    require_exact(lora, asked)


def require_exact(lora: Lora, asked: list[Artifact]) -> None:
    """Each generation is recorded as one checkpoint's, and has that one's logprobs to the last token."""
    spool, vault = Spool.open(lora.workspace.spool_dir), Vault.open(lora.workspace.keys_dir)
    found = sorted((each for _, each, _ in spool.generations(0, 1 << 60)), key=lambda one: one.wall)
    assert [[span.checkpoint for span in each.spans] for each in found] == [[each.digest] for each in asked]
    for generation, checkpoint in zip(found, asked, strict=True):
        tokens = full_tokens(spool, generation.id, vault)
        ids = [*tokens.prompt.tolist(), *tokens.output.tolist()]
        expected = policy(lora, checkpoint, ids, len(tokens.prompt))
        assert generation.defect == ""
        off = np.abs(tokens.logprobs - np.array(expected))
        assert np.median(off) < 2e-5, checkpoint.ref
        # the engine adds the adapter, `policy` has it merged: 1.05e-4 was seen once
        assert off.max() < 5e-4, checkpoint.ref
