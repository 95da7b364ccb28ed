"""The relay: what gets through, what does not, and what is counted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.errors import UsageError
from cursorbench.harness import recording, sse
from cursorbench.harness import relay as module
from cursorbench.harness.budget import Budget, StopReason, Usage
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.recording import Recorder
from cursorbench.harness.relay import Relay
from cursorbench.harness.room import Room
from cursorbench.sandbox import sweep
from evals.trials import tried
from tests.stages.gateway.rig import Rig, running

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    }
]
NAMES = st.sampled_from(
    ["messages", "tools", "role", "content", "tool_calls", "id", "function", "name", "tool"]
)
ASKED = {"role": "user", "content": "x"}
WHO = Attribution("ada", "s1", "e1")


def client(relay: Relay, key: str | None = None) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(relay.folder / "model.sock"))
    headers = {"Authorization": f"Bearer {key or relay.key}"}
    return httpx.Client(transport=transport, base_url="http://inside", headers=headers, timeout=60)


def ask(http: httpx.Client, content: str, **body: Any) -> httpx.Response:
    messages = [{"role": "user", "content": content}]
    asked = {"model": "rtrl", "messages": messages, **body}
    return http.post(
        "/v1/chat/completions", json={name: value for name, value in asked.items() if value != ""}
    )


def declared(relay: Relay, length: str) -> int:
    """The status for a body of a declared length that is not sent."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {relay.key}\r\nContent-Length: {length}"
    )
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(relay.folder / "model.sock"))
        one.sendall(f"{head}\r\n\r\n".encode("latin-1"))
        return int(one.recv(100).split()[1])


async def test_model_calls_get_through_under_the_real_key_and_the_trial_s_names(tmp_path: Path) -> None:
    def inside(rig: Rig) -> Any:
        with Relay(Endpoint(rig.url, rig.key), Budget(turns=9), WHO) as relay, client(relay) as http:
            assert http.get("/v1/models?limit=9").json()["data"][0]["id"] == "rtrl"
            assert http.get("/v1/models/rtrl").json()["id"] == "rtrl"
            assert [http.head(path).status_code for path in ("/", "/v1/models")] == [404, 200]
            forged = {"X-Rtrl-User": "eve", "X-Rtrl-No-Train": "1", "X-Rtrl-Episode": "other"}
            http.headers.update(forged)
            plain = ask(http, "hello", max_tokens=12)
            assert plain.json()["usage"]["completion_tokens"] == 12
            call = ask(http, 'stub:call bash {"command": "ls"}', tools=TOOLS, stream=True)
            assert call.headers["content-type"].startswith("text/event-stream")
            assert call.text.rstrip().endswith("data: [DONE]")
            assert ask(http, "x", n=2).status_code == 400
            for other in ("a-stronger-one", ""):  # the one under test answers, whatever is asked for
                found = ask(http, "y", model=other, max_tokens=1)
                assert (found.status_code, found.json()["model"]) == (200, "rtrl")
            return relay.recorder.episode("go", StopReason.ANSWERED, "", 1.0)

    async with running(tmp_path) as rig:
        episode = await asyncio.to_thread(inside, rig)
        recorded = rig.generations()
    first = recorded[0]
    assert episode.generations == tuple(one.id for one in recorded)
    assert {(one.user, one.session.split("@")[0], one.episode.split("@")[0]) for one in recorded} == {
        ("ada", "s1", "e1")
    }
    assert {one.no_train for one in recorded} == {False}
    assert [(call.name, call.arguments, call.error) for call in episode.calls] == [
        ("bash", '{"command": "ls"}', "")
    ]
    assert episode.turns[0].usage == Usage(first.prompt_tokens, 12)
    assert not episode.turns[1].usage.told, "the stream did not say"
    assert [turn.segment for turn in episode.turns][:2] == [0, 1], "another conversation"


async def test_agents_that_speak_other_apis_get_through(tmp_path: Path) -> None:
    used = 'stub:call bash {"command": "ls"}'
    tool = TOOLS[0]["function"]
    messages = {
        "max_tokens": 400,
        "metadata": {"user_id": "eve"},
        "tools": [{"name": "bash", "input_schema": tool["parameters"]}],
        "messages": [{"role": "user", "content": used}],
    }
    responses = {"input": used, "tools": [{"type": "function", **tool}]}

    def inside(rig: Rig) -> Any:
        with Relay(Endpoint(rig.url, rig.key), Budget(turns=5), WHO) as relay, client(relay) as http:
            http.headers.update({"X-Api-Key": relay.key})
            del http.headers["Authorization"]
            for stream in (False, True):
                told = http.post("/v1/messages?beta=true", json={**messages, "stream": stream})
                assert told.status_code == 200, told.text
                told = http.post("/v1/responses", json={**responses, "stream": stream})
                assert told.status_code == 200, told.text
            counted = http.post("/v1/messages/count_tokens", json=messages)
            assert counted.json()["input_tokens"] > 0
            assert http.post("/v1/messages", json={"max_tokens": 1}).status_code == 400
            assert http.post("/v1/messages", json=messages).status_code == 200
            over = http.post("/v1/responses", json=responses)
            assert (over.status_code, over.json()["type"]) == (403, "error")
            return relay.recorder.episode("go", StopReason.ANSWERED, "", 1.0)

    async with running(tmp_path) as rig:
        episode = await asyncio.to_thread(inside, rig)
        recorded = rig.generations()
    assert episode.generations == tuple(one.id for one in recorded)
    assert [turn.usage.prompt for turn in episode.turns] == [one.prompt_tokens for one in recorded]
    assert all(turn.usage.told for turn in episode.turns), "streams of these say what was used"
    told = [(call.name, json.loads(call.arguments), call.error) for call in episode.calls]
    assert told == [("bash", {"command": "ls"}, "")] * 5
    assert {one.user for one in recorded} == {"ada"}


async def test_no_body_says_whose_request_it_is(tmp_path: Path) -> None:
    """A trial gives no user's name: one in the body was the user's whose arm answers, in a canary."""

    def inside(rig: Rig) -> None:
        named = {f"rtrl_{field}": "eve" for field in ("user", "session", "group")} | {"mine": "x"}
        with Relay(Endpoint(rig.url, rig.key), Budget(turns=9)) as relay, client(relay) as http:
            for said in ({"user": "eve"}, {"metadata": named}, {"metadata": {"rtrl_no_train": True}}):
                assert ask(http, "x", **said).status_code == 200
            assert ask(http, "x", metadata="eve").status_code == 400

    async with running(tmp_path) as rig:
        await asyncio.to_thread(inside, rig)
        recorded = rig.generations()
    assert len(recorded) == 3
    assert {(one.user, one.no_train) for one in recorded} == {(recorded[0].key_id, False)}
    assert not any("eve" in one.session for one in recorded)


async def test_the_gateway_says_which_weights_it_serves(tmp_path: Path) -> None:
    def inside(rig: Rig) -> tuple[str, str]:
        with Driver(Endpoint(rig.url, rig.key)) as driver, Driver(Endpoint(rig.url, "none")) as stranger:
            assert stranger.weights() == ""
            return driver.weights(), driver.post({"model": "rtrl", "messages": [ASKED]}, WHO).json()[
                "system_fingerprint"
            ]

    async with running(tmp_path) as rig:
        told, answered = await asyncio.to_thread(inside, rig)
        assert [one.no_train for one in rig.generations()] == [True, False]
    assert told == answered != ""


async def test_nothing_else_gets_through(tmp_path: Path) -> None:
    def inside(rig: Rig) -> None:
        with Relay(Endpoint(rig.url, rig.key), Budget(turns=9), WHO) as relay:
            with client(relay) as http:
                event = {
                    "id": "x",
                    "generation_id": "gen_" + "0" * 32,
                    "type": "thumbs",
                    "data": {"value": 1},
                }
                assert http.post("/v1/events", json=event).status_code == 404
                for path in ("/admin/served", "/v1/completions", "/v1/chat/completions/../events", "//x"):
                    assert http.post(path, json={}).status_code == 404
                    assert http.get(path).status_code == 404
                assert http.put("/v1/models").status_code == 501
                url = "/v1/chat/completions"
                assert http.post(url, content=b"{").status_code == 400
                assert http.post(url, content=b"[" * 100_000).status_code == 400
                assert http.post(url, content=b"[]").status_code == 400
                assert http.post(url, content=iter([b"{}"])).status_code == 411
            for length, status in (
                (str(module.MAX_BODY + 1), 413),
                ("9" * 12, 411),
                ("-1", 411),
                ("\xb2", 411),
            ):
                assert declared(relay, length) == status
            with client(relay, "rtrl-other") as http:
                assert ask(http, "hello").status_code == 401
                assert http.get("/v1/models").status_code == 401
            assert relay.recorder.spent.turns == 0

    async with running(tmp_path) as rig:
        await asyncio.to_thread(inside, rig)
        assert rig.generations() == []
        assert not rig.stub.requests


async def test_the_budget_ends_it(tmp_path: Path) -> None:
    def inside(rig: Rig) -> None:
        with (
            Relay(Endpoint(rig.url, rig.key), Budget(turns=9, output_tokens=15), WHO) as relay,
            client(relay) as http,
        ):
            assert ask(http, "hello", max_tokens=10).status_code == 200
            assert ask(http, "hello", max_tokens=10).status_code == 200
            over = ask(http, "hello", max_tokens=10)
            assert (over.status_code, over.json()["error"]["code"]) == (403, "budget_exhausted")
            assert relay.recorder.stop is StopReason.MAX_OUTPUT_TOKENS

    async with running(tmp_path) as rig:
        await asyncio.to_thread(inside, rig)


def test_calls_under_way_are_counted() -> None:
    recorder = Recorder(Budget(turns=2))
    with recorder.call() as first, recorder.call() as second, recorder.call() as third:
        assert (first, second, third) == (None, None, StopReason.MAX_TURNS)
        assert recorder.stop is None, "it has not come to that yet"
    with recorder.call() as again:
        assert again is None


def test_an_engine_that_is_away_is_noted(tmp_path: Path) -> None:
    nowhere = Endpoint("http://127.0.0.1:9", "k", "m", patience_s=0.01)
    with Relay(nowhere, Budget(turns=9)) as relay, client(relay) as http:
        assert ask(http, "hello").status_code == 503
        assert "does not answer" in relay.recorder.failure
    assert not relay.folder.exists()


def test_what_a_killed_trial_leaves_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as place:  # short: a socket's path is in it
        monkeypatch.setattr(tempfile, "tempdir", place)
        if not (pid := os.fork()):
            Relay(Endpoint("http://127.0.0.1:9"), Budget())
            os._exit(0)
        os.waitpid(pid, 0)
        assert len(list(Path(place).iterdir())) == 1
        with Relay(Endpoint("http://127.0.0.1:9"), Budget()) as relay:
            assert sweep.sweep_folders(Path(place)) == 1
            assert relay.folder.exists(), "of a process that lives"


def test_a_request_that_no_service_answers_is_no_failure_of_the_engine() -> None:
    """What a model wrote could send one, and so undo its own trial."""
    over = threading.Event()

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            content = json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()
            if b"slow" in body:
                over.wait(100)
            self.send_response(500 if b"poison" in body else 200)
            self.end_headers()
            self.wfile.write(b"[]" if b"nonsense" in body else content)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        all_of_them = ("hello", "poison", "nonsense")
        for answer_s, wall_s, contents in (
            (60.0, 60.0, all_of_them),
            (0.1, 60.0, ("slow",)),
            (60.0, 0.2, ("slow",)),
        ):
            endpoint = Endpoint(url, "k", "m", answer_s=answer_s, patience_s=0.01)
            with Relay(endpoint, Budget(turns=9, wall_s=wall_s)) as relay, client(relay) as http:
                for content in contents:
                    said = ask(http, content)
                    if content == "hello":
                        assert said.status_code == 200
                        continue
                    assert (said.status_code, said.json()["error"]["code"]) == (400, "refused"), content
                assert relay.recorder.failure == ""
                assert relay.recorder.spent.turns == ("hello" in contents)
        over.set()
        server.shutdown()


def test_a_server_without_the_agent_s_api_is_said_before_anything_is_tried() -> None:
    asked: list[str] = []

    class ChatAlone(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200 if self.path == "/v1/chat/completions" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), ChatAlone) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}", "k", "m")
        with Relay(endpoint, Budget(turns=9)) as relay, client(relay) as http:
            assert http.post("/v1/messages/count_tokens", json={}).status_code == 404
            assert (relay.recorder.failure, asked) == ("", ["/v1/messages/count_tokens"]), "no model was"
            assert http.post("/v1/messages", json={}).status_code == 404
            failure = relay.recorder.failure
            assert ask(http, "hello").status_code == 200
            assert http.post("/v1/messages", json={}).status_code == 400, "a model may have asked"
            assert relay.recorder.failure == ""
        server.shutdown()
    episode = Recorder(Budget()).episode("go", StopReason.ABORTED, failure, 1.0)
    with pytest.raises(UsageError, match="the server has no /v1/messages"):
        tried._aborted(episode)


def test_connections_are_bounded(tmp_path: Path) -> None:
    """Who opens many and says nothing is turned away; those who hang up make room."""
    with Relay(Endpoint("http://127.0.0.1:9", "k", "m"), Budget()) as relay:
        held = []
        for _ in range(module.CONNECTIONS):
            one = socket.socket(socket.AF_UNIX)
            one.connect(str(relay.folder / "model.sock"))
            one.sendall(b"GET /")
            held.append(one)
        with client(relay) as http, pytest.raises(httpx.TransportError):
            http.get("/v1/models")
        for one in held:
            one.close()
        deadline = time.monotonic() + 100
        with client(relay) as http:
            while True:
                try:
                    assert http.get("/nothing").status_code == 404
                    break
                except httpx.TransportError:
                    assert time.monotonic() < deadline, "no room was made"
                    time.sleep(0.01)


@pytest.mark.parametrize(
    "junk",
    [b"\0\0\0\0\r\n\r\n", b"GET " + b"a" * 70_000 + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 99],
)
def test_junk_harms_nobody(junk: bytes) -> None:
    with Relay(Endpoint("http://127.0.0.1:9", "k", "m"), Budget()) as relay:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(relay.folder / "model.sock"))
            one.sendall(junk)
            one.shutdown(socket.SHUT_WR)
            while one.recv(65536):
                pass
        with client(relay) as http:
            assert http.get("/nothing").status_code == 404


def test_the_forwarder_leads_a_command_to_the_socket(tmp_path: Path) -> None:
    program = """
import json, os, sys, urllib.request
base = os.environ["OPENAI_BASE_URL"]
assert sys.argv[1] == base and sys.argv[2] == "do {this} {base" + "_url}", sys.argv
request = urllib.request.Request(base + "/models", headers={"Authorization": "Bearer " + os.environ["KEY"]})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    print(json.load(error)["error"]["code"])
print("x" * 1_000_000)
sys.exit(3)
"""
    with Relay(Endpoint("http://127.0.0.1:9", "k", "m"), Budget()) as relay:
        told = tmp_path / "told.json"
        variables = {"OPENAI_BASE_URL": "{base_url}", "KEY": "wrong"}
        told.write_text(json.dumps({"variables": variables, "replace": {"{text}": "do {this} {base_url}"}}))
        line = [sys.executable, "-I", str(relay.folder / "forward.py"), str(relay.folder / "model.sock")]
        line += [str(told), sys.executable, "-c", program, "{base_url}", "{text}"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stdout[-2000:]
    assert done.stdout.startswith("invalid_api_key\nxxx")
    assert "bytes cut here]" in done.stdout
    assert 350_000 < len(done.stdout) < 400_000
    assert not told.exists(), "the key is not left lying about"


def piece(**delta: Any) -> str:
    return "data: " + json.dumps({"id": "g", "choices": [{"delta": delta, "finish_reason": None}]}) + "\n\n"


def test_a_stream_is_put_together() -> None:
    first = {"index": 0, "id": "c0", "function": {"name": "ba", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"name": "sh", "arguments": ": 1}"}}
    other = {"index": 1, "id": "c1", "function": {"name": "x", "arguments": "{}"}}
    unusual = "data: " + json.dumps({"choices": [{"delta": {"content": "b\u2028\x85"}}]}, ensure_ascii=False)
    parts = [piece(role="assistant", content="a"), f"{unusual}\r\n\r\n", piece(tool_calls=[first])]
    parts += [piece(tool_calls=[rest, other])]
    end = 'data: {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}\n\n'
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n\n'
    stream = "".join([*parts, end, usage, "data: [DONE]\n\n"]).encode()
    found = sse.read(stream, {"content-type": "text/event-stream"}, 1.0)
    assert (found.message["content"], found.finish_reason, found.usage) == (
        "ab\u2028\x85",  # no line ends of a stream
        "tool_calls",
        Usage(3, 4),
    )
    calls = [(one["id"], one["function"]) for one in found.message["tool_calls"]]
    assert calls == [
        ("c0", {"name": "bash", "arguments": '{"a": 1}'}),
        ("c1", {"name": "x", "arguments": "{}"}),
    ]
    with pytest.raises(ValueError, match="broke off"):
        sse.read(stream[:-14], {"content-type": "text/event-stream"}, 1.0)


def test_what_an_agent_told_its_model_is_the_result_of_its_call() -> None:
    recorder = Recorder(Budget(turns=9))
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    answer = {"role": "assistant", "content": "look", "tool_calls": [call]}
    start = [{"role": "system", "content": "be"}, {"role": "user", "content": "go"}]
    parts = [{"type": "text", "text": "a.py", "cache_control": {"type": "ephemeral"}}]
    added = {"role": "tool", "tool_call_id": "c", "content": parts}
    recorder.add({"messages": start, "tools": TOOLS}, completion(answer))
    start = [start[0], {**start[1], "content": [{"type": "text", "text": "go"}]}]  # told anew in other words
    done = {"role": "assistant", "content": "done"}
    recorder.add({"messages": [*start, answer, added], "tools": TOOLS}, completion(done))
    bad = {**call, "id": "d", "function": {"name": "bash", "arguments": "{}"}}
    recorder.add({"messages": start, "tools": TOOLS}, completion({**answer, "tool_calls": [bad]}))
    episode = recorder.episode("go", StopReason.ANSWERED, "", 2.0)
    assert [(call.result, call.error) for call in episode.calls] == [("a.py", ""), ("", "schema")]
    assert [turn.segment for turn in episode.turns] == [0, 0, 1]
    assert [len(turn.asked) for turn in episode.turns] == [2, 1, 2]
    assert (episode.system, episode.invalid_calls) == ("be", 1)


def test_a_helper_beside_an_agent_is_another_conversation() -> None:
    """Claude Code asks for a title, and signs its system prompt anew with each request."""
    recorder = Recorder(Budget(turns=9))
    start, more = [{"role": "user", "content": "go"}], {"role": "user", "content": "on"}
    answer = {"role": "assistant", "content": "one"}

    def system(text: str) -> dict[str, str]:
        return {"role": "system", "content": text}

    recorder.add({"messages": [system("a"), *start], "tools": TOOLS}, completion(answer))
    recorder.add({"messages": [{"role": "user", "content": "title?"}]}, completion({"content": "a title"}))
    again = [system("b"), *start, answer, more]
    recorder.add({"messages": again, "tools": TOOLS}, completion({"content": "<think>?</think>two"}))
    recorder.add({"messages": [{"role": "user", "content": "tip?"}]}, completion({"content": "a tip"}))
    episode = recorder.episode("go", StopReason.ANSWERED, "", 2.0)
    assert [turn.segment for turn in episode.turns] == [0, 1, 0, 2]
    assert [len(turn.asked) for turn in episode.turns] == [2, 1, 1, 1]
    assert episode.final_text == "two"


def test_what_comes_through_bounds_the_memory_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of empty lists took 440 MB of the process that makes the trial, and all were kept: what a model
    ran could end that process, and its trial had no grade. So could many bodies of 13 MB, in names that the
    model does not read."""
    recorder = Recorder(Budget(turns=9))
    parts = [{"type": "text", "text": "x" * 90_000}, []]
    asked = {**ASKED, "content": parts, "tool_calls": ["y"] * 90_000, "more": [[]] * 9}
    recorder.add({"messages": [asked]}, completion({"content": "hi", "more": 1}))
    turn = recorder.episode("go", StopReason.ANSWERED, "", 1.0).turns[0]
    assert turn.asked == ({"role": "user", "content": "\n[cut]", "tool_calls": "\n[cut]"},)
    assert set(turn.message) <= {"role", "content", "tool_calls"}
    monkeypatch.setattr(recording, "MAX_RECORD_CHARS", 1000)
    recorder = Recorder(Budget(turns=9))
    for name in "abc":  # each another conversation
        called = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        told = [{**ASKED, "name": name * 300}, {"role": "tool", "tool_call_id": "a", "content": "z" * 900}]
        recorder.add({"messages": told}, completion({"content": "", "tool_calls": [called]}))
    episode = recorder.episode("go", StopReason.ANSWERED, "", 1.0)
    assert [len(turn.asked) for turn in episode.turns] == [1, 0, 0], "what fits"
    assert [(call.id, call.result) for call in episode.calls] == [("a", ""), ("b", ""), ("c", "")]
    room = Room(5)
    order: list[str] = []
    with room.of(3):
        other = threading.Thread(
            target=lambda: [order.append("in") for _ in [1] if room.of(3).__enter__() is None]
        )
        other.start()
        other.join(0.05)
        order.append("out")
    other.join(5)
    assert order == ["out", "in"]
    with Relay(Endpoint("http://127.0.0.1:9"), Budget(turns=9)) as relay, client(relay) as http:
        many = json.dumps({"messages": [ASKED], "more": [[]] * module.MAX_VALUES})
        answer = http.post("/v1/chat/completions", content=many)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert relay.folder.parent.stat().st_mode & 0o077 == 0, "other users of the machine"
    assert not relay.folder.parent.exists()


@pytest.mark.parametrize("depth", range(900, 1000, 3))
def test_no_depth_of_nesting_makes_a_model_call_free(depth: int) -> None:
    try:
        deep = json.loads("[" * depth + "]" * depth)
    except RecursionError:
        return  # such a body is refused
    recorder = Recorder(Budget(turns=99))
    with contextlib.suppress(RecursionError):
        body = {"messages": [{"role": "user", "content": deep}], "tools": [{"x": deep}]}
        recorder.add(body, completion({"content": "hi"}))
    assert recorder.spent.turns == 1


ANY = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.dictionaries(NAMES, ANY, max_size=4), st.dictionaries(NAMES, ANY, max_size=4)),
        max_size=3,
    )
)
def test_whatever_is_asked_and_answered_is_counted(exchanges: list[tuple[Any, Any]]) -> None:
    recorder = Recorder(Budget(turns=99))
    for body, message in exchanges:
        recorder.add(body, completion(message))
    episode = recorder.episode("go", StopReason.ANSWERED, "", 1.0)
    assert recorder.spent.turns == len(episode.turns) == len(exchanges)
    assert recorder.spent.output_tokens == episode.output_tokens


def completion(message: dict[str, Any]) -> Any:
    return sse.read(json.dumps({"id": "g", "choices": [{"message": message}]}).encode(), {}, 0.5)
