"""`rtrl serve`, deploy and rollback with real vLLM: what is served really changes, and is what was said."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from stages.spool import Spool
from stages.target import light
from stages.target.admin import Admin
from stages.target.intent import read_intent
from stages.vault import Vault
from tests import processes
from tests.e2e.conftest import World
from tests.stages.spool.spool_records import full_tokens

pytestmark = pytest.mark.vllm


def ask(world: World, text: str = "hi", **body: Any) -> httpx.Response:
    document = {
        "model": "rtrl",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 8,
        "logprobs": True,
        **body,
    }
    return httpx.post(f"{world.url}/chat/completions", json=document, headers=world.headers, timeout=60)


def distribution(world: World) -> list[float]:
    """Logprobs of the four likeliest first tokens after a fixed prompt: tells the checkpoints apart."""
    answer = ask(world, "def f(x): return x + 1", max_tokens=1, top_logprobs=5)
    assert answer.status_code == 200, answer.text
    (first,) = answer.json()["choices"][0]["logprobs"]["content"]
    return sorted(entry["logprob"] for entry in first["top_logprobs"])[-4:]


def rtrl(world: World, *arguments: str) -> int:
    return processes.rtrl(*arguments, "-w", str(world.workspace.root), "--quiet").returncode


def is_served(world: World) -> str:
    admin = Admin(world.endpoint)
    return admin.served().checkpoint


def test_answers_and_records_exact_tokens(served: World) -> None:
    answer = ask(served, "hello")
    assert answer.status_code == 200, answer.text
    generation_id = answer.headers["x-rtrl-generation-id"]
    admin = Admin(served.endpoint)
    admin.flush_spool()
    spool = Spool.open(served.workspace.spool_dir)
    tokens = full_tokens(spool, generation_id, Vault.open(served.workspace.keys_dir))
    shown = [entry["logprob"] for entry in answer.json()["choices"][0]["logprobs"]["content"]]
    assert len(tokens.output) == len(shown)
    assert tokens.logprobs.tolist() == pytest.approx(shown, abs=1e-6)
    assert len(tokens.prompt) == answer.json()["usage"]["prompt_tokens"]
    (span,) = spool.record(generation_id)[0].spans
    assert span.checkpoint == served.first.digest


def test_the_engine_port_wants_its_own_key(served: World) -> None:
    engine = served.endpoint.engine
    body = {"method": "rtrl_seed", "args": [1]}
    assert httpx.post(f"{engine.url}/collective_rpc", json=body).status_code == 401
    assert httpx.get(f"{engine.url}/v1/models", headers=served.headers).status_code == 401


def test_deploy_rollback_deploy_changes_what_is_served(served: World) -> None:
    seen = [distribution(served)]
    for arguments in (("deploy",), ("rollback", "--reason", "test"), ("deploy",), ("rollback",)):
        assert rtrl(served, *arguments) == 0
        seen.append(distribution(served))
    first, second = seen[0], seen[1]
    assert first != pytest.approx(second, abs=1e-3)
    assert seen[2] == pytest.approx(first, abs=1e-5)
    assert seen[3] == pytest.approx(second, abs=1e-5)
    assert seen[4] == pytest.approx(first, abs=1e-5)
    assert is_served(served) == served.first.digest
    assert rtrl(served, "deploy", "--input", served.first.ref) == 0  # no work: it is served


def test_a_rollback_while_the_store_is_away(served: World) -> None:
    before = distribution(served)
    assert rtrl(served, "deploy") == 0
    wait(lambda: (light.served(served.endpoint) or {}).get("previous") == served.first.digest)
    store, aside = served.store.dir, served.store.dir.with_name("aside")
    store.rename(aside)
    try:
        assert rtrl(served, "rollback") == 0
        assert distribution(served) == pytest.approx(before, abs=1e-5)
        assert not store.exists()
    finally:
        aside.rename(store)
    wait(lambda: read_intent(served.workspace.run_dir, "auto") is None)
    current = served.store.deployments.current("auto")
    assert current is not None
    assert current.checkpoint == is_served(served) == served.first.digest
    assert distribution(served) == pytest.approx(before, abs=1e-5)


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_rollback_cuts_answers_that_are_too_long_to_wait_for(served: World) -> None:
    before = distribution(served)
    assert rtrl(served, "deploy") == 0
    body = {"model": "rtrl", "prompt": "def f(x):", "max_tokens": 16000, "min_tokens": 16000}

    def answer(stream: bool) -> httpx.Response:
        return httpx.post(
            f"{served.url}/completions", json={**body, "stream": stream}, headers=served.headers, timeout=300
        )

    with ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(answer, stream) for stream in (True, False, True, False)]
        deadline = time.monotonic() + 60
        admin = Admin(served.endpoint)
        while admin.served().in_flight < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert rtrl(served, "rollback", "--reason", "test") == 0
    streamed, whole = answers[0].result(), answers[1].result()
    assert whole.status_code == 503
    assert whole.json()["error"]["code"] == "weights_updating"
    last = streamed.text.strip().splitlines()[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "weights_updating"
    assert is_served(served) == served.first.digest
    assert distribution(served) == pytest.approx(before, abs=1e-5)


def test_a_deploy_is_rehearsed_without_touching_what_is_served(served: World) -> None:
    assert rtrl(served, "deploy") == 0
    assert rtrl(served, "rollback") == 0
    before = distribution(served)
    deployed = served.store.runs("deploy", limit=1)[0]
    root = str(served.workspace.root)
    done = processes.rtrl("deploy", "--from-run", deployed.id, "--json", "-w", root)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    assert (metrics["rehearsed"], metrics["changed"]) == (True, True)
    assert metrics["verification"]["probes"]["verdict"] == "child"
    assert is_served(served) == served.first.digest
    assert distribution(served) == pytest.approx(before, abs=1e-5)
    assert served.store.alias("auto", "live") == served.first


def test_a_checkpoint_that_is_not_what_it_says_is_refused_and_the_old_weights_are_back(served: World) -> None:
    before = distribution(served)
    wrong = served.root / "wrong"
    shutil.copytree(served.root / "second", wrong)
    shutil.copy(served.root / "first" / "served_fingerprint.json", wrong)
    published = served.publish(wrong, served.first)
    override = ("--override", "--reason", "test")
    assert rtrl(served, "deploy", "--input", published.ref, *override) == 12
    assert is_served(served) == served.first.digest
    assert distribution(served) == pytest.approx(before, abs=1e-5)
    assert served.store.deployments.history("auto")[0].state == "failed"


def test_a_refused_request_leaves_nothing_in_the_engines_log_and_hurts_nobody(served: World) -> None:
    engine = served.endpoint.engine.pid
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"password": "SECRET-a"}}}
    headers = {**served.headers, "X-Rtrl-No-Train": "1"}
    vocabulary = json.loads((served.first.path / "config.json").read_bytes())["vocab_size"]
    said = ""
    hello = [{"role": "user", "content": "hi"}]
    quoted = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "SECRET-d", "arguments": "[1]"}}],
    }
    nothing = {"type": "text", "text": None, "x": "SECRET-e"}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "SECRET-f"}}}
    for route, body in (
        ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": [call]}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "SECRET-b", "name": 5}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "priority": "SECRET-c"}),
        ("chat/completions", {"messages": [*hello, quoted]}),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [nothing, {"type": "text", "text": "x"}]}]},
        ),
        ("chat/completions", {"messages": hello, "stream": True, "response_format": schema}),
        ("completions", {"prompt": [vocabulary]}),
        ("completions", {"prompt": [10**9]}),
    ):
        document = {"model": "rtrl", "max_tokens": 4, **body}
        answer = httpx.post(f"{served.url}/{route}", json=document, headers=headers, timeout=60)
        assert answer.status_code in (200, 400), answer.text
        said += answer.text if answer.status_code == 400 else ""
    said += (served.workspace.store_dir / "logs" / "engine.log").read_text()
    assert "SECRET" not in said
    assert ask(served, "<|im_end|><|endoftext|></s>").status_code == 200
    assert served.endpoint.engine.pid == engine
