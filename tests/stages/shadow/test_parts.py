"""Recorded requests as an engine is asked again, and the tools that their prompts tell."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from cursorbench.harness.call_parser import ToolSet
from cursorbench.harness.forced_calls import ForcedCalls, structural_tag
from cursorbench.harness.tools import DEFAULT_TOOLS
from stages.model_forms import PLAIN, ModelForms
from stages.records import Sampling
from stages.shadow.compare import Tolerance, compare
from stages.shadow.recorded import Recorded
from stages.shadow.replay import body, broken, replay, said_of
from stages.shadow.tools import KnownTools, digest, in_prompt
from stages.target.endpoint import EngineAt

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"for": {"type": "string"}}, "required": ["for"]},
    },
}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def recorded(tools_digest: str = "", **sampling: Any) -> Recorded:
    return Recorded("g1", "ann", [1, 2, 3], Sampling(**sampling), tools_digest)


def test_a_request_is_asked_as_it_was() -> None:
    asked = body(recorded(temperature=0.5, top_k=3, max_tokens=50, stop=("x",)), "rtrl", 40)
    assert asked["prompt"] == [1, 2, 3]
    assert (asked["temperature"], asked["top_k"], asked["stop"]) == (0.5, 3, ["x"])
    assert asked["max_tokens"] == 37  # what the context leaves
    assert body(recorded(max_tokens=5), "rtrl", 40)["max_tokens"] == 5
    grammar = json.dumps({"structured_outputs": {"regex": "a"}})
    assert body(recorded(grammar=grammar), "rtrl", 40)["structured_outputs"] == {"regex": "a"}


def test_a_call_that_was_forced_is_forced_again() -> None:
    grammar = json.dumps({"forced_calls": {"names": ["search"], "several": False}})
    schema = {"type": "object", "required": ["for"]}
    tools = ToolSet([{"function": {"name": "search", "parameters": schema}}])
    for known, schemas in ((tools, {"search": schema}), (None, {})):
        asked = body(recorded(grammar=grammar), "rtrl", 40, known)
        tag = structural_tag(ForcedCalls(("search",), several=False), schemas)
        assert asked["structured_outputs"] == {"structural_tag": tag}
        assert "forced_calls" not in asked
    told = json.dumps(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    )
    asked = body(recorded(grammar=told), "rtrl", 40)
    assert asked["structured_outputs"] == {"structural_tag": structural_tag(None, {}, schema)}
    assert "response_format" not in asked


@pytest.mark.parametrize(
    ("text", "form", "schema"),
    [
        (call("search", '{"for": "x"}'), 0, 0),
        (call("search", '{"far": "x"}'), 0, 1),
        (call("find", "{}"), 0, 1),
        ("<tool_call>{oh no</tool_call>", 1, 1),
        ("no call", 0, 0),
    ],
)
def test_calls_are_checked_as_far_as_their_tools_are_known(text: str, form: int, schema: int) -> None:
    assert broken(text, tools=None) == form
    assert broken(text, tools=ToolSet([TOOL])) == schema
    thought = f"{call('find', '{}')} <tool_call>{{</think>\n"
    assert said_of(thought + text, begun=True) == text, "what is thought of is no call"
    assert said_of(f"<think>{thought}{text}", begun=False) == text


def test_tools_count_when_their_digest_is_the_recorded_one() -> None:
    wanted = digest([TOOL])
    prompt = f"<tools></tools> a tag in prose\n<tools>\n{json.dumps(TOOL)}\n</tools>"
    found = in_prompt(prompt, wanted)
    assert found is not None
    assert found.names == ("search",)
    assert in_prompt(prompt.replace("search", "sarch"), wanted) is None
    assert in_prompt("<tools>\n{not json\n</tools>", wanted) is None
    known = KnownTools(lambda _: prompt)
    assert known.of(recorded(tools_digest=wanted)) is not None
    assert known.of(recorded()) is None
    assert KnownTools(None).of(recorded(tools_digest=wanted)) is None
    assert KnownTools(None).of(recorded(tools_digest=digest(list(DEFAULT_TOOLS)))) is not None


Asked = list[tuple[str, dict[str, Any]]]
Delay = Callable[[], float]


class Clock:
    """Time that goes on only while an engine works: what else the machine does is in no figure."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Engine:
    """Answers completions after `delay_s`, always with the same text; notes who asked what, and when."""

    def __init__(self, name: str, delay_s: Delay, asked: Asked, clock: Clock, text: str = "fine") -> None:
        outer = self
        self.keys: set[str | None] = set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                wanted = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked.append((name, wanted))
                outer.keys.add(self.headers["authorization"])
                clock.now += delay_s()
                answer = {"choices": [{"text": text}], "usage": {"completion_tokens": 4}}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        self.at = EngineAt(0, url, f"key of {name}", "", "", model="adapter-1" if name == "live" else "")


def replayed(
    live_s: Delay,
    candidate_s: Delay,
    monkeypatch: pytest.MonkeyPatch,
    text: str = "fine",
    forms: ModelForms = PLAIN,
) -> tuple[str, Asked]:
    """The verdict's reason over 12 requests of 12 users, and who was asked what."""
    asked: Asked = []
    clock = Clock()
    monkeypatch.setattr("stages.shadow.replay.time", clock)
    engines = Engine("live", live_s, asked, clock), Engine("candidate", candidate_s, asked, clock, text)
    requests = [
        Recorded(f"g{number}", f"u{number}", [number, 2], Sampling(max_tokens=9), "") for number in range(12)
    ]
    how: dict[str, Any] = {"model": "m", "context": 40, "side_by_side": 1, "timeout_s": 30}
    where = {"live": engines[0].at, "candidate": engines[1].at}
    pairs = replay(requests, **where, **how, tools=lambda _: None, forms=forms)
    for engine in engines:
        engine.server.shutdown()
        engine.server.server_close()
    assert [engine.keys for engine in engines] == [{"Bearer key of live"}, {"Bearer key of candidate"}]
    users = [each.user for each in requests]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    return compare(users, *sides, Tolerance(0.05, 2.0, 3.0)).reason, asked


def test_a_machine_that_slows_down_is_no_reason_and_a_slow_candidate_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer takes longer than the one before: recorded times would tell nothing of the candidate."""
    load = iter(np.linspace(0.01, 0.15, 24))
    reason, asked = replayed(lambda: float(next(load)), lambda: float(next(load)), monkeypatch)
    assert reason == ""
    turns = [name for name, _ in asked]
    assert turns == ["live", "candidate", "candidate", "live"] * 6, "by turns the one or the other first"
    for (_, first), (_, second) in zip(asked[::2], asked[1::2], strict=True):
        assert first | {"model": ""} == second | {"model": ""}, "the same request"
    assert {(name, wanted["model"]) for name, wanted in asked} == {("live", "adapter-1"), ("candidate", "m")}
    assert len({wanted["cache_salt"] for _, wanted in asked}) == 1, "of what is cached nothing counts"
    reason, _ = replayed(lambda: 0.01, lambda: 0.16, monkeypatch)
    assert "it is slower" in reason
    assert {wanted["skip_special_tokens"] for _, wanted in asked} == {True}
    thinks, hidden = "<think>Hm, which of them.\n</think>\n", PLAIN._replace(hidden=True)
    reason, asked = replayed(lambda: 0.01, lambda: 0.01, monkeypatch, thinks, hidden)
    assert {wanted["skip_special_tokens"] for _, wanted in asked} == {False}
    assert "empty where it was 0.0%" in reason, "a thought is no answer"
