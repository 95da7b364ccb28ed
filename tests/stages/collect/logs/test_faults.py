"""What logs say of calls that were none, in each agent's own words."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from cursorbench.sessions import items as said
from stages.collect.logs.turns import Turns
from tests.stages.collect.logs.test_turns import PLACE, agent, end, generations, told, use, user


def called(kind: str, agent: str, tool: str, text: str, outcome: Any = "error", **more: Any) -> list[str]:
    """Errors of the calls of one turn: a call that ended so, and another one that nothing is said of."""
    turns = Turns("auto", pseudonym=lambda data: hashlib.sha256(data).hexdigest())
    read: list[said.Read] = [
        said.SessionStart(session="s1", place=PLACE, agent=agent),
        user("x"),
        said.ToolUse(session="s1", place=PLACE, id="c1", name=tool, **more),
        use("c2"),
        said.ToolEnd(session="s1", place=PLACE, id="c1", outcome=outcome, text=text),
        end("c2"),
    ]
    records = [one for item in read for one in turns.add(kind, item)] + [*turns.done()]
    (one,) = generations(records)
    errors = [call.error for call in one.generation.tool_calls]
    known = sum(error not in ("", "untold") for error in errors)
    assert one.generation.invalid_tool_calls == (None if not known and "untold" in errors else known)
    first = one.generation.tool_calls[0]
    assert first.name == ("" if first.error == "unknown_tool" else tool), "a made-up name is the model's text"
    return errors


CLAUDE, COPILOT = ("claude-code", "claude-code"), ("copilot-cli", "copilot-cli")
QWEN = ("qwen-code", "qwen-code")
NO_TOOL = "<tool_use_error>Error: No such tool available: Glob</tool_use_error>"
WRONG_TYPE = "<tool_use_error>InputValidationError: Read failed due to the following issue:\nThe parameter"
CODEX, PARSE = ("codex", "codex"), "failed to parse function arguments: "
REQUIRED = 'Multiple validation errors:\n- "shellId": Required\n- "delay": Required'
TASK = "Error: The task tool was called with invalid arguments: [\n  {"


@pytest.mark.parametrize(
    ("log", "tool", "text", "error"),
    [
        (CLAUDE, "Glob", NO_TOOL, "unknown_tool"),
        (CLAUDE, "Read", WRONG_TYPE, "schema"),
        (CLAUDE, "Read", "<tool_use_error>File does not exist.</tool_use_error>", ""),
        (CLAUDE, "Bash", "grep: No such tool available: x", ""),
        (("specstory", "Claude Code"), "Read", "InputValidationError: [{}]", "schema"),
        (CODEX, "tools", "unsupported call: tools", "unknown_tool"),
        (CODEX, "shell", PARSE + "missing field `command` at line 1 column 2", "schema"),
        (CODEX, "shell", PARSE + "EOF while parsing a string at line 1", "unparsable"),
        (CODEX, "shell", "Exit code: 1\nOutput:\nunsupported call: x", ""),
        (COPILOT, "curl", "Tool 'curl' does not exist.", "unknown_tool"),
        (COPILOT, "bash", REQUIRED, "schema"),
        (COPILOT, "view", '"path": Expected string, received number', "schema"),
        (QWEN, "edit", "params must have required property 'file_path'", "schema"),
        (("opencode", "opencode"), "task", TASK, "schema"),
        (
            ("opencode", "opencode"),
            "bake",
            "Model tried to call unavailable tool 'bake'. Ava",
            "unknown_tool",
        ),
        (("entire", "Claude Code"), "Glob", NO_TOOL, "unknown_tool"),
        (("entire", "Codex"), "tools", "unsupported call: tools", "unknown_tool"),
        (("entire", "copilot-cli"), "bash", REQUIRED, "schema"),
        (("entire", "opencode"), "task", TASK, "schema"),
    ],
)
def test_an_agents_own_words_say_what_was_wrong_with_a_call(
    log: tuple[str, str], tool: str, text: str, error: str
) -> None:
    assert called(*log, tool, text) == [error, ""]
    # a result that says the like is a result
    assert called(*log, tool, text, outcome="ok") == ["", ""]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Model tried to call unavailable tool 'ls'. Available tools: bash, edit.", "unknown_tool"),
        ("Invalid input for tool edit: JSON parsing failed: Text: {", "unparsable"),
        ("Invalid input for tool edit: Type validation failed: Value: {}", "schema"),
    ],
)
def test_opencodes_stand_in_for_a_call_it_could_not_route(text: str, error: str) -> None:
    told = f"The arguments provided to the tool are invalid: {text}"
    assert called("opencode", "opencode", "invalid", told, outcome="ok") == [error, ""]
    assert called("opencode", "opencode", "bash", told, outcome="ok") == ["", ""]


def test_of_agents_whose_logs_never_say_it_is_not_known_whether_a_call_was_valid() -> None:
    assert called("continue", "continue", "edit", "No such tool available: edit") == ["untold", "untold"]
    assert called("openai-log", "", "edit", "", outcome="ok", checked="ok") == ["", "untold"]
    assert called("openai-log", "", "edit", "", outcome="ok", checked="schema") == ["schema", "untold"]


def test_the_name_of_a_tool_that_was_not_declared_is_not_recorded() -> None:
    """`called` looks at the name: it stayed readable in an artifact when its user was forgotten."""
    name = "look up the diagnosis of Maria"
    assert called("openai-log", "", name, "", outcome="ok", checked="unknown_tool")[0] == "unknown_tool"


def test_a_fault_that_is_told_when_its_generation_is_complete_is_counted() -> None:
    wrong = said.ToolEnd(
        session="s1", place=PLACE, id="c1", outcome="error", text="No such tool available: x"
    )
    _, turns = told(user("x"), use("c1"), user("y"), agent("b"), wrong)
    assert turns.counts["invalid_calls_told_late"] == 1
