"""What became of a call is heard with the next request: a person's no, and the changes it made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stages.gateway.ended_calls import ended
from stages.records import BY_CALL
from tests.cursorbench.sessions.test_otel_codex import event
from tests.stages.gateway import spans as telemetry
from tests.stages.gateway.rig import Rig, running

NO = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file)."
)
WITH_WORDS = f"{NO} To tell you how to proceed, the user said:\nuse pathlib"
TOOLS = [{"type": "function", "function": {"name": "edit", "parameters": {"type": "object"}}}]
ASKED = {"role": "user", "content": "stub:call edit {}"}


async def called(rig: Rig) -> tuple[str, dict[str, Any]]:
    """A generation that called a tool, and its message."""
    answer = (await rig.chat("", messages=[ASKED], tools=TOOLS)).json()
    return answer["id"], answer["choices"][0]["message"]


def result(message: dict[str, Any], text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": text}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WITH_WORDS, [("tool_result", "rejected", "use pathlib")]),
        ("exec command rejected by user", [("tool_result", "rejected", None)]),
        ("aborted by user after 3.1s", [("tool_result", "interrupted", None), ("interrupted", None, None)]),
        ("Error: no such file", []),
        (f"grep said: {NO}", []),
    ],
)
async def test_a_no_is_an_event_of_the_answer_that_called(rig: Rig, text: str, told: list[Any]) -> None:
    generation, message = await called(rig)
    await rig.chat("", messages=[ASKED, message, result(message, text)], tools=TOOLS)
    events = rig.events()
    found = [(one.type, one.data.get("outcome"), one.data.get("reason")) for one in events]
    assert found == told
    assert {one.generation_id for one in events} <= {generation}
    assert [(one.data["name"], one.data["ok"]) for one in events[:1]] == [("edit", False)] * len(told[:1])


async def test_it_counts_once_however_often_the_conversation_is_sent(rig: Rig) -> None:
    _, message = await called(rig)
    talk = [ASKED, message, result(message, WITH_WORDS)]
    for _ in range(2):
        await rig.chat("", messages=talk, tools=TOOLS)
    answered = {"role": "assistant", "content": "as you like"}
    await rig.chat("", messages=[*talk, answered, {"role": "user", "content": "go on"}], tools=TOOLS)
    assert [one.type for one in rig.events()] == ["tool_result"]


@pytest.mark.parametrize("telemetry_first", [False, True])
async def test_telemetry_of_the_same_no_is_the_same_event(rig: Rig, telemetry_first: bool) -> None:
    _, message = await called(rig)
    id = message["tool_calls"][0]["id"]
    no = "exec command rejected by user"
    export = event("tool_result", call_id=id, tool_name="edit", arguments="{}", output=no)

    async def telemetry() -> None:
        assert (await rig.http.post("/v1/logs", json=export)).json() == {}
        assert len(rig.events()) == 1

    if telemetry_first:
        await telemetry()
    await rig.chat("", messages=[ASKED, message, result(message, no)], tools=TOOLS)
    await telemetry()


async def test_nothing_is_written_of_who_does_not_want_it_nor_of_anothers_calls(rig: Rig) -> None:
    _, message = await called(rig)
    talk = [ASKED, message, result(message, WITH_WORDS)]
    await rig.chat("", messages=talk, tools=TOOLS, headers={"x-rtrl-no-train": "1"})
    other = {**message, "tool_calls": [{**message["tool_calls"][0], "id": "call_other"}]}
    await rig.chat("", messages=[ASKED, other, result(other, WITH_WORDS)], tools=TOOLS)
    assert rig.events() == []


async def test_by_messages_and_responses_too(rig: Rig) -> None:
    tool = {"name": "edit", "input_schema": {"type": "object"}}
    body: dict[str, Any] = {"model": "rtrl", "max_tokens": 100, "tools": [tool], "messages": [ASKED]}
    said = (await rig.http.post("/v1/messages", json=body)).json()["content"]
    denied = {"type": "tool_result", "tool_use_id": said[0]["id"], "content": WITH_WORDS, "is_error": True}
    talk = [ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": [denied]}]
    await rig.http.post("/v1/messages", json=body | {"messages": talk})
    function = {"type": "function", "name": "edit", "parameters": {"type": "object"}}
    body = {"model": "rtrl", "input": [ASKED], "tools": [function]}
    output = (await rig.http.post("/v1/responses", json=body)).json()["output"]
    denied = {
        "type": "function_call_output",
        "call_id": output[0]["call_id"],
        "output": "patch rejected by user",
    }
    await rig.http.post("/v1/responses", json=body | {"input": [ASKED, *output, denied]})
    assert [one.data.get("reason") for one in rig.events()] == ["use pathlib", None]


def test_messages_that_are_none_tell_nothing() -> None:
    assistant = {"role": "assistant", "tool_calls": [{"id": 7}, {"id": "c", "function": "edit"}]}
    answers = [{"role": "tool"}, {"role": "tool", "tool_call_id": ["c"], "content": NO}]
    assert ended([]) == ended([assistant, *answers]) == []
    (call,) = ended([assistant, {"role": "tool", "tool_call_id": "c", "content": NO}])
    assert call == ("c", "", "", NO)


HUNKS = [{"old_string": old, "new_string": new} for old, new in ("ab", "cd", "cd")]
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** Add File: b.py\n+c\n*** End Patch"


async def changed(
    rig: Rig, name: str, arguments: dict[str, Any], told: str
) -> list[tuple[str, dict[str, Any]]]:
    """The events of a call that gave `told`, however often that is sent."""
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]
    ask = {"role": "user", "content": f"stub:call {name} {json.dumps(arguments)}"}
    answer = (await rig.chat("", messages=[ask], tools=tools)).json()
    message = answer["choices"][0]["message"]
    for _ in range(2):
        await rig.chat("", messages=[ask, message, result(message, told)], tools=tools)
    events = rig.events()
    assert {one.generation_id for one in events} <= {answer["id"]}
    edits = [one for one in events if one.type != "tool_result"]
    assert all(one.data.pop(BY_CALL) for one in edits)
    return [(one.type, one.data) for one in edits]


@pytest.mark.parametrize(
    ("name", "arguments", "told", "changes"),
    [
        (
            "Edit",
            {"file_path": "/w/a.py", "old_string": "a - b", "new_string": "a + b"},
            "The file /w/a.py has been updated.",
            [{"path": "/w/a.py", "before": "a - b", "after": "a + b", "part": True}],
        ),
        (
            "multi_edit",
            {"path": "a.py", "edits": HUNKS},
            "",
            [{"path": "a.py", "before": old, "after": new, "part": True} for old, new in ("ab", "cd", "cd")],
        ),
        (
            "Write",
            {"file_path": "a.py", "content": "x"},
            "File created successfully at: a.py",
            [{"path": "a.py", "before": "", "after": "x", "part": True, "whole": True}],
        ),
        (
            "shell",
            {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]},
            "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nM a.py",
            [
                {"path": "a.py", "diff": "@@\n-a\n+b\n"},
                {"path": "b.py", "before": "", "after": "c\n", "part": True},
            ],
        ),
        ("Edit", {"path": "a.py", "old_str": "x", "new_str": "y"}, "String not found in file", []),
        ("Edit", {"path": "", "old_str": "x", "new_str": "y"}, "Done", []),
        ("read_file", {"path": "a.py"}, "Done", []),
    ],
)  # fmt: skip
async def test_a_change_that_a_call_made_is_an_event_of_its_answer(
    rig: Rig, name: str, arguments: dict[str, Any], told: str, changes: list[dict[str, Any]]
) -> None:
    assert await changed(rig, name, arguments, told) == [("edit_applied", one) for one in changes]


async def test_a_change_that_its_user_refused_is_a_rejected_one(rig: Rig) -> None:
    edit = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
    proposed = {"path": "a.py", "before": "x", "after": "y", "part": True}
    assert await changed(rig, "Edit", edit, WITH_WORDS) == [("edit_rejected", proposed)]
    assert [one.type for one in rig.events()] == ["tool_result", "edit_rejected"]


async def test_what_a_request_of_another_time_tells_happened_at_its_time(tmp_path: Path) -> None:
    """Of simulated users: at the wall clock's time an edit was made years after its episode, which waited."""
    ask = [{"role": "user", "content": 'stub:call Write {"file_path": "a.py", "content": "x"}'}]
    async with running(tmp_path, client_clock=True) as rig:
        message = (await rig.chat("", messages=ask, tools=TOOLS)).json()["choices"][0]["message"]
        for text in ("Done", WITH_WORDS):
            talk = [*ask, message, result(message, text)]
            await rig.chat("", messages=talk, tools=TOOLS, headers={"x-rtrl-at": "100.5"})
        assert [(one.type, one.at) for one in rig.events()] == [
            ("edit_applied", 100_500), ("tool_result", 100_500), ("edit_rejected", 100_500)
        ]  # fmt: skip


async def test_telemetry_of_the_same_change_is_the_same_event(rig: Rig) -> None:
    edit = {"file_path": "a.py", "edits": HUNKS}
    await changed(rig, "MultiEdit", edit, "Applied 3 edits to a.py")
    (call,) = rig.generations()[0].tool_calls
    span = telemetry.tool(call.id, "MultiEdit", edit)
    assert (await rig.http.post("/v1/traces", json=telemetry.traces(span))).json() == {}
    assert [one.type for one in rig.events()] == ["edit_applied"] * 3 + ["tool_result"]
