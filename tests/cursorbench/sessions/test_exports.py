"""Exports of services for traces, as their APIs give them: pages of a list, newest first, of whole traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds, openai_log
from cursorbench.sessions.items import AgentTurn, Feedback, Quarantined, ToolEnd, ToolUse, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, retyped

ASKED = [{"role": "system", "content": "Help."}, {"role": "user", "content": "fix"}]
CALL = {"id": "call_abcdef", "type": "function", "function": {"name": "ls", "arguments": '{"at": "."}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
END = {"role": "tool", "tool_call_id": "call_abcdef", "content": "a.py"}
DONE = {"role": "assistant", "content": "Done."}
SECONDS = ("10:00:00Z", "10:00:02Z", "10:00:05Z")


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    """A message as LangChain writes its objects."""
    name = f"{kind.capitalize()}Message"
    return {"lc": 1, "type": "constructor", "id": ["langchain", name], "kwargs": {"type": kind, **kwargs}}


def run(n: int, inputs: Any, outputs: Any, kind: str = "llm", **more: Any) -> dict[str, Any]:
    """A run of LangSmith's, the n-th call of the trace; its session is the project's."""
    times = {"start_time": f"2026-11-01T{SECONDS[n]}", "end_time": f"2026-11-01T{SECONDS[n + 1]}"}
    extra = {"invocation_params": {"model": "m"}, "metadata": {"thread_id": "t"}}
    of = {"id": f"run-{n}", "trace_id": "trace", "session_id": "project", "extra": extra}
    return {"run_type": kind, "inputs": inputs, "outputs": outputs, "error": None, **of, **times, **more}


def of_langchain() -> object:
    human, system = lc("human", content="fix"), lc("system", content="Help.")
    call = {"name": "ls", "args": {"at": "."}, "id": "call_abcdef", "type": "tool_call"}
    calls = lc("ai", content="", tool_calls=[call], invalid_tool_calls=[])
    end = lc("tool", content="a.py", tool_call_id="call_abcdef", status="success")
    first = {"generations": [[{"text": "", "message": calls}]], "llm_output": {"model_name": "m"}}
    last = {"generations": [[{"text": "Done.", "message": lc("ai", content="Done.")}]], "llm_output": None}
    stats = {"user_score": {"n": 1, "avg": 1.0}}
    root = run(0, {"input": "fix"}, {"output": "Done."}, "chain", id="trace", feedback_stats=stats)
    second = run(1, {"messages": [[system, human, calls, end]]}, last)
    return {"runs": [second, run(0, {"messages": [[system, human]]}, first), root], "cursors": {"next": "x"}}


def of_langsmith_wrapper() -> object:
    """Of OpenAI's client."""
    first = {"id": "c1", "model": "m", "choices": [{"index": 0, "message": CALLS}]}
    last = {"id": "c2", "model": "m", "choices": [{"index": 0, "message": DONE}]}
    second = run(1, {"messages": [*ASKED, CALLS, END]}, last, feedback_stats={"user_score": {"avg": 1}})
    return [run(0, {"messages": ASKED}, first), second]


def of_braintrust() -> object:
    def event(n: int, asked: Any, given: Any, kind: str = "llm", **more: Any) -> dict[str, Any]:
        at = 1_793_527_200.0
        metrics = {"start": at + (0, 2, 5)[n], "end": at + (0, 2, 5)[n + 1]}
        of = {"id": f"row-{n}", "span_id": f"span-{n}", "root_span_id": "trace", "metrics": metrics}
        told = {"input": asked, "output": given, "metadata": {"model": "m"}, "scores": None}
        return {"span_attributes": {"name": "x", "type": kind}, **of, **told, **more}

    choices = [[{"index": 0, "finish_reason": "stop", "message": one}] for one in (CALLS, DONE)]
    root = event(0, {"question": "fix"}, "Done.", "task", scores={"user_score": 1, "tone": None})
    second = event(1, [*ASKED, CALLS, END], choices[1])
    return {"events": [second, event(0, ASKED, choices[0]), root], "cursor": None}


def of_langfuse() -> object:
    def observation(n: int, kind: str, asked: Any, given: Any) -> dict[str, Any]:
        of = {"id": f"o{n}", "traceId": "trace", "type": kind, "model": "m", "parentObservationId": None}
        return {**of, "startTime": f"2026-11-01T{SECONDS[n]}", "input": asked, "output": given}

    second = observation(1, "GENERATION", [*ASKED, CALLS, END], DONE)
    rows = [second, observation(0, "GENERATION", ASKED, CALLS), observation(0, "SPAN", "fix", "Done.")]
    return {"data": rows, "meta": {"page": 1, "totalItems": 3}}


def of_helicone() -> object:
    """The answer of its `POST /v1/request/query`."""

    def request(n: int, asked: Any, given: Any, **more: Any) -> dict[str, Any]:
        answer = {"id": f"c{n}", "model": "m", "choices": [{"index": 0, "message": given}]}
        told = {"request_body": {"model": "m", "messages": asked}, "response_body": answer, "delay_ms": 9}
        named = {"request_properties": None, "properties": {"Helicone-Session-Id": "h"}, "scores": None}
        return {"request_created_at": f"2026-11-01T{SECONDS[n]}", **told, **named, **more}

    late = {"scores": {"user_score": 1}, "feedback_rating": None}
    return {"data": [request(1, [*ASKED, CALLS, END], DONE, **late), request(0, ASKED, CALLS)], "error": None}


def of_weave() -> object:
    """Calls as its service gives them, the root of the trace among them."""

    def call(n: int, asked: Any, given: Any, op: str = "openai.chat.completions.create") -> dict[str, Any]:
        times = {"started_at": f"2026-11-01T{SECONDS[n]}", "ended_at": f"2026-11-01T{SECONDS[n + 1]}"}
        of = {"id": f"w{n}", "trace_id": "trace", "parent_id": None, "thread_id": "t", "exception": None}
        return {**of, **times, "op_name": f"weave:///e/p/op/{op}:x", "inputs": asked, "output": given}

    answers = [
        {"id": f"c{n}", "model": "m", "choices": [{"message": one}]} for n, one in enumerate((CALLS, DONE))
    ]
    first = call(0, {"self": {}, "model": "m", "messages": ASKED}, answers[0])
    second = call(1, {"self": {}, "model": "m", "messages": [*ASKED, CALLS, END]}, answers[1])
    return [first, second, call(0, {"question": "fix"}, "Done.", "answer")]


@pytest.mark.parametrize(
    ("export", "scored"),
    [
        (of_langchain, True),
        (of_langsmith_wrapper, True),
        (of_braintrust, True),
        (of_langfuse, False),
        (of_helicone, True),
        (of_weave, False),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_trace_is_the_session_that_it_was(
    tmp_path: Path, export: Any, scored: bool, indent: int | None
) -> None:
    """They were of no known kind, or a span around the calls was one more request."""
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export(), indent=indent))
    assert kinds.kind_of(path) == "openai-log"
    found = [one for _, one in kinds.read(path)]
    assert not [one for one in found if isinstance(one, Quarantined)]
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["fix"]
    said = [(one.model, one.text) for one in found if isinstance(one, AgentTurn)]
    assert said == [("m", ""), ("m", "Done.")]
    assert [(one.id, one.name) for one in found if isinstance(one, ToolUse)] == [("call_abcdef", "ls")]
    assert [(one.text, one.outcome) for one in found if isinstance(one, ToolEnd)] == [("a.py", "ok")]
    assert len({one.session for one in found if not isinstance(one, Quarantined)}) == 1
    verdicts = [one for one in found if isinstance(one, Feedback)]
    last = [one for one in found if isinstance(one, AgentTurn)][-1]
    about = [(one.name, one.value, one.target) for one in verdicts]
    assert about == ([("user_score", 1.0, last.id)] if scored else [])


def test_batches_of_anthropic(tmp_path: Path) -> None:
    """Requests in one file, results in another, by `custom_id`."""
    params = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "fix"}]}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    message |= {"content": [{"type": "text", "text": "Done."}]}
    results = [
        {"custom_id": "a", "result": {"type": "succeeded", "message": message}},
        {"custom_id": "b", "result": {"type": "errored", "error": {"type": "error"}}},
        {"custom_id": "c", "result": {"type": "expired"}},
    ]
    (tmp_path / "asked.jsonl").write_text(json.dumps({"custom_id": "a", "params": params}) + "\n")
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in results))
    found = [one for _, one in kinds.read(tmp_path)]
    told = [(one.session, one.text) for one in found if isinstance(one, UserTurn | AgentTurn)]
    assert told == [("a", "fix"), ("a", "Done.")]
    assert not [one for one in found if isinstance(one, Quarantined)]


DEFINED = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def a_trace_of_langfuse(texts: bool) -> dict[str, Any]:
    """A trace as Langfuse's page downloads it, in no order: two calls, one in a generation of its own."""

    def observation(n: int, kind: str, asked: Any, given: Any, **more: Any) -> dict[str, Any]:
        of = {"id": f"o{n}", "traceId": "trace", "type": kind, "parentObservationId": None, **more}
        times = {"startTime": f"2026-11-01T{SECONDS[n]}", "endTime": f"2026-11-01T{SECONDS[n + 1]}"}
        told = [json.dumps(one) if texts else one for one in (asked, given)]
        late = {"createdAt": "2026-11-01T11:00:00Z", "providedModelName": "m"}
        return {**of, **times, **late, "input": told[0], "output": told[1]}

    tool = {"role": "tool", "content": DEFINED}
    called = {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [CALL]}}
    around = {"type": "GENERATION", "id": "around", "endTime": "2026-11-01T10:00:06Z"}
    second = observation(1, "GENERATION", [*ASKED, tool, called, END], DONE, parentObservationId="around")
    found = [
        second,
        {**observation(0, "SPAN", {"prompt": "fix"}, "Done."), **around},
        observation(0, "GENERATION", [*ASKED, tool], called),
    ]
    scores = [
        {"name": "tone", "value": 0.5, "observationId": "o0", "timestamp": "2026-11-01T12:00:00Z"},
        {"name": "user_score", "value": 1, "observationId": None, "timestamp": "2026-11-02T10:00:00Z"},
    ]
    trace = {"id": "trace", "projectId": "p", "sessionId": "s", "bookmarked": False, "scores": scores}
    return {"trace": trace, "observations": found}


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("shape", ["page", "server", "api"])
def test_a_trace_that_langfuse_downloads(tmp_path: Path, texts: bool, indent: int | None, shape: str) -> None:
    """It was of no known kind. Inputs as texts (its newer API) were a person's words, each a session's."""
    document, path = a_trace_of_langfuse(texts), tmp_path / "trace.json"
    trace = document["trace"]
    if shape == "server":
        document = {"observations": document["observations"], "scores": trace["scores"]}
        document["observations"] = [{**one, "sessionId": "s"} for one in document["observations"]]
    elif shape == "api":
        document = {**trace, "observations": document["observations"]}
    path.write_text(json.dumps(document, indent=indent))
    assert kinds.kind_of(path) == "openai-log"
    found = [one for _, one in kinds.read(path)]
    assert not [one for one in found if isinstance(one, Quarantined)]
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["fix"]
    said = [(one.model, one.text, one.at, one.duration_ms) for one in found if isinstance(one, AgentTurn)]
    began = 1_793_527_200_000
    assert said == [("m", "", began, 2000.0), ("m", "Done.", began + 2000, 3000.0)]
    assert [(one.id, one.name, one.checked) for one in found if isinstance(one, ToolUse)] == [
        ("call_abcdef", "ls", "ok")
    ]
    assert [(one.text, one.outcome) for one in found if isinstance(one, ToolEnd)] == [("a.py", "ok")]
    assert {one.session for one in found if not isinstance(one, Quarantined)} == {"s"}
    verdicts = [(one.name, one.value, one.at) for one in found if isinstance(one, Feedback)]
    assert verdicts == [("tone", 0.5, began + 7_200_000), ("user_score", 1.0, began + 86_400_000)]
    places = [type(one) for one in found if isinstance(one, AgentTurn | Feedback)]
    assert places == [AgentTurn, Feedback, AgentTurn, Feedback]  # the first is about the first answer


def test_a_call_that_goes_on_with_its_trace(tmp_path: Path) -> None:
    """Of the Responses API, which knows what was said before: each was a session of its own."""
    document = a_trace_of_langfuse(texts=True)
    document["trace"]["sessionId"] = None
    document["observations"][0]["input"] = json.dumps([END])
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    found = [one for _, one in kinds.read(path)]
    assert len({one.session for one in found if not isinstance(one, Quarantined)}) == 1


@pytest.mark.parametrize(("rating", "value"), [(True, 1.0), (False, -1.0), (None, None)])
def test_a_rating_of_helicone_is_a_thumb(tmp_path: Path, rating: bool | None, value: float | None) -> None:
    answer = {"id": "c", "model": "m", "choices": [{"index": 0, "message": DONE}]}
    row = {"request_created_at": "2026-11-01T10:00:00Z", "request_body": {"model": "m", "messages": ASKED}}
    row |= {"response_body": answer, "feedback_rating": rating, "feedback_created_at": "2026-11-01T11:00:00Z"}
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps(row) + "\n")
    told = [(one.name, one.value, one.at) for _, one in kinds.read(path) if isinstance(one, Feedback)]
    assert told == ([] if value is None else [("thumb", value, 1_793_530_800_000)])


def test_tools_that_were_offered_in_an_input(tmp_path: Path) -> None:
    """Of OpenPipe and Langfuse, whose input is the whole request: its calls were not checked."""
    asked = {"model": "m", "messages": ASKED, "tools": [DEFINED]}
    answer = {"id": "c", "model": "m", "choices": [{"index": 0, "message": CALLS}]}
    langfuse = {"id": "o", "traceId": "t", "type": "GENERATION", "parentObservationId": None}
    for row in (
        {"input": asked, "output": answer, "tags": {}},
        {**langfuse, "input": asked, "output": CALLS},
    ):
        path = tmp_path / "export.jsonl"
        path.write_text(json.dumps(row) + "\n")
        told = [one.checked for _, one in kinds.read(path) if isinstance(one, ToolUse)]
        assert told == ["ok"]


@FEW
@given(data=st.data())
def test_values_of_any_type_raise_nothing(tmp_path: Path, data: st.DataObject) -> None:
    made = [of_langchain, of_braintrust, of_langfuse, of_helicone, of_weave]
    document = data.draw(st.sampled_from([*made, lambda: a_trace_of_langfuse(texts=True)]))()
    path = tmp_path / "export.json"
    path.write_text(json.dumps(retyped(retyped(document, data), data)))
    kinds.kind_of(path)
    told = list(openai_log.read(path, Seen()))
    assert {item.place.file for item in told} <= {str(path)}


@pytest.mark.parametrize("name", ["id", "parentObservationId"])
def test_ids_that_are_none_raise_nothing(tmp_path: Path, name: str) -> None:
    document = a_trace_of_langfuse(texts=True)
    for one in document["observations"]:
        one[name] = [{}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert [one.text for _, one in kinds.read(path) if isinstance(one, UserTurn)] == ["fix"]
