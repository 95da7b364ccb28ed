"""What of a text a person wrote: behind a context, in a tag, in a slash command's text. Invented texts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds
from cursorbench.sessions.automatic import automatic_of
from cursorbench.sessions.items import Interrupt, UserTurn
from cursorbench.sessions.spoken import Part, apart, interrupted, is_marked, parts, words_of

RULES = "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n"
EDITOR = """# Context from my IDE setup:

## Active file: src/oven.py

## Open tabs:
- oven.py: src/oven.py

## My request for Codex:
preheat it first
"""
COMMENTS = """
# Diff comments:

## Comment 1
File: src/oven.py
Side: R
Lines: 4
Comment:
too hot

## Comment 2
File: src/oven.py
Comment:
and why celsius?

# In app browser:
- The user has the in-app browser open.

## My request for Codex:

The next image shows the browser page at the time of Comment 1. The element is marked by comment marker 1.
"""
BROWSER = """<in-app-browser-context source="ambient-ui-state">
This block is supplied by the app.
# In app browser:
- Current URL: http://localhost
</in-app-browser-context>"""
NOON = "<environment_details>\nnoon\n</environment_details>"  # behind each message of Cline's
RESUMED = "[TASK RESUMPTION] This task was interrupted 3 days ago.\n\nNote: a try may have failed."
ARGUMENTS = """
## User Input

```text
{}
```

You **MUST** consider the user input before proceeding (if not empty).

## Outline

1. Run the script.
"""
DESCRIBED = "---\ndescription: Bakes.\nhandoffs:\n  - label: eat\n---\n{}"
WINDOWS = ARGUMENTS.format("a cake\nwith cream").replace("\n", "\r\n")


NOTES = """# Response annotations:
Each item contains text selected from an earlier response.
<response-annotations>
[{"text":"two eggs","annotation":"three"},{"text":"bake"}]
</response-annotations>"""
PAGE = """# Browser comments:

## User Comment 1
Page URL: http://localhost
Comment:
centre it

<in-app-browser-context source="ambient-ui-state">
Comment:
evil
</in-app-browser-context>"""
REPLY = "<send_user_message_question_reply>\n{}\n</send_user_message_question_reply>"
ANSWERED = REPLY.format('[{"questionItemId":"q","question":"Eggs?","answer":"three"},{"answer":"no salt"}]')
PRIOR = '\n## Prior conversation with Codex:\n{"conversation":[{"role":"user","content":[]}]}'


RAN = (
    "<local-command-caveat>x</local-command-caveat>\n\n<command-name>/model</command-name>\n  "
    "<command-message>model</command-message>\n<command-args></command-args>\n\n"
    "<local-command-stdout>Set model to `m`</local-command-stdout>"
)
SUM_UP = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, or any other."
STEERED = (
    "The user sent a new message while you were working:\n{}\n\nThis is how Claude Code surfaces messages "
    "the user sends mid-turn — within the running turn."
)
AROUND = STEERED.replace("{}\n\n", "")
QUEUED = (
    "<system-reminder>\nThe user sent the following message:\n{}\n\n"
    "Please address this message and continue with your tasks.\n</system-reminder>"
)
HINT = (
    "User steering update:\n<user_input>\n{}\n</user_input>\n"
    "Internal instruction: Re-evaluate the active plan using this update. Do not cancel/skip tasks."
)
REMINDED = "<system-reminder>x</system-reminder>"
LISTED = "<bash-input>ls</bash-input>\n<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>"
NOTICE = "<task-notification>x</task-notification>"
EXPANDED = "<command-name>/bake</command-name>\n<command-args>it</command-args>\nBake a cake."
STOP = "[Request interrupted by user]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{PRIOR}\n## My request for Codex:\nbake it\n", [("meta", PRIOR.strip()), ("", "bake it")]),
        (f"{NOTES}\n\n## My request:\nbake it", [("meta", NOTES), ("", "three\n\nbake it")]),
        (f"{NOTES}\n\n## My request:\n", [("meta", NOTES), ("", "three")]),
        (f"{PAGE}\n\n## My request:\nand the title", [("meta", PAGE), ("", "centre it\n\nand the title")]),
        (ANSWERED, [("meta", ANSWERED), ("", "three\n\nno salt")]),
        (
            f"# Selected text:\n\n## Selection 1\nx\n\n## My request:\n{ANSWERED}",
            [("meta", "# Selected text:\n\n## Selection 1\nx"), ("", "three\n\nno salt")],
        ),
        (REPLY.format("[{"), None),
        (EDITOR, [("meta", EDITOR.partition("## My")[0].strip()), ("", "preheat it first")]),
        (
            "# Files mentioned by the user:\n\n## a.csv: /w/a.csv\n\n## My request for Codex:\nplot it",
            [("meta", "# Files mentioned by the user:\n\n## a.csv: /w/a.csv"), ("", "plot it")],
        ),
        (f"{BROWSER}\n\n## My request:\nperfect, go on", [("meta", BROWSER), ("", "perfect, go on")]),
        (f"{BROWSER}\n\nlook at it", [("meta", BROWSER), ("", "look at it")]),
        (f"{BROWSER}\n\n## My request:\n", [("meta", BROWSER)]),
        (
            f"## My request for Codex:\nfind a car\n\n{BROWSER}\n",
            [("", "## My request for Codex:\nfind a car"), ("meta", BROWSER)],
        ),
        (
            "# Files mentioned by the user:\n\n## a.csv: /w/a.csv\n\n## My request:\nplot it",
            [("meta", "# Files mentioned by the user:\n\n## a.csv: /w/a.csv"), ("", "plot it")],
        ),
        ("# Notes of mine\n\n## My request:\nplot it", None),
        ("what is <in-app-browser-context>?", None),
        (COMMENTS, [("meta", COMMENTS.partition("## My")[0].strip()), ("", "too hot\n\nand why celsius?")]),
        (
            "<environment_context>\n<cwd>/w</cwd>\n</environment_context>\nbake it",
            [("meta", "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"), ("", "bake it")],
        ),
        (
            ARGUMENTS.format("a cake\n```py\nx\n```\nwith cream"),
            [
                ("command", ARGUMENTS.format("a cake\n```py\nx\n```\nwith cream")),
                ("", "a cake\n```py\nx\n```\nwith cream"),
            ],
        ),
        (ARGUMENTS.format(""), [("command", ARGUMENTS.format(""))]),
        (
            "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>\n\nbake it",
            [
                ("meta", "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>"),
                ("", "bake it"),
            ],
        ),
        ("<user_query>\nwhy?\n</user_query>", [("", "why?")]),
        (
            "<context>\nIt is May.\n</context>\n<userRequest>\nwhy?\n</userRequest>\n",
            [("meta", "<context>\nIt is May.\n</context>"), ("", "why?")],
        ),
        (
            "<USER_REQUEST>why?</USER_REQUEST>\n<ADDITIONAL_METADATA>noon</ADDITIONAL_METADATA>",
            [("meta", "<ADDITIONAL_METADATA>noon</ADDITIONAL_METADATA>"), ("", "why?")],
        ),
        (
            "<task>\nbake\n</task>\n\n<environment_details>\nnoon\n</environment_details>",
            [("meta", "<environment_details>\nnoon\n</environment_details>"), ("", "bake")],
        ),
        ("<task>bake</task>", [("", "<task>bake</task>")]),
        (  # with files, and what the client wants told
            "<task>\nbake\n</task>\nFiles attached by the user:\n\nx\n# task_progress\n\n- [ ] y\n" + NOON,
            [
                ("meta", "Files attached by the user:\n\nx\n# task_progress\n\n- [ ] y\n" + NOON),
                ("", "bake"),
            ],
        ),
        (
            f"{RESUMED}\nNew instructions for task continuation:\n<user_message>\nadd salt\n</user_message>",
            [("meta", f"{RESUMED}\nNew instructions for task continuation:"), ("", "add salt")],
        ),
        (f"{RESUMED}\n# task_progress\n{NOON}", [("continuation", f"{RESUMED}\n# task_progress\n{NOON}")]),
        (
            f"The user provided the following feedback:\n<feedback>\nagain\n</feedback>\n{NOON}",
            [("meta", f"The user provided the following feedback:\n{NOON}"), ("", "again")],
        ),
        (f"<user_message>\nwhy?\n</user_message>\n{NOON}", [("meta", NOON), ("", "why?")]),
        ("<user_message>\nwhy?\n</user_message>", None),
        (f"why?\n\n\n{NOON}\n", [("", "why?"), ("meta", NOON)]),  # Kilo of 2026
        (f"why does it say {NOON}", None),
        (f"bake\n\n{RULES}1. The path", [("", "bake"), ("meta", f"{RULES}1. The path")]),  # Aider's
        (f"what are the {RULES}?", None),
        # of a checkout with Windows' line ends
        (WINDOWS, [("command", WINDOWS), ("", "a cake\r\nwith cream")]),
        (  # Cursor's, as Entire keeps it
            "<attached_files>\n<code_selection>\nx\n</code_selection>\n</attached_files>\n\nwhy?",
            [
                ("meta", "<attached_files>\n<code_selection>\nx\n</code_selection>\n</attached_files>"),
                ("", "why?"),
            ],
        ),
        (
            "<current_datetime>noon</current_datetime>\n\nwhy?",
            [  # Copilot CLI's
                ("meta", "<current_datetime>noon</current_datetime>"),
                ("", "why?"),
            ],
        ),
        ('<user_input mode="act">why?</user_input>', [("", "why?")]),  # Cline's logs
        ("[subagents] Result:\nTotal: 5", [("tool_result", "[subagents] Result:\nTotal: 5")]),
        (
            "[attempt_completion] Result:\nThe user has provided feedback.\n"
            "<feedback>\nadd salt\n</feedback>\nnoon",
            [
                ("meta", "[attempt_completion] Result:\nThe user has provided feedback.\nnoon"),
                ("", "add salt"),
            ],
        ),
        ("[bake_cake] Result:\nThe user denied this operation.\n<feedback>\nno\n</feedback>", None),
        (f"{RAN}\nbake it", [("meta", RAN), ("", "bake it")]),
        (f"{REMINDED}\n{RAN}\n{RAN}\nbake it", [("meta", f"{REMINDED}\n{RAN}\n{RAN}"), ("", "bake it")]),
        (f"{LISTED}\nbake it", [("meta", LISTED), ("", "bake it")]),
        (RAN, [("meta", RAN)]),
        (f"{RAN}\n{NOTICE}", [("meta", f"{RAN}\n{NOTICE}")]),
        (EXPANDED, [("command", EXPANDED)]),
        (STEERED.format("bake it"), [("meta", AROUND), ("", "bake it")]),
        (HINT.format("bake it"), [("meta", HINT.replace("{}\n", "")), ("", "bake it")]),
        (QUEUED.format("bake it"), [("meta", QUEUED.replace("{}\n\n", "")), ("", "bake it")]),
        (
            f"{REMINDED}\n{STEERED.format('bake')}\n{STEERED.format('it')}\n{REMINDED}",
            [
                ("meta", "\n".join((REMINDED, *[AROUND] * 2, REMINDED))),
                ("", "bake\nit"),
            ],
        ),
        ("The user sent the following message:\nbake it", None),
        (f"bake it\n\n{SUM_UP}", [("", "bake it"), ("meta", SUM_UP)]),
        (f"{STOP}\n\nbake it", [("", STOP), ("", "bake it")]),
        (f"{STOP}\n{STOP}\n\n{RAN}\nbake it", [("", STOP), ("", STOP), ("meta", RAN), ("", "bake it")]),
        (f"what does {STOP} mean?\nI saw it", None),
        ("  <div> is not closed, as <user_query>x</user_query> is", None),
        ("<div>x</div> see <user_query>y</user_query>", None),
        ("what does `## My request for Codex:` mean?", None),
        ("## My request for Codex:\nno heading before it", None),
        ("see\n## User Input\n\n```text\nx\n```\n\nYou **MUST** consider the user input", None),
        (
            DESCRIBED.format(ARGUMENTS.format("a cake")),
            [("command", DESCRIBED.format(ARGUMENTS.format("a cake"))), ("", "a cake")],
        ),
        (ARGUMENTS.format("$ARGUMENTS"), [("command", ARGUMENTS.format("$ARGUMENTS"))]),
        (DESCRIBED.format("Bake $1."), [("command", DESCRIBED.format("Bake $1."))]),
        (DESCRIBED.format("").strip(), None),
        ("---\nmine\n---\nwhat is it?", None),
    ],
)
def test_a_persons_words_come_apart(text: str, told: list[tuple[str, str]] | None) -> None:
    expected = [("", text)] if told is None else told
    assert [(part.automatic, part.text) for part in parts(text)] == expected


def test_what_a_slash_command_became_has_its_time(tmp_path: Path) -> None:
    """Claude Code's flag for it is in neither of these two; what comes later is a person's again."""
    texts = {
        "<command-message>bake</command-message>\n<command-name>/bake</command-name>": (0, "command"),
        "## Context\n\nThe oven is cold. Bake the cake.": (0, "command"),
        "with cream": (2, ""),
        "and cherries": (2, ""),
    }
    known = [(text, why) for text, (_, why) in texts.items()]
    spec, compact = tmp_path / "spec/s.md", tmp_path / "entire/transcript.jsonl"
    for path in (spec, compact):
        path.parent.mkdir()
    spec.write_text(
        "".join(
            f"_**User (2026-01-01 00:00:0{at}Z)**_\n\n{text}\n\n---\n\n" for text, (at, _) in texts.items()
        )
    )
    line = {"v": 1, "agent": "a", "type": "user"}
    compact.write_text(
        "".join(
            json.dumps(line | {"ts": f"2026-01-01T00:00:0{at}Z", "content": [{"text": text}]}) + "\n"
            for text, (at, _) in texts.items()
        )
    )
    for path in (spec, compact):
        turns = [item for _, item in kinds.read(path, path.parent.name.replace("spec", "specstory"))]
        assert [(one.text, one.automatic) for one in turns if isinstance(one, UserTurn)] == known


ABORTED = "<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>"


@pytest.mark.parametrize("mark", [STOP, ABORTED, f"{ABORTED}\n{STOP}"])
def test_a_mark_of_a_stop_comes_apart_from_the_words_behind_it(mark: str) -> None:
    found = parts(f"{mark}\nno, use pathlib")
    assert [part.stopped for part in found] == ["answer"] * (len(found) - 1) + [""]
    assert "\n".join(part.text for part in found[:-1]) == mark
    assert words_of(f"{mark}\nno, use pathlib") == "no, use pathlib"


def test_codexs_mark_alone_is_a_stop_and_not_what_quotes_it() -> None:
    assert [part.stopped for part in parts(ABORTED)] == ["answer"]
    for text in (f"what is {ABORTED}?", "<turn_aborted>\nunclosed"):
        assert not any(part.stopped for part in parts(text))


def test_all_kinds_take_the_words_and_the_marks_of_a_stop(tmp_path: Path) -> None:
    """Each kind that tells who wrote a message by the role alone: one place reads the text."""
    stop = "[Request interrupted by user for tool use]"

    def lines(*values: object) -> str:
        return "".join(f"{json.dumps(value)}\n" for value in values)

    def claude(uuid: str, text: str) -> dict[str, object]:
        return {"type": "user", "uuid": uuid, "sessionId": "s", "message": {"role": "user", "content": text}}

    def copilot(one: str, text: str) -> dict[str, object]:
        return {
            "type": "user.message",
            "id": one,
            "timestamp": "2026-01-01T00:00:00Z",
            "data": {"content": text},
        }

    def compact(text: str) -> dict[str, object]:
        return {
            "v": 1,
            "agent": "a",
            "type": "user",
            "ts": "2026-01-01T00:00:00Z",
            "content": [{"text": text}],
        }

    request = {"model": "m", "messages": [{"role": "user", "content": text} for text in (EDITOR, stop)]}
    messages = [{"type": "user", "text": text} for text in (EDITOR, stop)]
    note = {
        "schema_version": "authorship/3.0.0",
        "prompts": {"k": {"agent_id": {"tool": "codex"}, "messages": messages}},
    }
    logs = {
        "claude-code": ("c.jsonl", lines(claude("u1", EDITOR), claude("u2", stop))),
        "copilot-cli": ("e.jsonl", lines(copilot("e1", EDITOR), copilot("e2", stop))),
        "openai-log": ("o.jsonl", lines({"request": request})),
        "git-ai": ("n.txt", f"a.py\n  k 1-2\n---\n{json.dumps(note)}"),
        "specstory": ("s.md", f"_**User**_\n\n{EDITOR}\n---\n\n_**User**_\n\n{stop}\n"),
        "entire": ("transcript.jsonl", lines(compact(EDITOR), compact(stop))),
    }
    for kind, (name, text) in logs.items():
        path = tmp_path / kind / name
        path.parent.mkdir()
        path.write_text(text)
        items = [item for _, item in kinds.read(path, kind)]
        turns = [(item.automatic, item.text) for item in items if isinstance(item, UserTurn)]
        assert turns[1:] == [("", "preheat it first")], kind
        assert turns[0][0] == "meta", kind
        assert [item.during for item in items if isinstance(item, Interrupt)] == ["tool"], kind


LINES = st.sampled_from(
    [
        "Caveat: The messages below were generated by the user",
        "Provide a detailed prompt for",
        "New instructions for task continuation:",
        "The user sent",
        "User Input",
        "Result:",
        "``text",
        "]>",
        " ",
    ]
)


@given(st.lists(LINES | st.text(st.characters(exclude_characters="<#[\n"), max_size=9)).map("".join))
def test_a_line_without_marks_has_one_author(text: str) -> None:
    """What is passed over for it would find nothing."""
    assert not is_marked(text)
    assert not interrupted(text)
    assert apart(text) == [Part(text)]
    assert parts(text) == [Part(text, automatic_of(text))]


@pytest.mark.parametrize("mark", ["<", "#", "[", "\n"])
def test_a_mark_may_be_anywhere(mark: str) -> None:
    assert is_marked(f"a {mark} b")


def test_blank_lines_behind_a_clients_words_are_looked_at_once() -> None:
    """30 kB of them kept the gateway from all else for fifteen seconds."""
    text = "The user sent the following message:\nbake" + "\n" * 100_000 + "it"
    begun = time.process_time()
    assert words_of(text) == text
    assert time.process_time() - begun < 5
