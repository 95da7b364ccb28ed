"""The engine behind an eval: one, started when first asked, its weights changed per checkpoint.

Not the serving engine: that one goes on serving users while candidates are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from cursorbench.harness.chat import ChatRequest
from evals.suites.base import Answer, Subject, TextRequest
from stages.stage import Artifact

BATCH_SEQUENCES = 256


class ChatEngine(Protocol):
    """What an eval needs of an engine; `stages/engine/inprocess.py` is the real one."""

    checkpoint_dir: Path

    @property
    def context(self) -> int: ...
    def chat(self, batch: Sequence[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]: ...
    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]: ...
    def continued(self, requests: Sequence[TextRequest]) -> list[str]: ...
    def load_weights(self, checkpoint_dir: Path) -> Any: ...
    def close(self) -> None: ...


class Engines:
    """Holds at most one engine. A context manager.

    Args:
        start: makes an engine for a checkpoint folder.
        seed: of the answers (`seed_of`); each arm's random numbers start afresh from it.
        folder: of a checkpoint, with its whole weights (`Store.checkpoint_folder`).
    """

    def __init__(
        self, start: Callable[[Path], ChatEngine], seed: int, folder: Callable[[Artifact], Path]
    ) -> None:
        self._start, self._seed, self._folder = start, seed, folder
        self._engine: ChatEngine | None = None
        self._seeded: tuple[Path | None, int] = (None, 0)

    def __enter__(self) -> Engines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._engine is not None:
            self._engine.close()

    def subject(self, checkpoint: Artifact, look: int = 1) -> Subject:
        """A checkpoint as suites want it. Each look has random numbers of its own."""
        folder = self._folder(checkpoint)

        def complete(requests: list[ChatRequest]) -> list[Answer]:
            return list(self._chat(folder, look, requests))

        return Subject(checkpoint.digest, folder, complete, _Tokens(self, folder))

    def held(self, folder: Path) -> ChatEngine:
        """The engine, holding that checkpoint's weights."""
        if self._engine is None:
            self._engine = self._start(folder)
        elif self._engine.checkpoint_dir != folder:
            self._engine.load_weights(folder)
        return self._engine

    def _chat(self, folder: Path, look: int, requests: list[ChatRequest]) -> list[dict[str, Any]]:
        engine = self.held(folder)
        fresh = self._seeded != (folder, look)
        self._seeded = folder, look
        return engine.chat(requests, seed=self._seed + look - 1 if fresh else None)


def seed_of(seed: int, candidate: Artifact) -> int:
    """Of an eval: the same in both its arms and whenever it is repeated, another one for the next candidate.

    What a candidate does is drawn once more when it is live. By one seed for all evals it drew the same: what
    it passed with was what its successors were held against, however often it was made anew.
    """
    import hashlib

    return int.from_bytes(hashlib.sha256(f"{seed}:{candidate.digest}".encode()).digest()[:6], "big")


@dataclass(frozen=True)
class _Tokens:
    """One checkpoint's `TokenEngine`: the same engine, its weights changed when needed."""

    engines: Engines
    folder: Path

    @property
    def context(self) -> int:
        return self.engines.held(self.folder).context

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        return self.engines.held(self.folder).ranked(sequences)

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        return self.engines.held(self.folder).continued(requests)
