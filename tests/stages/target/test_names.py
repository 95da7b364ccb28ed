"""Whoever asks an engine past the gateway asks it for the adapter that it holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stages.errors import DependencyDownError
from stages.gateway.config import GatewayConfig
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.target import names
from stages.target.endpoint import EngineAt
from tests.stages.engine.adapter_world import Line
from tests.stages.gateway.rig import url_of


async def test_an_engine_is_asked_by_the_name_of_the_adapter_it_holds(tmp_path: Path) -> None:
    line = Line(tmp_path)
    adapter = line.adapter(1)
    child = adapter.folder.parent
    stub = StubEngine(model=adapter.name)
    listener = Listener(stub, [bind_tcp("127.0.0.1", 0)], GatewayConfig(shutdown_timeout_s=1))
    await listener.start()
    engine = EngineAt(0, url_of(listener), "", "", "")
    assert (await asyncio.to_thread(names.named, engine, child)).model == adapter.name
    assert names.named(engine, line.base) is engine, "no adapter, no question"
    stub.model = "rtrl"
    assert (await asyncio.to_thread(names.named, engine, child)).model == "", "it has the merged weights"
    await listener.stop()
    with pytest.raises(DependencyDownError, match="what it holds"):
        await asyncio.to_thread(names.named, engine, child)
