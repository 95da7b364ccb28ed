"""Codex rollouts of 0.148 and later: completed items in the place of events, and lines with ordinals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import Edit, Quarantined, ToolEnd, UserTurn
from tests.cursorbench.sessions.test_codex import META, SESSION, brief, event, item, line, read, said

PARENT = "019a0000-0000-7000-8000-00000000aaaa"
DIFF = "@@ -1 +1 @@\n-red\n+blue\n"


def done(kind: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    whole = {"type": kind, **fields}
    return event("item_completed", number, thread_id=SESSION, turn_id="t", item=whole)


def asked(text: str, number: int = 0, one: str = "u-1") -> dict[str, Any]:
    return done("UserMessage", number, id=one, content=[{"type": "text", "text": text, "text_elements": []}])


def ran(one: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    told = {"command": ["bash", "-lc", "true"], "cwd": "file:///w", "parsed_cmd": [], "source": "agent"}
    return done("CommandExecution", number, id=one, **told, **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"rollout-2026-01-02T03-04-05-{SESSION}.jsonl"


def test_messages_are_known_by_their_items(path: Path) -> None:
    found = read(
        path,
        META,
        said("user", "<some_fragment>\nof a version to come\n</some_fragment>", 1),
        said("user", "make it blue", 2),
        asked("make it blue", 3),
        said("assistant", "Blue <proposed_plan>a</proposed_plan> now.", 4, id="m-1"),
        done("AgentMessage", 5, id="m-1", content=[{"type": "Text", "text": "Blue  now."}]),
        done("Plan", 6, id="t-plan", text="a"),
        said("user", "make it blue", 7),
        asked("make it blue", 8, "u-2"),
    )
    assert brief(found)[1:] == [
        ("user", "<some_fragment>\nof a version to come\n</some_fragment>", "meta"),
        ("user", "make it blue", ""),
        ("agent", "Blue <proposed_plan>a</proposed_plan> now.", ""),
        ("user", "make it blue", ""),
    ]


def test_a_message_told_in_all_three_ways_is_one(path: Path) -> None:
    ways = [said("user", "hello", 1), asked("hello", 2), event("user_message", 3, message="hello")]
    for order in (ways, ways[::-1], [ways[1], ways[2], ways[0]]):
        assert brief(read(path, META, *order))[1:] == [("user", "hello", "")]


def test_a_message_told_in_all_three_ways_is_one_also_where_something_stands_between(path: Path) -> None:
    call = item("function_call", 4, name="t", arguments="{}", call_id="c")
    ways = [said("user", "hello", 1), asked("hello", 2), event("user_message", 3, message="hello")]
    for one in ([0, 2, 1], [1, 0, 2], [2, 1, 0]):
        first, second, third = (ways[n] for n in one)
        for order in ([first, second, call, third], [first, call, second, call, third]):
            users = [each.text for each in read(path, META, *order) if isinstance(each, UserTurn)]
            assert users == ["hello"]
    answers = [
        event("agent_message", 5, message="I look"),
        said("assistant", "I look", 6, id="m-1"),
        call,
        done("AgentMessage", 7, id="m-1", content=[{"type": "Text", "text": "I look"}]),
    ]
    assert brief(read(path, META, *ways, *answers))[1:] == [
        ("user", "hello", ""),
        ("agent", "I look", ""),
        ("use", "c", "t"),
    ]


def test_the_same_words_in_a_later_turn_are_said_again(path: Path) -> None:
    """Where a log went over to items: not the third way of what was told in two."""
    older = [event("task_started", 1), said("user", "yes", 2), event("user_message", 3, message="yes")]
    older += [event("agent_message", 4, message="Done."), said("assistant", "Done.", 5, id="m-1")]
    answer = done("AgentMessage", 9, id="m-2", content=[{"type": "Text", "text": "Done."}])
    later = [asked("yes", 7), said("user", "yes", 8), answer, said("assistant", "Done.", 10, id="m-2")]
    found = read(path, META, *older, event("task_started", 6), *later)
    turn = [("user", "yes", ""), ("agent", "Done.", "")]
    assert brief(found)[1:] == [*turn, *turn]


def test_changes_that_a_script_made(path: Path) -> None:
    found = read(
        path,
        META,
        item("custom_tool_call", 1, call_id="x", name="exec", input="await tools.apply_patch(patch())"),
        done(
            "FileChange",
            2,
            id="p-1",
            changes={
                "/w/a.css": {"type": "update", "unified_diff": DIFF},
                "b.css": {"type": "add", "content": ""},
            },
            status="completed",
        ),
        done(
            "FileChange", 3, id="p-2", changes={"/w/c.css": {"type": "add", "content": ""}}, status="declined"
        ),
        done(
            "FileChange", 4, id="p-3", changes={"/w/d.css": {"type": "add", "content": ""}}, status="failed"
        ),
        item(
            "custom_tool_call_output",
            5,
            call_id="x",
            output=[{"type": "input_text", "text": "Script completed\n"}],
        ),
    )
    assert brief(found)[1:] == [
        ("use", "x", "exec"),
        ("edit", "/w/a.css", "applied"),
        ("edit", "/w/b.css", "applied"),
        ("edit", "/w/c.css", "rejected"),
        ("end", "x", "ok"),
    ]


def test_how_calls_end_by_their_items(path: Path) -> None:
    ends = {
        "failed": done("McpToolCall", 3, id="failed", server="s", tool="t", arguments={}, status="failed"),
        "wrong": done(
            "McpToolCall", 3, id="wrong", server="s", tool="t", arguments={}, status="completed",
            result={"content": [], "isError": True},
        ),
        "client": done("DynamicToolCall", 3, id="client", tool="t", status="completed", success=False),
        "exit": ran("exit", 3, status="failed", exit_code=2),
        "fine": ran("fine", 3, status="completed", exit_code=0),
        "declined": ran("declined", 3, status="declined"),
    }  # fmt: skip
    outcomes = {}
    for one, told in ends.items():
        call = item("function_call", 2, name="t", arguments="{}", call_id=one)
        output = item("function_call_output", 4, call_id=one, output="words")
        found = read(path, META, call, told, output)
        outcomes[one] = [each.outcome for each in found if isinstance(each, ToolEnd)]
    assert outcomes == {
        "failed": ["error"],
        "wrong": ["error"],
        "client": ["error"],
        "exit": ["error"],
        "fine": ["ok"],
        "declined": ["rejected"],
    }


def test_a_no_to_what_a_script_runs_is_told(path: Path) -> None:
    found = read(
        path,
        META,
        item("custom_tool_call", 1, call_id="x", name="exec", input="await tools.exec_command({})"),
        ran("inner", 2, status="declined"),
        ran("other", 3, status="failed", exit_code=1),
        item(
            "custom_tool_call_output",
            4,
            call_id="x",
            output="Script failed\nWall time 0.1 seconds\nOutput:\n",
        ),
    )
    assert brief(found)[2:] == [("end", "inner", "rejected"), ("end", "x", "error")]


@pytest.mark.parametrize("older", [False, True])
def test_a_no_that_is_told_behind_the_output_is_one(path: Path, older: bool) -> None:
    """Two ends of one call counted as two rejections."""
    words = "exec command rejected by user"
    end = ran("c", 3, status="declined", aggregated_output=words)
    if older:
        end = event("exec_command_end", 3, call_id="c", status="declined", aggregated_output=words)
    call = item("function_call", 1, name="t", arguments="{}", call_id="c")
    output = item("function_call_output", 2, call_id="c", output=words)
    for order in ([call, output, end], [call, end, output], [call, output, event("task_started", 2), end]):
        assert brief(read(path, META, *order))[2:] == [("end", "c", "rejected")]
    both = [
        ran("inner", 3, status="declined"),
        event("exec_command_end", 4, call_id="inner", status="declined"),
    ]
    assert brief(read(path, META, *both))[1:] == [("end", "inner", "rejected")]
    message = {"message": "user rejected MCP tool call"}
    server = done("McpToolCall", 3, id="inner", status="failed", error=message)
    assert brief(read(path, META, server))[1:] == [("end", "inner", "rejected")]


REVIEWED = "This action was rejected due to unacceptable risk."


@pytest.mark.parametrize(("words", "who"), [("patch rejected by user", "rejected"), (REVIEWED, "error")])
@pytest.mark.parametrize("older", [False, True])
def test_only_a_persons_no_is_a_rejection(path: Path, words: str, who: str, older: bool) -> None:
    """Codex calls declined what a rule, or another model, did not let it do, too."""
    told = {"changes": {"/w/c": {"type": "add", "content": ""}}, "status": "declined", "stderr": words}
    patch = done("FileChange", 2, id="p", **told)
    if older:
        patch = event("patch_apply_end", 2, call_id="p", success=False, **told)
    found = read(
        path,
        META,
        item("function_call", 1, name="t", arguments="{}", call_id="p"),
        patch,
        item("function_call_output", 3, call_id="p", output="as the model got it"),
        ran("inner", 4, status="declined", aggregated_output=words.replace("patch", "exec command")),
    )
    ends = [one.outcome for one in found if isinstance(one, ToolEnd)]
    assert ends == ([who] * 2 if who == "rejected" else [who])
    rejected = [one for one in found if isinstance(one, Edit)]
    assert len(rejected) == (who == "rejected")


def test_what_a_sub_agent_inherits_is_its_parents(path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    mine = line("session_meta", id=SESSION, cwd="/w", source=source, subagent_history_start_ordinal=4)
    lines = [
        mine,
        line("session_meta", 1, id=PARENT, cwd="/w"),
        asked("the parent's request", 2),
        done("FileChange", 3, id="p", changes={"/w/a": {"type": "add", "content": ""}}, status="completed"),
        said("user", "the task", 4),
        said("assistant", "Done.", 5),
    ]
    found = read(path, *({**one, "ordinal": n} for n, one in enumerate(lines)))
    assert brief(found)[1:] == [("user", "the task", "sub_agent"), ("agent", "Done.", "")]


def test_lines_and_items_of_no_known_type(path: Path) -> None:
    quiet = [line(kind, 1) for kind in ("token_usage_record", "retained_context", "realtime_item")]
    letters = [item("agent_message", 4), line("inter_agent_communication", 5, content=7)]
    found = read(path, META, *quiet, done("SomethingNew", 2, id="n"), event("item_completed", 3), *letters)
    reasons = [one.reason for one in found if isinstance(one, Quarantined)]
    assert reasons == ["unknown_type:item_completed"] * 2 + ["a message without content"] * 2


def test_what_is_put_into_a_thread_from_outside_is_no_tools_result(path: Path) -> None:
    task = (
        "<codex_delegation>\n<source_thread_id>t</source_thread_id>\n<input>bake</input></codex_delegation>"
    )
    told = {"name": "create_thread", "namespace": "codex_app"}
    found = read(
        path,
        META,
        item("function_call_output", 1, id="fco_1", output=task, **told),
        done("FunctionCallOutput", 2, id="fco_1", output=task, **told),
        item("function_call_output", 3, id="fco_2", output="the oven is hot", name="oven"),
        done("FunctionCallOutput", 4, id="fco_2", output="the oven is hot", name="oven"),
    )
    assert brief(found)[1:] == [("user", task, "sub_agent"), ("user", "the oven is hot", "meta")]


def test_a_change_has_one_path_on_windows(path: Path) -> None:
    """What a patch asks for was told by its relative path, and what was applied by its whole one."""
    changes = {"C:\\w\\src\\a.py": {"type": "update", "unified_diff": DIFF, "move_path": None}}
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-red\n+blue\n*** End Patch"
    found = read(
        path,
        line("session_meta", id=SESSION, cwd="C:\\w"),
        item("custom_tool_call", 1, name="apply_patch", call_id="c1", input=patch),
        event("patch_apply_end", 2, call_id="c1", success=True, changes=changes),
    )
    edits = [one for one in found if isinstance(one, Edit)]
    assert [(one.path, one.status) for one in edits] == [
        ("C:\\w\\src\\a.py", "proposed"),
        ("C:\\w\\src\\a.py", "applied"),
    ]


def letter(kind: str, words: str, *, sealed: str = "", recipient: str = "/root/cook") -> dict[str, Any]:
    """An item that an agent got from another one, as Codex 0.144 and later write it."""
    header = f"Message Type: {kind}\nTask name: {recipient}\nSender: /root\nPayload:\n{words}"
    content: list[dict[str, str]] = [{"type": "input_text", "text": header}]
    content += [{"type": "encrypted_content", "encrypted_content": sealed}] if sealed else []
    return {"type": "agent_message", "author": "/root", "recipient": recipient, "content": content}


def test_what_one_agent_writes_to_another(path: Path) -> None:
    """A sub-agent's task begins an episode of its own; what else it gets, and its parent, is a notice."""
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    older = {"author": "/root", "recipient": "/root/cook", "other_recipients": [], "content": "bake"}
    begins, waits = (line("inter_agent_communication_metadata", 1, trigger_turn=one) for one in (True, False))
    bare = {"author": "/root", "content": [{"type": "input_text", "text": "no salt"}]}
    found = read(
        path,
        line("session_meta", id=SESSION, cwd="/w", source=source),
        begins,
        line("response_item", 2, **letter("NEW_TASK", "", sealed="gAAAAABpQ-x_1=")),
        said("assistant", "Cut.", 3),
        line("response_item", 4, **letter("MESSAGE", "mind the salt")),
        line("response_item", 5, **letter("NEW_TASK", "", sealed="now fry")),
        line("inter_agent_communication", 6, **older, trigger_turn=True),
        said("assistant", json.dumps({**older, "trigger_turn": False}), 7, phase="commentary"),
        begins,
        item("agent_message", 8, **bare),
        waits,
        item("agent_message", 9, **bare),
    )
    header = "Message Type: {}\nTask name: /root/cook\nSender: /root\nPayload:\n{}"
    assert brief(found)[1:] == [
        ("user", header.format("NEW_TASK", ""), "sub_agent"),
        ("agent", "Cut.", ""),
        ("user", header.format("MESSAGE", "mind the salt"), "meta"),
        ("user", header.format("NEW_TASK", "now fry"), "sub_agent"),
        ("user", "bake", "sub_agent"),
        ("user", "bake", "meta"),
        ("user", "no salt", "sub_agent"),
        ("user", "no salt", "meta"),
    ]


def test_a_thread_of_several_files_is_named_by_its_own_id(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-01-02T03-04-05-{SESSION}_{PARENT}.jsonl"
    found = read(path, said("user", "hello", 1), asked("hello", 2))
    assert {one.session for one in found if isinstance(one, UserTurn)} == {SESSION}
