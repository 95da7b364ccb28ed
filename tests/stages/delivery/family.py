"""A line of checkpoints, each a small step from the one before; and how a helper is asked for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
from safetensors.numpy import save_file

from stages.delivery.__main__ import Helper
from stages.registry.store import Store
from stages.stage import Artifact, Output
from stages.train.delta import as_delta
from stages.workspace import Workspace

NAME = "model.safetensors"


class Family:
    """The first and every fourth are whole, the others deltas. `bytes`: the whole weights by digest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace.create(root / "ws", "")
        self.store = Store.open(self.workspace.store_dir)
        self.bytes: dict[str, bytes] = {}
        rng = np.random.default_rng(0)
        self.weights = rng.normal(0, 1, (64, 64)).astype(np.float32)
        self.made: list[Artifact] = []

    def grow(self) -> Artifact:
        """One more."""
        number = len(self.made)
        folder = self.root / f"c{number}"
        (folder / "sub").mkdir(parents=True)
        self.weights = self.weights.copy()
        self.weights[number % 64] += np.float32(0.001)
        save_file({"w": self.weights}, folder / NAME)
        (folder / "config.json").write_text(f'{{"n": {number}}}')
        (folder / "sub" / "more.json").write_text("{}")
        whole = (folder / NAME).read_bytes()
        base = as_delta(folder, self.made[-1], self.store, longest=3).base if self.made else None
        outputs = {"checkpoint": (Output("checkpoint", {}, base), folder)}
        self.made.append(self.store.publish_external(outputs, line="auto")["checkpoint"])
        self.bytes[self.made[-1].digest] = whole
        return self.made[-1]


@asynccontextmanager
async def asking(helper: Helper) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a helper whose key is `k`."""
    keys = {"authorization": "Bearer k"}
    transport = httpx.ASGITransport(helper)
    async with httpx.AsyncClient(transport=transport, base_url="http://h", headers=keys) as client:
        yield client
