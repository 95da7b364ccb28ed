"""Several who ask at a time: helpers that share a cache, and a checkpoint that is there already."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stages import locks
from stages.delivery.__main__ import Helper
from stages.delivery.depot import Depot
from stages.delivery.fetch import fetch
from stages.delivery.push import push
from tests.stages.delivery.family import NAME, Family, asking


async def test_what_it_has_waits_for_no_store_that_hangs(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/depot"
    push(family.store, family.made[1], Depot(url))
    before = fetch(url, family.made[0].digest, tmp_path / "cache")
    asked, answers = asyncio.Event(), threading.Event()
    loop, get = asyncio.get_running_loop(), Depot.get

    def hanging(self: Depot, digest: str, manifest: dict[str, Any], folder: Path) -> int:
        loop.call_soon_threadsafe(asked.set)
        answers.wait()
        return get(self, digest, manifest, folder)

    monkeypatch.setattr(Depot, "get", hanging)
    async with asking(Helper(url, tmp_path / "cache", "k")) as client:
        new = asyncio.create_task(client.post("/fetch", json={"checkpoint": family.made[1].digest}))
        try:
            await asked.wait()
            back = client.post("/fetch", json={"checkpoint": family.made[0].digest})
            found = await asyncio.wait_for(back, 20)
            assert (found.json()["path"], new.done()) == (str(before.path), False)
        finally:
            answers.set()
        assert (await new).json()["links"] == 1


def test_helpers_may_share_a_cache(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one took what the first was putting together for what a kill had left."""
    url, cache, get = f"file://{tmp_path}/depot", tmp_path / "cache", Depot.get
    push(family.store, family.made[3], Depot(url))
    begun, ended = threading.Event(), threading.Event()
    tried: list[bool] = []

    def slow(self: Depot, digest: str, manifest: dict[str, Any], folder: Path) -> int:
        if not tried:
            tried.append(locks.in_use(cache))
            begun.set()
            ended.wait(0.1 if tried[0] else 20)  # nobody else can come in between
        return get(self, digest, manifest, folder)

    monkeypatch.setattr(Depot, "get", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetch, url, family.made[3].digest, cache)
        begun.wait()
        second = pool.submit(fetch, url, family.made[3].digest, cache)
        second.add_done_callback(lambda _: ended.set())
        found = [first.result(), second.result()]
    assert [each.links for each in found] == [3, 0]
    assert (found[0].path / NAME).read_bytes() == family.bytes[family.made[3].digest]
