"""OpenTelemetry's own exporters against a gateway process that is killed: what was answered is collected."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from stages import schemas, tables
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.distill.spec import COLUMNS
from stages.engine.free_port import free_port
from stages.gateway.config import GatewayConfig
from stages.gateway.keys import ApiKeys
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.init import init_bare
from stages.registry.store import Store
from stages.result import StageResult
from stages.runner import run_stage
from stages.spool import Spool, open_event
from stages.vault import Vault
from stages.workspace import Workspace
from tests.stages.gateway.spans import chat, claude

ROOT = Path(__file__).parents[3]
EXPERIENCE = schemas.experience_episodes(COLUMNS)
SERVER = ROOT / "scripts" / "benches" / "_gateway_server.py"


class Process:
    """A gateway in a process of its own."""

    def __init__(self, folder: Path, engine_port: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, str(SERVER), str(folder), str(engine_port), str(self.port)]
        self.child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})

    async def ready(self) -> None:
        async with httpx.AsyncClient() as http:
            until = time.monotonic() + 120
            while time.monotonic() < until and self.child.poll() is None:
                try:
                    if (await http.get(f"{self.url}/health")).is_success:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        raise AssertionError("the gateway does not start")

    def end(self, number: int) -> None:
        self.child.send_signal(number)
        self.child.wait(20)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Any]:
    """Call the result for a running gateway process."""
    engine = Listener(StubEngine(), [bind_tcp("127.0.0.1", 0)], GatewayConfig())
    await engine.start()
    started: list[Process] = []

    async def start() -> Process:
        started.append(Process(folder, engine.address[1]))
        await started[-1].ready()
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            if one.child.poll() is None:
                one.end(signal.SIGKILL)
        await engine.stop()


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def emit(url: str, key: str, generation: str) -> None:
    """What an instrumented agent sends: spans with gzip, logs without, and a metric."""
    headers = {"Authorization": f"Bearer {key}", "X-Rtrl-User": "ada"}
    resource = Resource({"service.name": "agent"})
    provider = TracerProvider(resource=resource)
    spans = OTLPSpanExporter(f"{url}/v1/traces", headers=headers, compression=Compression.Gzip)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("test")
    for one in (chat("fix the sum", "done"), chat("again", "known", generation)):
        with tracer.start_as_current_span("chat m", attributes=attributes(one)):
            pass
    finished = tracer.start_span("chat m", attributes=attributes(chat("fix the sum", "done")))
    finished.end()
    assert spans.export([finished]) is SpanExportResult.SUCCESS  # type: ignore[list-item]
    logs = LoggerProvider(resource=resource)
    logs.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs", headers=headers))
    )
    logger = logs.get_logger("com.anthropic.claude_code.events")
    for record in (
        claude("user_prompt", 1, prompt="rename it"),
        claude("assistant_response", 2, response="renamed", model="m"),
        claude("user_prompt", 3, prompt="no, that is still wrong"),
        claude("assistant_response", 4, response="renamed again", model="m"),
    ):
        at = int(record["timeUnixNano"])
        logger.emit(timestamp=at, body=record["body"]["stringValue"], attributes=attributes(record))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics", headers=headers))
    meter = MeterProvider([reader], resource=resource)
    meter.get_meter("test").create_counter("claude_code.commit.count").add(1)
    assert meter.force_flush()
    for one in (provider, logs, meter):
        one.shutdown()


def collect(place: tuple[Workspace, Store]) -> StageResult:
    source = Source(paths=(), received=place[0].inbox_dir, repository="shop")
    return run_stage(*place, CollectStage(source=source))


async def test_what_exporters_sent_is_collected_after_a_kill(tmp_path: Path) -> None:
    workspace = init_bare(tmp_path / "ws")
    place = workspace, Store.open(workspace.store_dir)
    key = ApiKeys.create(workspace.keys_dir, "agents")
    async with serving(workspace.root) as start:
        gateway = await start()
        async with httpx.AsyncClient(
            base_url=gateway.url, headers={"authorization": f"Bearer {key}"}
        ) as http:
            body = {"model": "rtrl", "messages": [{"role": "user", "content": "hi"}]}
            generation = (await http.post("/v1/chat/completions", json=body)).json()["id"]
            await asyncio.to_thread(emit, gateway.url, key, generation)
            call = {"metric_name": "ok", "inference_id": generation, "value": True}
            assert (await http.post("/feedback", json=call)).is_success
            gateway.end(signal.SIGKILL)
    vault = Vault.open(workspace.keys_dir)
    spool = Spool.open(workspace.spool_dir)
    told = [open_event(e, user, s, vault) for _, e, user, s in spool.events(0, 1 << 60)]
    spool.close()
    vault.close()
    assert [(event.type, event.generation_id) for event in told] == [("feedback", generation)]
    made = collect(place)
    assert made.metrics["episodes"] == 4, "two of the log; each span without conversation has its own trace"
    assert made.metrics["items"]["otel"] >= 8
    assert collect(place).status == "noop"
    experience = run_stage(*place, DistillStage()).outputs["experience"]
    rows = tables.read(experience.path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    assert {row["user"] for row in rows} == {"ada"}
    assert {row["why_not"] for row in rows} == {"text_only"}, "nothing of it is ever trained on"
    assert {row["repository"] for row in rows} == {"shop"}
    unhappy = [row["dissatisfied_followup"] for row in rows if row["dissatisfied_followup"] is not None]
    assert len(unhappy) == 1
    assert unhappy[0] > 0.5
