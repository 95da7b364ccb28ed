"""Whether an editing tool did what it was called for, by what it gave."""

from __future__ import annotations

import json

import pytest

from cursorbench.sessions.calls import Change
from cursorbench.sessions.carried_out import changes_made, not_written

DONE = [
    "",
    "true",
    "The file /a/b.py has been updated. Here's the result of running `cat -n` on a snippet of it:\n 1 error",
    "File created successfully at: /x/not found/a.py",
    "Applied 3 edits to /a.py:\n1. Replaced",
    "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nSuccess. Updated the following files:\nM a.py",
    '{"output":"Success. Updated the following files:\\nM a\\n","metadata":{"exit_code":0}}',
    "Edit applied successfully.",
    "Successfully modified file: /a/failed.py (1 replacements).",
    "Created file /a/error.py with 12 characters",
    "File /a/b.py updated with changes.",
    "The content was successfully saved to a.py.",
    "[File: reproduce.py (10 lines total)]",
]
NOT_DONE = [
    "<tool_use_error>String to replace not found in file.\nString: x",
    "  <tool_use_error>File has not been read yet. Read it first before writing to it.",
    "Error: x",
    '{"error": "This tool call failed"}',
    "Failed to edit, could not find the string to replace.",
    "Could not find oldString in the file. It must match exactly",
    "No replacement was performed, old_str `x` did not appear verbatim in /a.",
    "No replacement was performed. Multiple occurrences of old_str",
    "apply_patch verification failed: Failed to find expected lines",
    "Exit code: 1\nWall time: 0 seconds\nOutput:\nx",
    '{"output":"x","metadata":{"exit_code":1}}',
    "Invalid `path` parameter: /x. The path does not exist",
    "The tool execution failed with the following error:\n<error>x",
    "File has been modified since read, either by the user or by a linter.",
    "You must use your Read tool before overwriting",
    "Found 3 matches for oldString but expected 1",
    "ENOENT: no such file or directory",
    "Your edit was NOT applied",
    "Tool call timed out",
]


@pytest.mark.parametrize("told", DONE)
def test_a_tool_that_changed_its_file_says_so_or_nothing(told: str) -> None:
    assert not not_written(told)


@pytest.mark.parametrize("told", NOT_DONE)
def test_one_that_did_not_says_why(told: str) -> None:
    assert not_written(told)
    assert changes_made("Edit", '{"path": "a", "old_str": "x", "new_str": "y"}', told) == ()


def test_the_changes_of_a_call() -> None:
    insert = {"command": "create", "path": "a.py", "file_text": "x\n"}
    assert changes_made("str_replace_editor", json.dumps(insert), "") == (Change("a.py", "", "x\n"),)
    view = json.dumps({"command": "view", "path": "a.py"})
    assert changes_made("str_replace_editor", view, "") == ()
    for name, arguments in (("Edit", "{"), ("Edit", "[]"), ("bash", '{"command": "sed -i s/a/b/ a.py"}')):
        assert changes_made(name, arguments, "") == ()
