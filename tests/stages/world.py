"""A workspace with a real store, vault and spool, and a user to write into it. For the data stages."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from stages.collect.run import STAGE as COLLECT
from stages.consumed import CONSUMED_FILE, write_consumed
from stages.gateway.key_file import FILE, ApiKey, encoded, replace
from stages.linestate import LineState
from stages.records import Event, Generation, Sampling, Span
from stages.registry.store import Store
from stages.result import StageResult
from stages.runner import run_stage
from stages.spool import SpoolWriter, Tokens
from stages.stage import Output
from stages.vault import Vault
from stages.workspace import SETTINGS_FILE, Workspace

HOUR = 3_600_000
T0 = 1_800_000_000_000  # ms


def consumed_episodes(state: Path) -> set[str]:
    """Ids of all episodes that a line state lists as trained on."""
    path = state / CONSUMED_FILE
    return set(pq.read_table(path)["episode_id"].to_pylist()) if path.is_file() else set()


class World:
    """One workspace. Times are ms after T0; the generation `id` is also its text's seed."""

    def __init__(self, root: Path, settings: str = '[collect]\nclock = "events"\n') -> None:
        self.root, self.events_sent = root, 0
        template, self.live = _with_a_checkpoint()
        shutil.copytree(template, root, dirs_exist_ok=True)
        (root / "ws" / SETTINGS_FILE).write_text(settings, encoding="utf-8")
        self._open()

    def copied(self, root: Path) -> World:
        """This world, which is closed, once more in a folder that is not there yet."""
        shutil.copytree(self.root, root)
        copy = World.__new__(World)
        copy.root, copy.live, copy.events_sent = root, self.live, self.events_sent
        copy._open()
        return copy

    def _open(self) -> None:
        self.workspace = Workspace(self.root / "ws")
        self.store = Store.open(self.workspace.store_dir)
        self.vault = Vault.create(self.workspace.keys_dir)
        self.writer = SpoolWriter(self.workspace.spool_dir, self.vault, fsync_ms=1.0)

    def checkpoint(
        self,
        parent: str | None = None,
        consumed: Sequence[str] = (),
        state: LineState | None = None,
        line: str = "auto",
        generation: int = 0,
    ) -> str:
        """Publish a checkpoint with its line state; returns its digest."""
        source = self.root / f"checkpoint-{len(list(self.root.glob('checkpoint-*')))}"
        (source / "hf").mkdir(parents=True)
        (source / "hf" / "config.json").write_text(f'{{"name": "{source.name}"}}')
        (state or LineState()).save(source / "state")
        if consumed:
            write_consumed(source / "state", consumed, generation=0)
        meta = {"parent": parent, **({"generation": generation} if generation else {})}
        outputs = {
            "checkpoint": (Output("checkpoint", meta), source / "hf"),
            "line_state": (
                Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"}),
                source / "state",
            ),
        }
        return self.store.publish_external(outputs, line=line)["checkpoint"].digest

    def promote(self, digest: str) -> None:
        """Make a checkpoint live."""
        self.store.move_alias("auto", "live", digest, reason="test", by="test")
        self.live = digest

    def shared_key(self, *ids: str) -> None:
        """API keys of products, whose names are users."""
        keys = [ApiKey(id, f"{id}-name", "0" * 64, "", shared=True) for id in ids]
        replace({self.workspace.keys_dir / FILE: encoded(keys)}, lambda: None)

    def generation(
        self,
        gid: str,
        episode: str,
        at: int,
        *,
        prompt: Sequence[int] = tuple(range(20)),
        output: Sequence[int] = (7, 8),
        logprobs: Sequence[float] | None = None,
        request: str = "change the total to a sum",
        answer: str = "Done.",
        checkpoint: str = "",
        experts: np.ndarray | None = None,
        **fields: Any,
    ) -> str:
        """Capture one model call."""
        values = [-0.5] * len(output) if logprobs is None else list(logprobs)
        spans = (Span(0, len(output), checkpoint or self.live),)
        defaults: dict[str, Any] = {
            "id": gid, "key_id": "k1", "user": "ada", "session": "s1", "episode": episode, "ordinal": 0,
            "at": T0 + at, "wall": T0 + at, "line": "auto", "arm": "live", "deployment": "", "api": "chat",
            "sampling": Sampling(), "spans": spans, "finish_reason": "stop", "prompt_tokens": 0,
            "output_tokens": 0, "ttft_ms": 10.0, "duration_ms": 100.0,
        }  # fmt: skip
        ids = np.array(prompt, np.int32), np.array(output, np.int32)
        tokens = Tokens(*ids, np.array(values, np.float32), experts)
        self.writer.append_generation(Generation(**(defaults | fields)), tokens, request, answer)
        return gid

    def event(self, gid: str, kind: str, at: int, *, eid: str = "", key: str = "k1", **data: Any) -> str:
        """Capture one event; returns what the spool said of it."""
        self.events_sent += 1
        event = Event(
            id=eid or f"event-{self.events_sent}",
            key_id=key,
            generation_id=gid,
            type=kind,  # type: ignore[arg-type]
            at=T0 + at,
            wall=T0 + at,
            data=data,
        )
        return self.writer.append_events([event])[0].status

    def run(self, stage: Any, *overrides: str, refs: Any = (), **options: Any) -> StageResult:
        """Run a stage as the command would."""
        self.writer.flush()
        return run_stage(self.workspace, self.store, stage, refs, overrides, **options)

    def collect(self, *overrides: str, **options: Any) -> StageResult:
        """Run `collect`."""
        return self.run(COLLECT, *overrides, **options)

    def tick(self, at: int) -> None:
        """Let event time pass until `at`, by another user's generation."""
        self.generation(f"tick-{at}", f"tick-{at}", at, user="clock", session="clock", key_id="clock")

    def close(self) -> None:
        self.writer.close()
        self.vault.close()


@cache
def _with_a_checkpoint() -> tuple[Path, str]:
    """What each world is a copy of, made once in a process, and the digest that is live in it."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = World.__new__(World)
    made.root = folder / "world"
    made.workspace = Workspace.create(made.root / "ws", "")
    made.store = Store.open(made.workspace.store_dir)
    live = made.checkpoint()
    for name in ("live", "anchor"):
        made.store.move_alias("auto", name, live, reason="test", by="test")
    return made.root, live
