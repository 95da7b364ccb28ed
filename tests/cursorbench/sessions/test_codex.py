"""Codex rollouts: every kind of line by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import codex
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Feedback,
    Interrupt,
    Place,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen

SESSION = "019a0000-0000-7000-8000-00000000abcd"
NO = 'CreateProcess { message: "Rejected(\\"rejected by user\\")" }'
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n*** Add File: b.py\n+new\n*** End Patch\n"


def line(kind: str, number: int = 0, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-02T03:04:05.{number:03d}Z", "type": kind, "payload": payload}


def item(kind: str, number: int = 0, **payload: Any) -> dict[str, Any]:
    return line("response_item", number, type=kind, **payload)


def event(kind: str, number: int = 0, **payload: Any) -> dict[str, Any]:
    return line("event_msg", number, type=kind, **payload)


def said(role: str, text: str, number: int = 0, **more: Any) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    return item("message", number, role=role, content=[{"type": part, "text": text}], **more)


ORIGIN = "git@example.org:o/shop.git"
GIT = {"branch": "main", "commit_hash": "c0ffee", "repository_url": ORIGIN}
META = line("session_meta", id=SESSION, cwd="/w", cli_version="0.1", git=GIT)


def read(path: Path, *given: dict[str, Any], seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    return list(codex.read(path, seen or Seen()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"rollout-2026-01-02T03-04-05-{SESSION}.jsonl"


def brief(found: list[Read]) -> list[tuple[Any, ...]]:
    """Items by what tells them apart."""
    told: list[tuple[Any, ...]] = []
    for one in found:
        match one:
            case UserTurn():
                told.append(("user", one.text, one.automatic))
            case AgentTurn():
                told.append(("agent", one.text, one.thinking))
            case ToolUse():
                told.append(("use", one.id, one.name))
            case ToolEnd():
                told.append(("end", one.id, one.outcome))
            case Edit():
                told.append(("edit", one.path, one.status))
            case _:
                told.append((type(one).__name__,))
    return told


def test_start_message_in_two_halves_and_times(path: Path) -> None:
    found = read(
        path,
        META,
        line("turn_context", model="m-1", cwd="/w"),
        said("user", "# AGENTS.md instructions for /w", 1),
        said("user", "please", 2),
        event("user_message", 3, message="please"),
        event("agent_message", 4, message="Done."),
        said("assistant", "Done.", 5, id="msg_1"),
        event("token_count", 6, info=None),
        event("task_complete", 7, turn_id="t", duration_ms=900, time_to_first_token_ms=40),
    )
    at = 1767323045000
    assert found == [
        SessionStart(
            session=SESSION,
            id=SESSION,
            at=at,
            place=Place(str(path), 1),
            agent="codex",
            version="0.1",
            cwd="/w",
            branch="main",
            commit="c0ffee",
            repository=ORIGIN,
        ),
        UserTurn(
            session=SESSION,
            at=at + 1,
            place=Place(str(path), 3),
            text="# AGENTS.md instructions for /w",
            automatic="meta",
        ),
        UserTurn(session=SESSION, at=at + 2, place=Place(str(path), 4), text="please"),
        AgentTurn(
            session=SESSION,
            id="msg_1",
            at=at + 4,
            place=Place(str(path), 6),
            text="Done.",
            model="m-1",
            first_token_ms=40.0,
            duration_ms=900.0,
        ),
    ]


def test_a_turns_times_are_not_those_of_an_answer_to_what_was_written_while_it_ran(path: Path) -> None:
    """They are counted from the turn's first request. The turn after it has its own."""
    done = {"duration_ms": 429_000, "time_to_first_token_ms": 40}
    found = read(
        path,
        META,
        said("user", "please", 1),
        event("user_message", 1, message="please"),
        item("function_call", 2, name="shell", arguments="{}", call_id="a"),
        said("user", "are you doing it?", 420_000),
        event("user_message", 420_000, message="are you doing it?"),
        said("assistant", "Yes.", 429_000),
        event("task_complete", 429_001, **done),
        event("task_started", 500_000),
        said("user", "two", 500_001),
        event("user_message", 500_001, message="two"),
        said("user", "no person's words", 500_002),
        said("assistant", "2.", 500_900),
        event("task_complete", 500_901, duration_ms=900, time_to_first_token_ms=40),
    )
    times = [(one.text, one.first_token_ms, one.duration_ms) for one in found if isinstance(one, AgentTurn)]
    assert times == [("Yes.", None, None), ("2.", 40.0, 900.0)]


def test_a_call_is_told_with_the_model_of_its_turn(path: Path) -> None:
    found = read(
        path,
        META,
        line("turn_context", 1, model="m-1", cwd="/w"),
        item("function_call", 2, name="shell", arguments="{}", call_id="a"),
        line("turn_context", 3, model="m-2", cwd="/w"),
        item("function_call", 4, name="shell", arguments="{}", call_id="b"),
    )
    assert [one.model for one in found if isinstance(one, ToolUse)] == ["m-1", "m-2"]


def test_patch_applied_with_the_diff_of_the_event(path: Path) -> None:
    found = read(
        path,
        META,
        item("custom_tool_call", 1, name="apply_patch", call_id="c1", input=PATCH),
        event(
            "patch_apply_end",
            2,
            call_id="c1",
            success=True,
            changes={
                "/w/a.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-one\n+two\n", "move_path": None}
            },
        ),
        item("custom_tool_call_output", 3, call_id="c1", output="Exit code: 0\nOutput:\nSuccess"),
    )
    use, proposed, added, applied, end = found[1:]
    assert isinstance(use, ToolUse)
    assert json.loads(use.arguments) == PATCH
    assert isinstance(proposed, Edit)
    assert (proposed.path, proposed.status, proposed.diff) == ("/w/a.py", "proposed", "@@\n-one\n+two\n")
    assert isinstance(added, Edit)
    assert (added.path, added.before, added.after) == ("/w/b.py", "", "new\n")
    assert isinstance(applied, Edit)
    assert (applied.id, applied.status, applied.diff) == ("c1", "applied", "@@ -1 +1 @@\n-one\n+two\n")
    assert isinstance(end, ToolEnd)
    assert end.outcome == "ok"


def test_older_patch_event_shapes(path: Path) -> None:
    changes = {
        "/w/n": {"add": {"content": "x"}},
        "/w/d": {"delete": {}},
        "/w/o": {"update": {"unified_diff": "@@", "move_path": "/w/p"}},
    }
    found = read(path, META, event("patch_apply_end", call_id="c", success=True, changes=changes))
    told = [(one.path, one.before, one.after, one.diff) for one in found if isinstance(one, Edit)]
    assert told == [
        ("/w/n", "", "x", None),
        ("/w/d", None, "", None),
        ("/w/o", None, None, None),
        ("/w/p", None, None, "@@"),
    ]


@pytest.mark.parametrize(
    ("output", "outcome", "status"),
    [
        ("patch rejected by user", "rejected", ["proposed", "rejected"]),
        ("aborted by user after 3.2s", "interrupted", ["proposed"]),
        ("Wall time: 3.2 seconds\naborted by user", "interrupted", ["proposed"]),
        ('{"output":"no","metadata":{"exit_code":1,"duration_seconds":0.0}}', "error", ["proposed"]),
        ({"content": "bad", "success": False}, "error", ["proposed"]),
        ("apply_patch verification failed: no such line", "error", ["proposed"]),
        ('error: Failed to find expected lines ["x"] in /w/a.py', "error", ["proposed"]),
        ("error: Failed to read file to update /w/a.py: No such file", "error", ["proposed"]),
        ("error: invalid hunk at line 3, 'x' is not a valid hunk header", "error", ["proposed"]),
        ("error: invalid patch: The last line of the patch must be '*** End Patch'", "error", ["proposed"]),
        (
            "patch rejected: writing outside of the project; rejected by user approval settings",
            "error",
            ["proposed"],
        ),
        (f"exec_command failed: {NO}", "rejected", ["proposed", "rejected"]),
        (f"exec_command failed for `sh -c '{'x' * 300}'`: {NO}", "rejected", ["proposed", "rejected"]),
        (
            f"Script failed\nOutput:\n\nScript error:\nexec_command failed: {NO}",
            "rejected",
            ["proposed", "rejected"],
        ),
        (
            f"exec_command failed: {NO.replace('rejected by user', 'blocked by policy')}",
            "error",
            ["proposed"],
        ),
        (f"Process exited with code 0\nOutput:\nexec_command failed: {NO}", "ok", ["proposed", "applied"]),
        ("approval policy is Never; reject command", "error", ["proposed"]),
        (
            "Wall time: 0.1 seconds\nOutput:\nuser rejected MCP tool call",
            "rejected",
            ["proposed", "rejected"],
        ),
        ("Wall time: 0.1 seconds\nOutput:\nrejected by user", "ok", ["proposed", "applied"]),
        ("request_user_input is unavailable in Default mode", "error", ["proposed"]),
        ("Success. Updated", "ok", ["proposed", "applied"]),
        ([{"type": "input_text", "text": "Exit code: 2\nOutput:\n"}], "error", ["proposed"]),
        ("Exit code: 0\nOutput:\nProcess exited with code 7", "ok", ["proposed", "applied"]),
    ],
)
def test_how_a_call_ends(path: Path, output: Any, outcome: str, status: list[str]) -> None:
    patch = PATCH.replace("*** Add File: b.py\n+new\n", "")
    call = item("function_call", 1, name="apply_patch", call_id="c", arguments=json.dumps({"input": patch}))
    found = read(path, META, call, item("function_call_output", 2, call_id="c", output=output))
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome]
    assert [one.status for one in found if isinstance(one, Edit)] == status


def test_calls_of_other_kinds(path: Path) -> None:
    heredoc = f"apply_patch <<'EOF'\n{PATCH}EOF"
    found = read(
        path,
        META,
        item(
            "function_call",
            1,
            name="shell",
            call_id="s",
            arguments=json.dumps({"command": ["bash", "-lc", heredoc]}),
        ),
        item("function_call", 2, name="f", call_id="x", arguments="{"),
        item("local_shell_call", 3, call_id="l", action={"type": "exec", "command": ["ls"]}),
        item("web_search_call", 4, id="w", status="completed", action={"type": "search"}),
        event("exec_command_end", 5, call_id="l", exit_code=3, status="failed"),
        item("function_call_output", 6, call_id="l", output="text"),
        event("mcp_tool_call_end", 7, call_id="x", result={"Err": "no"}),
        item("function_call_output", 8, call_id="x", output="text"),
        item("reasoning", 9, summary=[{"type": "summary_text", "text": "why"}], encrypted_content="z"),
    )
    assert brief(found[1:]) == [
        ("use", "s", "shell"),
        ("edit", "/w/a.py", "proposed"),
        ("edit", "/w/b.py", "proposed"),
        ("use", "x", "f"),
        ("use", "l", "local_shell"),
        ("use", "w", "web_search"),
        ("end", "w", "ok"),
        ("end", "l", "error"),
        ("end", "x", "error"),
        ("agent", "", "why"),
    ]
    assert [one.invalid != "" for one in found if isinstance(one, ToolUse)] == [False, True, False, False]


def test_a_call_whose_end_is_told_before_the_turns_was_interrupted(path: Path) -> None:
    call = item("function_call", 2, name="exec_command", call_id="d", arguments="{}")
    cut = item("function_call_output", 3, call_id="d", output="Wall time: 0.1 seconds\naborted by user")
    ends = event("turn_aborted", 5, reason="interrupted")
    later = [event("task_started", 6), event("turn_aborted", 7, reason="interrupted")]
    found = read(path, META, event("task_started", 1), call, cut, ends, *later)
    assert [one.during for one in found if isinstance(one, Interrupt)] == ["tool", "answer"]


def test_interrupts_undo_and_rollback(path: Path) -> None:
    found = read(
        path,
        META,
        event("task_started", 1),
        item("function_call", 2, name="apply_patch", call_id="c", arguments=json.dumps({"input": PATCH})),
        item("function_call_output", 3, call_id="c", output="Success"),
        item("function_call", 4, name="exec_command", call_id="d", arguments="{}"),
        said("user", "<turn_aborted>\n  <reason>interrupted</reason>\n</turn_aborted>", 5),
        event("turn_aborted", 6, reason="interrupted"),
        event("task_started", 7),
        event("turn_aborted", 8, reason="replaced"),
        event("turn_aborted", 9, reason="interrupted"),
        event("undo_completed", 10, success=True),
        event("thread_rolled_back", 11, num_turns=2),
    )
    assert [one.during for one in found if isinstance(one, Interrupt)] == ["tool", "answer"]
    assert [one.path for one in found if isinstance(one, Edit) and one.status == "undone"] == [
        "/w/a.py",
        "/w/b.py",
    ]
    assert [(one.name, one.value) for one in found if isinstance(one, Feedback)] == [
        ("rolled_back_turns", 2.0)
    ]


def test_sub_agent_and_compaction(path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p-1", "depth": 1}}}
    meta = line("session_meta", id=SESSION, session_id="p-1", source=source)
    found = read(path, meta, said("user", "do", 1), line("compacted", 2, message="so far"), META)
    assert isinstance(found[0], SessionStart)
    assert (found[0].session, found[0].parent) == (SESSION, "p-1")
    assert brief(found[1:]) == [("user", "do", "sub_agent"), ("user", "so far", "continuation")]


def test_codex_own_threads_are_no_persons(path: Path) -> None:
    """Of reviews of approvals and of memories: `internal` since 2026, a sub-agent's before."""
    for source in ({"internal": "guardian"}, {"subagent": {"other": "guardian"}}):
        meta = line("session_meta", id=SESSION, parent_thread_id="p-1", source=source)
        found = read(
            path, meta, said("user", "Assess this.", 1), event("user_message", 2, message="Assess this.")
        )
        assert brief(found[1:]) == [("user", "Assess this.", "sub_agent")]


def test_what_codex_wrote_itself(path: Path) -> None:
    texts = {
        "<user_shell_command>ls</user_shell_command>": "command",
        "Implement the plan.": "plan",
        "Another language model started to solve this problem and": "continuation",
        "<environment_context>x</environment_context>": "meta",
        "<user_instructions>\nuse tabs": "meta",
        "<div>fix this</div>": "",
    }
    found = read(path, META, *(said("user", text, n) for n, text in enumerate(texts)))
    assert {one.text: one.automatic for one in found if isinstance(one, UserTurn)} == texts


def test_only_the_words_are_a_persons(path: Path) -> None:
    """The editor's context and a slash command's text come apart from them, told once from both halves."""
    editor = (
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py: a.py\n\n## My request for Codex:\nbake it\n"
    )
    prompt = "## User Input\n\n```text\na cake\n```\n\nYou **MUST** consider the user input before proceeding"
    halves = [
        half
        for number, text in ((1, editor), (3, prompt))
        for half in (said("user", text, number), event("user_message", number + 1, message=text))
    ]
    found = [one for one in read(path, META, *halves) if isinstance(one, UserTurn)]
    assert [(one.automatic, one.text) for one in found] == [
        ("meta", editor.partition("\n\n## My")[0]),
        ("", "bake it"),
        ("command", prompt),
        ("", "a cake"),
    ]


def test_unknown_fragment_is_automatic_where_people_are_told(path: Path) -> None:
    found = read(
        path,
        META,
        said("user", "hello", 1),
        event("user_message", 2, message="hello"),
        said("user", "<new_fragment>x</new_fragment>", 3),
        said("assistant", "hi", 4),
    )
    assert brief(found[1:3]) == [("user", "hello", ""), ("user", "<new_fragment>x</new_fragment>", "meta")]


def test_first_versions_without_envelope(path: Path) -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    first = {"id": SESSION, "timestamp": "2025-06-01T00:00:00Z", "instructions": None}
    found = read(path, first, message, {"record_type": "state"}, message)
    assert brief(found) == [("SessionStart",), ("user", "go on", ""), ("user", "go on", "")]
