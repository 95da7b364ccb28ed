"""EngineControl against an HTTP server that answers like vLLM; the real one is in tests/e2e."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from safetensors.numpy import save_file

from stages.engine import weights_file
from stages.engine.config import EngineConfig
from stages.engine.identity import UpdateImpossibleError, different_files, identity_of, require_same_model
from stages.engine.port import EnginePort
from stages.engine.update import EngineControl
from stages.errors import DependencyDownError, IntegrityError

Handler = Callable[[web.Request], Awaitable[web.Response]]
CHILD = [[-1.0, -2.0]]


class Engine:
    """What the test's engine holds, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.cache_resets_refused = 0
        self.served = CHILD
        self.different: list[str] = []
        self.other_files: list[str] = []
        self.loaded = False
        self.stages: list[dict[str, Any]] = []  # answers to `rtrl_stage`; without one it cannot
        self.staging = asyncio.Event()
        self.cached = 0  # tokens of a prompt that it has cached after loading

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer k":
            return web.json_response({}, status=401)
        body = json.loads(await request.text() or "null")
        self.asked.append((request.path, body))
        if request.path in ("/health", "/pause", "/resume"):
            return web.json_response({})
        if request.path == "/reset_prefix_cache":
            self.cache_resets_refused -= 1
            return web.json_response({"success": self.cache_resets_refused < 0})
        if request.path == "/v1/completions":
            details = {"cached_tokens": self.cached if self.loaded else 0}
            if body.get("prompt_logprobs") is None:
                body["prompt"] = []
            choices = [
                {
                    "index": index,
                    "prompt_logprobs": [
                        None,
                        *({str(i): {"logprob": v}} for i, v in zip(ids[1:], row, strict=True)),
                    ],
                }
                for index, (ids, row) in enumerate(zip(body["prompt"], self.served, strict=False))
            ]
            usage = {"prompt_tokens_details": details}
            return web.json_response({"choices": choices[::-1], "usage": usage})
        return web.json_response({"results": [self.worker(body)]})

    def worker(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["method"] == "rtrl_stage":
            self.staging.set()
            return self.stages.pop(0) if self.stages else {"state": "", "why": "no room"}
        if body["method"] == "rtrl_load":
            self.loaded = True
            return {"repacked_heads": [], "source": "file" if body["kwargs"]["file"] else "staged"}
        if body["method"] == "rtrl_cached":
            return {"blocks": None}
        return {
            "tensors": 1,
            "different": self.different,
            "other_files": self.other_files,
            "file_mismatch": [],
            "unchecked": [],
            "parameters": 4,
            "parameters_checked": 4,
        }


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def control(engine: Engine, checkpoint: Path) -> AsyncIterator[EngineControl]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.answer)
    async with (
        TestServer(app) as server,
        EngineControl(str(server.make_url("")).rstrip("/"), "k", EngineConfig(), checkpoint) as made,
    ):
        yield made


def write_checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4, **config}))
    (folder / "tokenizer.json").write_text("{}")
    values = np.arange(4, dtype=np.float32)
    save_file({"w": values}, folder / "model.safetensors")
    (folder / "served_fingerprint.json").write_text(
        json.dumps(
            {
                "schema": "rtrl-fingerprint/1",
                "probes": [[1, 2, 3]],
                "logprobs": {"parent": None, "child": CHILD},
                "tensors": {"w": {"sha256": hashlib.sha256(values.tobytes()).hexdigest(), "numel": 4}},
            }
        )
    )
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "parent")


async def test_update_loads_resets_then_verifies(
    engine: Engine, control: EngineControl, checkpoint: Path, tmp_path: Path
) -> None:
    child = write_checkpoint(tmp_path / "child", transformers_version="6")
    engine.cache_resets_refused = 2
    await control.verify(checkpoint)
    engine.asked.clear()
    shutil.rmtree(checkpoint)  # rebuilt from deltas, and not needed any more
    found = await control.update(child)
    assert found.probes.verdict == "child"
    asked = [(path, body["method"] if body and "method" in body else None) for path, body in engine.asked]
    assert asked == [
        ("/v1/completions", None),
        ("/collective_rpc", "rtrl_cached"),
        ("/pause", None),
        ("/collective_rpc", "rtrl_load"),
        *[("/reset_prefix_cache", None)] * 3,
        ("/resume", None),
        ("/collective_rpc", "rtrl_verify"),
        *[("/v1/completions", None)] * 2,
    ]
    arguments = engine.asked[3][1]["kwargs"]
    assert (arguments["path"], arguments["file"], arguments["limit_gib"]) == (str(child), True, None)
    assert engine.asked[8][1]["kwargs"]["expected"] == {}, "the files were looked at here"
    engine.cached = 128
    with pytest.raises(IntegrityError, match="keys and values of the old weights"):
        await control.update(child)


async def test_what_was_prepared_is_not_done_again(
    engine: Engine, control: EngineControl, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    really = weights_file.file_mismatch
    monkeypatch.setattr(weights_file, "file_mismatch", lambda *a: looked.append(a[0]) or really(*a))
    await control.prepare(checkpoint)
    assert [path for path, _ in engine.asked] == ["/collective_rpc", "/v1/completions", "/collective_rpc"]
    found = await control.update(checkpoint)
    assert (found.source, found.unstaged) == ("file", "no room")
    assert engine.asked[3][0] == "/pause"
    assert looked == [checkpoint]
    save_file({"w": np.zeros(4, np.float32)}, checkpoint / "model.safetensors")
    with pytest.raises(IntegrityError, match="not what was published"):
        await control.update(checkpoint)


GOING, STAGED = {"state": "going", "why": ""}, {"state": "staged", "why": ""}


def methods(engine: Engine) -> list[str]:
    return [body["method"] for path, body in engine.asked if path == "/collective_rpc"]


async def test_weights_are_staged_in_slices_and_then_only_exchanged(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    engine.stages = [GOING, GOING, STAGED]
    await control.prepare(checkpoint)
    found = await control.update(checkpoint)
    assert (found.source, found.unstaged) == ("staged", "")
    assert methods(engine) == ["rtrl_stage"] * 3 + ["rtrl_cached", "rtrl_load", "rtrl_verify"]
    slices = [body["kwargs"] for path, body in engine.asked if path == "/collective_rpc"][:3]
    assert slices[0] == slices[1] == slices[2], "the same work goes on"
    assert (slices[0]["expected"], slices[0]["limit_gib"]) == ({}, None), "the files were looked at here"


async def test_staging_goes_on_where_it_was_stopped(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    engine.stages = [GOING] * 10_000
    ahead = asyncio.create_task(control.stage(checkpoint))
    await engine.staging.wait()
    ahead.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ahead
    engine.stages = [STAGED]
    await control.prepare(checkpoint)
    assert (await control.update(checkpoint)).source == "staged"


async def test_a_file_that_changes_while_it_is_staged_is_not_served_from_there(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    file = checkpoint / "model.safetensors"
    engine.stages = [GOING, STAGED]
    states = [weights_file.signature(checkpoint)]
    really = control.call

    async def touched(method: str, **arguments: Any) -> dict[str, Any]:
        answer = await really(method, **arguments)
        os.utime(file, ns=(1, len(states)))
        states.append(weights_file.signature(checkpoint))
        return answer

    control.call = touched  # type: ignore[method-assign]
    await control.prepare(checkpoint)
    assert methods(engine)[-2:] == ["rtrl_unstage", "rtrl_cached"]
    assert (await control.update(checkpoint)).source == "file"


async def test_a_wrong_file_is_found_before_anything_is_changed(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    save_file({"w": np.zeros(4, np.float32)}, checkpoint / "model.safetensors")
    engine.stages = [STAGED]
    with pytest.raises(IntegrityError, match="not what was published: w"):
        await control.prepare(checkpoint)
    assert methods(engine) == ["rtrl_stage", "rtrl_unstage"]
    engine.stages = [STAGED | {"file_mismatch": ["w"]}]  # one that looks itself, on another machine
    save_file({"w": np.arange(4, dtype=np.float32)}, checkpoint / "model.safetensors")
    with pytest.raises(IntegrityError, match="not what was published: w"):
        await control.prepare(checkpoint, "/there")
    assert engine.asked[-2][1]["kwargs"]["expected"].keys() == {"w"}


async def test_a_file_that_is_not_what_was_published_fails_the_update(
    control: EngineControl, checkpoint: Path
) -> None:
    save_file({"w": np.zeros(4, np.float32)}, checkpoint / "model.safetensors")
    with pytest.raises(IntegrityError, match="not what was published: w"):
        await control.update(checkpoint)


async def test_an_engine_that_says_yes_and_serves_something_else_is_caught(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    engine.served = [[-1.0, -7.0]]
    with pytest.raises(IntegrityError, match="neither"):
        await control.update(checkpoint)
    engine.served, engine.different = CHILD, ["lm_head.weight"]
    with pytest.raises(IntegrityError, match=r"other values for lm_head\.weight"):
        await control.verify(checkpoint)


async def test_an_engine_that_reads_text_another_way_is_not_taken(
    engine: Engine, control: EngineControl, checkpoint: Path
) -> None:
    engine.other_files = ["tokenizer.json"]
    with pytest.raises(UpdateImpossibleError, match=r"another tokenizer\.json"):
        await control.verify(checkpoint)
    assert control.proven is None


async def test_a_held_prefix_cache_fails_the_update(engine: Engine, control: EngineControl) -> None:
    engine.cache_resets_refused = 10**9
    with pytest.raises(IntegrityError, match="prefix cache"):
        await control.reset_prefix_cache(patience_s=0.2)


async def test_an_engine_is_resumed_when_the_weights_do_not_load(
    engine: Engine, control: EngineControl, tmp_path: Path
) -> None:
    child = write_checkpoint(tmp_path / "wider", hidden_size=8)
    with pytest.raises(UpdateImpossibleError):
        await control.update(child)
    assert [path for path, _ in engine.asked[2:]] == ["/pause", "/resume"]


async def test_a_dead_engine_is_a_dependency_that_is_down(checkpoint: Path) -> None:
    async with EngineControl("http://127.0.0.1:9", "k", EngineConfig(), checkpoint) as control:
        assert await control.health() == "silent"
        with pytest.raises(DependencyDownError) as caught:
            await control.load_weights(checkpoint)
    assert (caught.value.code, bool(caught.value.hint)) == (13, True)


async def test_it_can_be_used_while_its_old_connections_close(
    control: EngineControl, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor drops the connections of an engine it killed; a swap's way back asks meanwhile."""
    closing, go_on = asyncio.Event(), asyncio.Event()
    really_close = httpx.AsyncHTTPTransport.aclose

    async def slowly(transport: httpx.AsyncHTTPTransport) -> None:
        closing.set()
        await go_on.wait()
        await really_close(transport)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "aclose", slowly)
    assert await control.health() == "ok"
    dropping = asyncio.create_task(control.close())
    await closing.wait()
    await control.load_weights(checkpoint)
    go_on.set()
    await dropping
    assert await control.health() == "ok"


async def test_a_refusal_carries_the_engines_words(control: EngineControl, checkpoint: Path) -> None:
    assert await control.health() == "ok"
    control._headers["Authorization"] = "Bearer other"
    await control.close()
    assert await control.health() == "sick"
    with pytest.raises(IntegrityError, match="refused /collective_rpc"):
        await control.load_weights(checkpoint)


def test_only_weights_may_differ(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "wider", hidden_size=8)
    with pytest.raises(UpdateImpossibleError, match=r"config\.json") as caught:
        require_same_model(identity_of(checkpoint), other)
    assert "--offline" in caught.value.hint
    same = write_checkpoint(tmp_path / "same", dtype="bfloat16")
    require_same_model(identity_of(checkpoint), same)
    assert different_files(checkpoint, same) == []
    assert different_files(tmp_path / "gone", same) == []
    (same / "chat_template.jinja").write_text("{{ messages }}")
    assert different_files(checkpoint, same) == different_files(same, checkpoint) == ["chat_template.jinja"]
    (same / "chat_template.jinja").unlink()
    (same / "tokenizer.json").write_text("[]")
    with pytest.raises(UpdateImpossibleError, match=r"tokenizer\.json"):
        require_same_model(identity_of(checkpoint), same)
    (same / "config.json").write_text("{")
    with pytest.raises(IntegrityError):
        require_same_model(identity_of(checkpoint), same)


async def test_an_error_without_words_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a core that was killed in a swap: "does not answer /pause?mode=abort: ", and nothing behind it."""

    async def post(*_: object, **__: object) -> httpx.Response:
        raise httpx.ReadError("")

    monkeypatch.setattr(httpx.AsyncClient, "post", post)
    async with EnginePort("http://127.0.0.1:1", "key", EngineConfig()) as port:
        with pytest.raises(DependencyDownError, match=r"does not answer /pause: ReadError$"):
            await port.send("/pause")
