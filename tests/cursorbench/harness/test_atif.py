"""Trajectories: what an episode looks like in ATIF, and that whatever happened gives a valid one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.harness import call_parser
from cursorbench.harness.atif import trajectory
from cursorbench.harness.budget import Budget, StopReason, Usage
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.recording import Recorder
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from tests.cursorbench.harness.atif_schema import check
from tests.cursorbench.harness.test_relay import completion


def loop_in(folder: Path, **more: Any) -> AgentLoop:
    (folder / "a.py").write_text("x = 1\n")
    toolbox = Toolbox(Folder(folder), SMALL_TOOLS)
    return AgentLoop(toolbox, "Edit.", "x is two", Budget(turns=9), **more)


def test_an_episode(tmp_path: Path) -> None:
    loop = loop_in(tmp_path)
    loop.next_request()
    edit = call_parser.render("edit_file", {"path": "a.py", "old": "1", "new": "2"})
    bad = call_parser.render("read_file", {"file": "a.py"})
    said = f"Hm. {edit}?\n</think>\n\nOn it.{edit}{bad}"
    loop.receive(assistant_message(said, begun=True), usage=Usage(50, 20), generation_id="gen_1")
    assert loop.messages[-3]["reasoning_content"] == f"Hm. {edit}?", "told to the model again"
    loop.receive(assistant_message("Done.", 1), usage=Usage(90, 3), generation_id="gen_2")
    found = trajectory(loop.episode(), version="1.0", model="rtrl", session_id="s", trajectory_id="t")
    check(found)
    assert [(step["source"], step["message"]) for step in found["steps"]] == [
        ("system", "Edit."),
        ("user", "x is two"),
        ("agent", "On it."),
        ("agent", "Done."),
    ]
    acting = found["steps"][2]
    assert acting["reasoning_content"] == f"Hm. {edit}?"
    assert acting["tool_calls"][0] == {
        "tool_call_id": "call_0_0",
        "function_name": "edit_file",
        "arguments": {"path": "a.py", "old": "1", "new": "2"},
    }
    assert acting["tool_calls"][1]["extra"]["invalid"] == "schema"
    good, wrong = acting["observation"]["results"]
    assert (good["source_call_id"], good["content"]) == ("call_0_0", "ok")
    assert wrong["extra"]["error_class"] == "invalid_arguments"
    assert acting["metrics"] == {"prompt_tokens": 50, "completion_tokens": 20}
    assert acting["extra"]["generation_id"] == "gen_1"
    metrics = found["final_metrics"]
    assert (metrics["total_prompt_tokens"], metrics["total_completion_tokens"]) == (140, 23)
    assert metrics["extra"]["invalid_tool_calls"] == 1
    assert found["extra"] == {"stop": "answered"}
    assert found["agent"]["tool_definitions"] == list(loop.episode().tools)


def test_a_summary_is_a_step_and_what_follows_goes_on(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "what?"}]
    loop = loop_in(tmp_path, summary=SelfSummary(10), history=history)
    for turn, said in enumerate(
        (call_parser.render("read_file", {"path": "a.py"}), "x is 1 in a.py", "Done.")
    ):
        loop.receive(assistant_message(said, turn), usage=Usage(50, 20))
    found = trajectory(loop.episode())
    check(found)
    steps = found["steps"]
    assert [step["source"] for step in steps] == (
        ["system", "user", "agent", "user", "agent", "user", "agent", "system", "user", "agent"]
    )
    copied = [number for number, step in enumerate(steps) if step.get("is_copied_context")]
    assert copied == [1, 2, 7], "earlier messages of the session, and the repeated prompt"
    assert [step["extra"]["segment"] for step in steps if "extra" in step] == [0, 0, 1]
    assert "x is 1 in a.py" in steps[8]["message"]
    assert found["notes"]


def test_no_answer_at_all(tmp_path: Path) -> None:
    loop = loop_in(tmp_path)
    loop.abort("nobody there")
    found = trajectory(loop.episode())
    check(found)
    assert found["extra"] == {"stop": "aborted", "failure": "nobody there"}
    assert len(found["steps"]) == 2


def test_tools_of_any_kind_are_recorded() -> None:
    """What a model runs asks the relay too: half a surrogate pair took the trial as the infrastructure's."""
    nested: Any = 1
    for _ in range(900):
        nested = [nested]
    odd = [{"name": "\ud800"}, {"name": "a", "more": nested}, {"\ud800": float("inf")}, {"n": 10**4000}]
    recorder = Recorder(Budget())
    recorder.add({"messages": [], "tools": odd}, completion({"content": "done"}))
    found = trajectory(recorder.episode("x", StopReason.ANSWERED, "", 1.0))
    assert [one.get("name") for one in found["agent"]["tool_definitions"]] == ["?", "a", None, None]
    msgspec.json.encode(found)


def test_an_outside_agent() -> None:
    recorder = Recorder(Budget(turns=9))
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "[1]"}}
    answer = {"role": "assistant", "content": "look", "tool_calls": [call]}
    start = [{"role": "developer", "content": "be"}, {"role": "user", "content": [{"text": "go"}]}]
    recorder.add({"messages": start}, completion(answer))
    told = {"role": "tool", "tool_call_id": "c", "content": "a.py"}
    recorder.add({"messages": [*start, answer, told]}, completion({"role": "assistant", "content": "done"}))
    found = trajectory(recorder.episode("go", StopReason.ANSWERED, "", 2.0), agent="mini-swe-agent")
    check(found)
    assert [step["source"] for step in found["steps"]] == ["system", "user", "agent", "agent"]
    assert found["steps"][1]["message"] == "go"
    assert found["steps"][2]["observation"]["results"] == [{"source_call_id": "c", "content": "a.py"}]
    assert found["steps"][2]["tool_calls"][0]["extra"]["raw_arguments"] == "[1]"
    assert found["steps"][2]["metrics"]["extra"] == {"estimated": True}


def test_what_is_copied_in_the_trajectory_of_an_outside_agent() -> None:
    """The instruction was, where something stood behind it, and the agent's system prompt, where a helper's
    had come first; what a conversation repeated that went on without its last answer was not."""
    recorder = Recorder(Budget(turns=9))
    title = [{"role": "system", "content": "name it"}, {"role": "user", "content": "title?"}]
    around, go = {"role": "user", "content": "<around>"}, {"role": "user", "content": "go"}
    begun = [{"role": "system", "content": "be"}, around, go, {"role": "system", "content": "more"}]
    wrong = {"role": "user", "content": "no call!"}
    for messages in (title, begun, [*begun, wrong], [*begun, wrong, wrong]):
        recorder.add({"messages": messages}, completion({"content": f"answer {len(messages)}"}))
    found = trajectory(recorder.episode("go", StopReason.ANSWERED, "", 2.0))
    check(found)
    steps = [(one["message"], one.get("is_copied_context", False)) for one in found["steps"]]
    repeated = [(one["content"], True) for one in begun]
    assert steps == [
        *[("name it", False), ("title?", False), ("answer 2", False)],
        *[*((one["content"], False) for one in begun), ("answer 4", False)],
        *[*repeated, ("no call!", False), ("answer 5", False)],
        *[*repeated, ("no call!", True), ("no call!", True), ("answer 6", False)],
    ]
    assert "segment" in found["notes"]


ANY = st.text(alphabet=st.characters(exclude_categories=[]), max_size=20)
ARGUMENTS = st.one_of(
    ANY,
    st.just("[" * 50_000),
    st.just('{"a": NaN}'),
    st.dictionaries(ANY, ANY, max_size=2).map(json.dumps),
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
    deadline=None,
)
@given(st.lists(st.tuples(ANY, ANY, ARGUMENTS), max_size=4), ANY)
def test_whatever_a_model_wrote_gives_a_trajectory(
    tmp_path: Path, said: list[tuple[str, str, str]], failure: str
) -> None:
    loop = loop_in(tmp_path)
    for content, name, arguments in said:
        call = {"id": name, "function": {"name": name, "arguments": arguments}}
        loop.receive({"content": content, "tool_calls": [call, call]})
    found = trajectory(replace(loop.episode(), failure=failure))
    check(found)
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("wrong", [{"steps": []}, {"unknown": 1}, {"schema_version": "ATIF-v0"}])
def test_the_check_itself_fails_what_is_wrong(tmp_path: Path, wrong: dict[str, Any]) -> None:
    loop = loop_in(tmp_path)
    loop.receive(assistant_message("Done."))
    with pytest.raises(jsonschema.ValidationError):
        check({**trajectory(loop.episode()), **wrong})
