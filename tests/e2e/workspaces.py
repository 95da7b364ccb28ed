"""A small workspace made through the store's and the spool's own doors, and `rtrl` as a process.

For tests of what stages do with good and bad data on disk. No engine, no gateway: those tests use
`rtrl init` and `rtrl serve`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.gateway.keys import ApiKeys
from stages.linestate import LineState
from stages.modelio import tokenizer_digest
from stages.records import Event, Generation, Sampling, Span
from stages.registry.store import Store
from stages.served_fingerprint import write_fingerprint
from stages.spool import SpoolWriter, Tokens
from stages.stage import Output
from stages.vault import Vault
from stages.workspace import Workspace
from tests import processes
from tests.e2e.tiny import write_checkpoint

SETTINGS = """
[collect]
clock = "events"
"""
HOUR = 3_600_000
BEFORE, AFTER = "def f(x):\n    return x\n", "def f(x):\n    return x + 1\n"


@dataclass(frozen=True)
class Done:
    """How an `rtrl` command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` printed."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def rtrl(workspace: Path, *arguments: str, timeout: float = 600.0, **env: str) -> Done:
    """Run `rtrl ARGUMENTS` in a process of its own."""
    done = processes.rtrl(*arguments, env={"RTRL_WORKSPACE": str(workspace)} | env, timeout=timeout)
    return Done(done.returncode, done.stdout, done.stderr)


def make(root: Path, *, episodes: int = 6, settings: str = SETTINGS, keys: bool = False) -> Workspace:
    """A workspace with a random tiny model live, and `episodes` mature episodes in its spool.

    With `keys`, what `rtrl serve` wants besides: a vault and an API key.
    """
    workspace = Workspace.create(root, settings)
    digest = publish_model(workspace)
    if episodes:
        fill_spool(workspace, digest, episodes)
    if keys:
        Vault.create(workspace.keys_dir).close()
        (workspace.keys_dir / "default.key").write_text(ApiKeys.create(workspace.keys_dir, "default"))
    return workspace


def api_key(workspace: Workspace) -> str:
    """The API key of a workspace made with `keys`."""
    return (workspace.keys_dir / "default.key").read_text(encoding="utf-8").strip()


def publish_model(workspace: Workspace, *, seed: int = 0) -> str:
    """Publish a random tiny checkpoint, see `publish`."""
    return publish(workspace, write_checkpoint(workspace.root / "model", seed=seed))


def publish(workspace: Workspace, model: Path, parent: str | None = None) -> str:
    """Publish a folder as the live checkpoint and anchor, with a fresh line state. Returns its digest."""
    store = Store.open(workspace.store_dir)
    write_fingerprint(model, parent=None)
    LineState().save(workspace.root / "state")
    meta = {
        "parent": parent,
        "dtype": "float32",
        "parameters": 1,
        "architecture": "Qwen2ForCausalLM",
        "tokenizer": tokenizer_digest(model),
        "generation": 0,
    }
    state = Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"})
    made = store.publish_external(
        {
            "checkpoint": (Output("checkpoint", meta), model),
            "line_state": (state, workspace.root / "state"),
        },
        line="auto",
    )
    digest = made["checkpoint"].digest
    for name in ("anchor", "live"):
        store.move_alias("auto", name, digest, reason="test")
    return digest


def generation(number: int, checkpoint: str, **fields: Any) -> Generation:
    """The only generation of episode `number`, by user `u<number % 3>`."""
    user = f"u{number % 3}"
    defaults: dict[str, Any] = {
        "id": f"g{number}", "key_id": "k1", "user": user, "session": f"{user}/s{number}",
        "episode": f"{user}/s{number}/1", "ordinal": 0, "at": number * 1000, "wall": number * 1000,
        "line": "auto", "arm": "live", "deployment": "", "api": "chat",
        "sampling": Sampling(), "spans": (Span(0, 12, checkpoint),), "finish_reason": "stop",
        "prompt_tokens": 0, "output_tokens": 0, "ttft_ms": 5.0, "duration_ms": 20.0 + number,
        "features": {"tools_digest": ""},
    }  # fmt: skip
    return Generation(**(defaults | fields))


def tokens(number: int, length: int = 12) -> Tokens:
    """Prompt of 20 and output of `length` ids of the tiny tokenizer, with made-up logprobs."""
    rng = np.random.default_rng(number)
    return Tokens(
        rng.integers(3, 250, 20).astype(np.int32),
        rng.integers(3, 250, length).astype(np.int32),
        rng.uniform(-3, -0.1, length).astype(np.float32),
    )


def edit(number: int) -> list[Event]:
    """The user applies the edit; ten minutes later it is there, or (odd numbers) is not."""
    at = number * 1000 + 500
    kept = AFTER if number % 2 == 0 else BEFORE
    rows = [
        ("edit_applied", at, {"path": "a.py", "before": BEFORE, "after": AFTER}),
        ("edit_survival", at + 600_000, {"path": "a.py", "horizon_s": 600, "now": kept}),
    ]
    shared: dict[str, Any] = {"key_id": "k1", "generation_id": f"g{number}"}
    return [
        Event(id=f"e{number}.{i}", type=kind, at=when, wall=when, data=data, **shared)  # type: ignore[arg-type]
        for i, (kind, when, data) in enumerate(rows)
    ]


def fill_spool(workspace: Workspace, checkpoint: str, episodes: int) -> None:
    """`episodes` episodes with edits, and one far later generation, so that the others are mature."""
    vault = Vault.create(workspace.keys_dir)
    writer = SpoolWriter(workspace.spool_dir, vault, fsync_ms=1.0)
    for number in range(episodes):
        writer.append_generation(
            generation(number, checkpoint), tokens(number), f"please do {number}", f"ok {number}"
        )
        writer.append_events(edit(number))
    late = generation(episodes, checkpoint, at=30 * HOUR)
    writer.append_generation(late, tokens(episodes), "later", "ok")
    writer.close()
    vault.close()
