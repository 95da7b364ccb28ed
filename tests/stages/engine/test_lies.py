"""Engines that say yes and serve something else: caught after an update and after a rollback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stages.engine.config import Dtype, EngineConfig
from stages.engine.update import EngineControl
from stages.engine.verification import Verification
from stages.errors import IntegrityError
from stages.gateway.errors import SwapError
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from tests.stages.engine.liars import LIES, Liar, nudged, random_weights, write

STEP = 0.02  # of every weight: 4 % of its size


class Stage:
    """An engine on the first checkpoint, the gateway's swap before it, and a child."""

    def __init__(self, root: Path, dtype: Dtype) -> None:
        base = random_weights(1)
        middle = nudged(base, 2, STEP)
        self.before = write(root / "before", middle, base)
        self.child = write(root / "child", nudged(middle, 3, STEP), middle)
        self.engine = Liar(self.before, dtype)
        self.served = ServedState("auto", "rtrl", Checkpoint("before", self.before), engine="ready")
        self.dtype = dtype

    def connect(self, url: str) -> None:
        config = EngineConfig(dtype=self.dtype, max_model_len=512)
        self.control = EngineControl(url, "k", config, self.before)
        self.swapper = Swapper(self.served, self.control.update, 1.0)

    async def swap(self, folder: Path) -> Verification:
        found = (await self.swapper.swap(Checkpoint(folder.name, folder))).verification
        assert isinstance(found, Verification)
        return found


@pytest.fixture(params=["float32", "bfloat16"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path, request.param)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.engine.answer)
    async with TestServer(app) as server:
        made.connect(str(server.make_url("")).rstrip("/"))
        yield made
        await made.control.close()


async def test_an_honest_engine_passes_both_ways(stage: Stage) -> None:
    for folder in (stage.child, stage.before, stage.child):
        found = await stage.swap(folder)
        assert (found.probes.verdict, found.tensors.different) == ("child", ())
        assert found.probes.slope == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("after", ["update", "rollback", "staging"])
async def test_a_lie_is_caught_and_the_old_weights_are_back(stage: Stage, lie: str, after: str) -> None:
    target = stage.child
    if after == "rollback":
        await stage.swap(stage.child)
        target = stage.before
    elif after == "staging":
        await stage.control.prepare(target)
    stage.engine.cached.add("of a user")
    serving = stage.served.checkpoint
    stage.engine.lie, stage.engine.about = lie, target
    with pytest.raises(SwapError) as caught:
        await stage.swap(target)
    assert isinstance(caught.value.cause, IntegrityError)
    assert (caught.value.code, caught.value.cause.code) == ("swap_failed", 12)
    assert stage.engine.loads[-3:-1] == (
        ["staged", "file"] if after == "staging" else stage.engine.loads[-3:-1]
    )
    assert (stage.served.checkpoint, stage.served.engine) == (serving, "ready")
    assert (await stage.control.verify(serving.path)).tensors.different == ()


@pytest.mark.parametrize("counts", ["honest", "zero", "none"])
@pytest.mark.parametrize("stage", ["float32"], indirect=True)
async def test_a_stale_cache_is_caught_however_the_engine_counts(stage: Stage, counts: str) -> None:
    """One that was never seen to count is asked for a prompt, before the update and after it."""
    stage.engine.counts = counts
    for folder in (stage.child, stage.before):
        await stage.swap(folder)
    asked = stage.engine.prompts
    assert asked == (1 if counts == "honest" else 4)
    stage.engine.lie, stage.engine.about = "cache", stage.child
    stage.engine.cached.add("of a user")
    with pytest.raises(SwapError, match=r"old weights \(1 blocks\)" if counts == "honest" else "128 tokens"):
        await stage.swap(stage.child)
    assert (stage.served.checkpoint.digest, stage.served.engine) == ("before", "ready")
    assert (stage.engine.prompts == asked) == (counts == "honest")


async def test_the_weights_before_come_out_of_memory_without_their_file(stage: Stage) -> None:
    await stage.control.verify(stage.before)
    assert (await stage.swap(stage.child)).source == "file"
    (stage.before / "model.safetensors").rename(stage.before / "away")
    stage.engine.looks_at_files = False
    for folder in (stage.before, stage.child, stage.before):
        found = await stage.swap(folder)
        assert (found.source, found.keeps, found.probes.verdict) == ("memory", "", "child")
    assert stage.engine.loads == ["file", "memory", "memory", "memory"]


async def test_memory_that_is_not_what_was_kept_gives_way_to_the_file(stage: Stage) -> None:
    await stage.control.verify(stage.before)
    await stage.swap(stage.child)
    stage.engine.rot = True
    found = await stage.swap(stage.before)
    assert (found.source, found.tensors.different, found.probes.verdict) == ("file", (), "child")
    assert stage.engine.loads == ["file", "memory", "file"]


async def test_weights_that_were_staged_are_served_without_their_file(stage: Stage) -> None:
    await stage.control.prepare(stage.child)
    assert stage.engine.slices == 3
    found = await stage.swap(stage.child)
    assert (found.source, found.unstaged, found.probes.verdict) == ("staged", "", "child")


async def test_what_was_staged_and_is_not_whole_gives_way_to_the_file(stage: Stage) -> None:
    await stage.control.prepare(stage.child)
    stage.engine.rot = True
    found = await stage.swap(stage.child)
    assert (found.source, found.tensors.different, stage.engine.loads) == ("file", (), ["staged", "file"])


@pytest.mark.parametrize("lie", ["wrong", "nothing"])
async def test_probes_catch_what_a_blind_worker_does_not(stage: Stage, lie: str) -> None:
    stage.engine.lie, stage.engine.about, stage.engine.blind = lie, stage.child, True
    with pytest.raises(SwapError, match="neither" if lie == "wrong" else "still answers as the parent"):
        await stage.swap(stage.child)
    assert stage.served.engine == "ready"


@pytest.mark.parametrize("stage", ["float32"], indirect=True)
@pytest.mark.parametrize("lie", ["head", "layer"])
async def test_in_float32_probes_see_one_stale_matrix_too(stage: Stage, lie: str) -> None:
    stage.engine.lie, stage.engine.about, stage.engine.blind = lie, stage.child, True
    with pytest.raises(SwapError, match="neither"):
        await stage.swap(stage.child)
