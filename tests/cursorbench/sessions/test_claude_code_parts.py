"""Claude Code's logs: who wrote a text, and what a tool's result says of a file."""

from typing import Any

import pytest

from cursorbench.sessions import claude_code_said as said
from cursorbench.sessions import claude_code_tools as tools
from cursorbench.sessions.automatic import automatic_of
from cursorbench.sessions.claude_code_tools import Change

REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected. "
CHAT_ABOUT_THIS = 'The user wants to clarify these questions.\n    This means they may\n- "Which?"\n  (No'
SKIP_INTERVIEW = (
    "The user has indicated they have provided enough answers for the plan interview.\nStop asking"
)
NOTE = "\n\nNote: The user's next message may contain a correction or preference. Pay attention"


@pytest.mark.parametrize(
    ("text", "fields", "automatic"),
    [
        ("do it", {}, ""),
        ("do it", {"origin": {"kind": "human"}}, ""),
        ("do it", {"isMeta": True}, "meta"),
        ("do it", {"origin": {"kind": "task-notification"}}, "meta"),
        ("7 background agents were stopped by the user.", {"promptSource": "system"}, "meta"),
        ("do it", {"promptSource": "sdk"}, ""),
        ("do it", {"isCompactSummary": True}, "continuation"),
        ("do it", {"isSidechain": True}, "sub_agent"),
        ("do it", {"isSidechain": True, "isMeta": True}, "meta"),
        ("do it", {"isSidechain": True, "isCompactSummary": True}, "continuation"),
        ("do it", {"planContent": "1."}, "plan"),
        ("Implement the following plan:\n1.", {}, "plan"),
        ("<command-name>/clear</command-name>", {}, "command"),
        ("<local-command-stdout>Bye</local-command-stdout>", {}, "command"),
        ("<local-command-caveat>Caveat: x</local-command-caveat>", {}, "meta"),
        ("<bash-input>ls</bash-input>", {}, "command"),
        ("<bash-stdout>x</bash-stdout>", {}, "pasted_output"),
        ("This session is being continued from a previous conversation that ran", {}, "continuation"),
        ("Operation stopped by hook: no", {}, "meta"),
        ("<system-reminder>x</system-reminder>", {}, "meta"),
        ("<system-reminder>x</system-reminder>\nand now?", {}, ""),
        ("Caveat: this will be slow", {}, ""),
    ],
)
def test_who_wrote_a_user_message(text: str, fields: dict[str, Any], automatic: str) -> None:
    assert (said.automatic_line(fields) or automatic_of(text)) == automatic


HUNK = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "+b"]}
STEPS = [
    {"old_string": "a", "new_string": "b", "replace_all": True},
    {"old_string": "b c", "new_string": "d"},
]
EDIT = {"file_path": "p", "old_string": "b", "new_string": "c"}


@pytest.mark.parametrize(
    ("tool", "given", "result", "proposed", "applied"),
    [
        (
            "Write", {"file_path": "p", "content": "x"},
            {"type": "create", "filePath": "p", "content": "x", "originalFile": None},
            Change("p", None, "x"), Change("p", "", "x"),
        ),
        (
            "mcp__acp__Write", {"file_path": "p", "content": "x"},
            {"type": "update", "filePath": "p", "content": "x", "originalFile": "o"},
            Change("p", None, "x"), Change("p", "o", "x"),
        ),
        (
            "MultiEdit", {"file_path": "p", "edits": STEPS},
            {"filePath": "p", "edits": STEPS, "originalFileContents": "a a c"},
            Change("p", "a\nb c", "b\nd"), Change("p", "a a c", "b d"),
        ),
        (
            "NotebookEdit", {"notebook_path": "p", "new_source": "y"},
            {"notebook_path": "p", "original_file": "{}", "updated_file": "{1}"},
            Change("p", None, "y"), Change("p", "{}", "{1}"),
        ),
        (  # the user altered it
            "Edit", EDIT, {"filePath": "p", "oldString": "b", "newString": "C", "originalFile": "b\nb"},
            Change("p", "b", "c"), Change("p", "b\nb", "C\nb"),
        ),
        (  # a line is taken out whole
            "Edit", EDIT | {"new_string": ""},
            {"filePath": "p", "oldString": "b", "newString": "", "originalFile": "a\nb\nc"},
            Change("p", "b", ""), Change("p", "a\nb\nc", "a\nc"),
        ),
        (  # the original is not told, or does not fit
            "Edit", EDIT, {"filePath": "p", "oldString": "b", "newString": "c", "originalFile": "z"},
            Change("p", "b", "c"), Change("p", "b", "c"),
        ),
        ("Edit", EDIT, None, Change("p", "b", "c"), Change("p", "b", "c")),
        (  # the call is not in the log
            "", {}, {"filePath": "p", "structuredPatch": [HUNK]},
            None, Change("p", diff="@@ -1,1 +1,1 @@\n-a\n+b\n"),
        ),
        ("Read", {"file_path": "p"}, {"type": "text", "file": {"filePath": "p"}}, None, None),
    ],
)  # fmt: skip
def test_changes_of_files(
    tool: str, given: Any, result: Any, proposed: Change | None, applied: Change | None
) -> None:
    assert tools.proposed(tool, given) == proposed
    assert tools.applied(proposed, result) == applied


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REFUSED + "STOP what you are doing and wait for the user to tell you how to proceed.", ""),
        (REFUSED + "To tell you how to proceed, the user said:\nnot here", "not here"),
        (REFUSED + "To tell you how to proceed, the user said:\nno" + NOTE, "no"),
        (REFUSED + "The user provided the following reason for the rejection:  why", "why"),
        (REFUSED + f"To tell you how to proceed, the user said:\n{CHAT_ABOUT_THIS}", ""),
        (REFUSED + f"To tell you how to proceed, the user said:\n{SKIP_INTERVIEW}" + NOTE, ""),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert tools.outcome({"is_error": True}, f"Error: {text}", text) == ("rejected", reason)
    assert tools.outcome({}, "User rejected tool use", text) == ("rejected", reason)
    assert tools.outcome({}, {"stdout": text}, text) == ("ok", "")  # a file that quotes it
