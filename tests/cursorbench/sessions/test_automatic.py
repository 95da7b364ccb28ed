"""Texts that clients put under the role `user`, told from what people write."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.automatic import automatic_of, is_notice
from cursorbench.sessions.items import UserTurn
from cursorbench.sessions.spoken import parts

FINISHED = """<system_notification>
The following task has finished. If you were already aware, ignore this notification.

<task>
kind: shell
status: success
task_id: 146832
</task>
</system_notification>
<user_query>Briefly inform the user about the task result.</user_query>"""
SUM_UP = "Your task is to create a detailed summary of"
SO_FAR = f"{SUM_UP} the conversation so far, paying close attention to the user's explicit requests"
TEXT_ONLY = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
CHECKPOINT = "You are performing a CONTEXT CHECKPOINT COMPACTION."
RESUME = "Please continue from where you left off."
PROMPT = "Provide a detailed prompt for continuing our conversation above."
NOTICES = [
    FINISHED,
    "<system-notification>x</system-notification>",
    "<bash-notification>\n<shell-id>bb6abe4</shell-id>\n</bash-notification>\nRead the output file.",
    "<agent-notification>\n<agent-id>ad9c6de</agent-id>\n</agent-notification>",
    "[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated background-task event.",
    "<system-reminder>x</system-reminder>\n<task-notification><task-id>a</task-id></task-notification>",
    "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>",
    "  <system_reminder>never closed",
    # Copilot's in VS Code, before a person's first message
    "<environment_info>\nThe user's current OS is: Linux\n</environment_info>\n<workspace_info>\n- /w\n"
    "</workspace_info>\n<userMemory>\nuse tabs\n</userMemory>\n<sessionMemory>\nempty\n</sessionMemory>\n"
    "<repoMemory>\nempty\n</repoMemory>\n",
    "<tool_response>ok</tool_response>",
    # Roo's and its like, behind a tool's result and after an answer without a call
    "<environment_details>\n# Current Time\n2026-11-20T16:37:45Z\n</environment_details>",
    "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.\n\n# Reminder",
    "[read_file for 'src/a.py'] Result:\n<content>\n1 | x\n</content>\n<environment_details>\nnoon\n"
    "</environment_details>",
    "[execute_command for 'cat <<E\nx\nE'] Result:\nCommand executed.",
    "[attempt_completion] Result:\nThe tool execution failed with the following error:",
    "[read_file for 'prompt.txt'] Result:\nEnd with\n<answer>\n42\n</answer>\nor <feedback>",
    "<info-msg>\nIt is currently 2026-11-20 16:37:00\nWorking directory: /w\n</info-msg>",
    f"<timestamp>Monday, 9:35 PM</timestamp>\n{FINISHED}",
    "<ci-monitor-event>A check failed on pull request #7.</ci-monitor-event>",
    '<oven-watch-alert level="2">hot</oven-watch-alert>\n<oven-watch-alert>hotter</oven-watch-alert>\n',
    "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>",
    "Continue from where you left off.",
    "[Image: original 300x200, displayed at 150x100. Multiply coordinates by 2.00.]",
    "[Image: source: /tmp/cake.png]\n[Image: source: /tmp/oven.png]",
    "[Terminal 0a1b2c3d-0000-4000-8000-000000000000 notification: command completed.]\nTerminal output:\nok",
    "File editing session",
    "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>\n",
    "# AGENTS.md instructions for /w\n\nnever closed",
    "[SUGGESTION MODE: Suggest what the user might naturally type next into Claude Code.]\n\nFIRST: look",
    '{"task_id":"b1","tool_use_id":"toolu_1","description":"Bake \\"it\\"","task_type":"local_bash"}',
    '{"task_id":"b1","description":"Bake","task_type":"local_agent"}',
    "Unknown skill: plugin:bake-it",
    "Commands are in the form `/command [args]`",
    "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Friday.\nMore.",
    "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
    "</session_context>",
    "Here is a summary of changes in the user's editor context, in JSON format. This is for your information "
    "only.\n```json\n{}\n```",
    "User has manually exited Plan Mode. Switching to Default mode (edits will require confirmation).",
    # Qwen Code's, where an answer broke off
    "The connection dropped mid-response. Resume directly — no apology.\n\n<previous_response_suffix>\nx",
    "# 1 SEARCH/REPLACE block failed to match!\n\n## SearchReplaceNoExactMatch: This SEARCH block",  # Aider's
    # mini-swe-agent's
    "Tool call error:\n\n<error>\nNo tool calls found in the response.\n</error>\n\nHere is general guidance",
    "<returncode>1</returncode>\n<output>\nno\n</output>",
    "I have *added these files to the chat* so you can go ahead and edit them.\n\na.py",
    '<cross-session-message from="oven">hot</cross-session-message>',
    "Tool loaded.",
    # Codex's, which only its rollouts tell by their events
    "<skill>\n<name>bake</name>\n<path>/w/SKILL.md</path>\n# Bake\n</skill>",
    "<user_action>\n  <context>User initiated a review.</context>\n  <action>review</action>\n</user_action>",
    "An MCP app initiated this message. Read the untrusted_input tool output.",
    "Warning: The maximum number of unified exec processes you can keep open is 60 and you have 61 open.",
    "Warning: The maximum number of unified exec processes you can keep open is 60 and you currently have 61 "
    "processes open. Reuse older processes or close them to prevent automatic pruning of old processes",
    "Warning: apply_patch was requested via exec_command. Use the apply_patch tool instead of exec_command.",
    # what clients ask to sum up a conversation that has grown too long
    f"{SO_FAR} and your previous actions.",
    f"{SUM_UP} this conversation. This summary will be placed at the start of a continuing session; more.",
    f"{SUM_UP} the RECENT portion of the conversation — the messages that follow earlier retained context.",
    f"{TEXT_ONLY}\n\n- Do NOT use Read, Bash, Grep, Glob, Edit, Write, or ANY other tool.",
    f"{TEXT_ONLY}\n\n{SO_FAR}",
    f"{CHECKPOINT} Create a handoff summary for another LLM that will resume the task.",
    "Please create a detailed summary of the conversation so far. The history is being compacted so.",
    'Here is the conversation so far:\n\n<conversation>\n[User]: "bake"\n</conversation>\n\nWrite a summary.',
    "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    f"{PROMPT} Focus on information that would be helpful for continuing the conversation.",
    f"{PROMPT}\nFocus on information that would be helpful for continuing the conversation.",
    "Here is the conversation so far:\n\n<conversation>\n[User]: bake it\n</conversation>\n\nSum it up.",
    # or to name it
    "Generate a title for this conversation:\n",
    "Generate a concise, single-line task title of at most 36 characters.\n\nUser prompt:\nbake it",
    # what one of Codex's agents tells another
    "<subagent_notification>\n{}\n</subagent_notification>",
    "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/kid\nPayload:\nbaked",
]
FIX = "For the code present, we get this error:\n```\nunused name\n```\n"


@pytest.mark.parametrize("text", NOTICES)
def test_notices_are_no_persons(text: str) -> None:
    assert automatic_of(text)
    assert is_notice(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<command-name>/review</command-name>", "command"),
        ("<user-memory-input>use tabs</user-memory-input>", "command"),
        ("<<autonomous-loop-dynamic>>", "command"),
        ('<scheduled-task name="bread">bake it</scheduled-task>', "command"),
        (
            "<heartbeat>\n  <automation_id>watch-oven</automation_id>\n"
            "  <instructions>\nLook at the oven.\n  </instructions>\n</heartbeat>\n",
            "command",
        ),
        (
            "Automation: Bread\nAutomation ID: bread-1\n"
            "Automation memory: $CODEX_HOME/automations/bread-1/memory.md\nLast run: never\n\nBake it.",
            "command",
        ),
        (
            "<codex_delegation>\n  <source_thread_id>t1</source_thread_id>\n"
            "  <input>Bake it.</input>\n</codex_delegation>",
            "sub_agent",
        ),
        ("Managed memory has TWO directories. Choose which one to write each memory into by", "sub_agent"),
        ("The following is the Codex agent history added since your last approval assessment.", "sub_agent"),
        ("Message Type: NEW_TASK\nTask name: /root/kid\nSender: /root\nPayload:\nbake it", "sub_agent"),
        (
            "Continue if you have next steps, or stop and ask for clarification if you are unsure how to "
            "proceed.",
            "continuation",
        ),
        (f"I hit my usage limit while you were working, but it has reset now. {RESUME}", "continuation"),
        (f"The app was quit while you were working. {RESUME}", "continuation"),
        (
            "Your claude.ai usage limit has reset. Continue the task you were working on when the limit was "
            "reached; do not repeat work that is already complete.",
            "continuation",
        ),
        ("Implement the following plan:\n1.", "plan"),
        ("This session is being continued from a previous conversation that ran", "continuation"),
        ("<conversation-summary>\nBread.\n</conversation-summary>\nIf you need specific", "continuation"),
        ("@agent Try Again", "continuation"),
        ("<state_snapshot>\nBread.\n</state_snapshot>", "continuation"),
        ('@agent Continue: "Continue to iterate?"', "continuation"),
        ('@agent 继续: "是否继续迭代？"', "continuation"),
        ("Issue reproduced, please proceed.", "continuation"),
        ("Implement the plan.", "plan"),
        ("Start implementation", "plan"),
        (
            "#createFile the plan as is into an untitled file (`untitled:plan-${camelCaseName}.prompt.md` "
            "without frontmatter) for further refinement.",
            "command",
        ),
        ("Implement the plan as specified, it is attached for your reference. Do NOT edit it.", "plan"),
        (f"{FIX}How can I resolve this? If you propose a fix, please make it concise.", "command"),
        (f"{FIX}Fix it, verify, and then give a concise explanation. @a.py (1-3) ", "command"),
        ("Verify this issue exists and fix it:\n\nThe name is wrong.", "command"),
        ("Please commit all of my changes so we can make a PR.", "command"),
        (
            "IT IS CRITICAL THAT YOU FOLLOW THESE STEPS - while staying in character as the current agent "
            'persona you may have loaded:\n\n<steps CRITICAL="TRUE">\n1. Bake.\n</steps>',
            "command",
        ),
        (
            "Detect my project's dev servers and save all their configurations to .claude/launch.json, then "
            'ask which ones to start.\n\n```json\n{"port": <port>}\n```',
            "command",
        ),
        ("The issue has been fixed. Please clean up the instrumentation.", "command"),
        (
            "Review the current code changes (staged, unstaged, and untracked files) and provide prioritized "
            "findings.",
            "command",
        ),
        (
            "Review the code changes against the base branch 'main'. The merge base commit for this "
            "comparison is 0a1b. Run `git diff 0a1b` to inspect the changes relative to main. "
            "Provide prioritized, actionable findings.",
            "command",
        ),
        (
            'Review the code changes introduced by commit 0a1b ("Bake"). '
            "Provide prioritized, actionable findings.",
            "command",
        ),
        ("Review profile: general\n\nTask: Look for bugs.\n\nOutput format:\n- One line.", "command"),
        (
            "/review\n/bake:taste\n\nScope: review the commits unique to this branch vs main, plus any "
            "uncommitted changes in the working tree. Ignore code outside this scope.",
            "command",
        ),
        (
            "You are the judge for this code review. 2 reviewers independently reviewed the same change.\n"
            "Review profile: general\n",
            "command",
        ),
        ("  /clear ", "command"),
        ("<meta>\ndescription: Bake\nargument-hint: <cake>\n</meta>\n\n# Bake", "command"),  # cc-sdd's
        ("/oven:heat 200 degrees", "command"),
        ("/exit\n ⎿  See ya!", "command"),
        ("/bake a cake\n\n--- Cursor Command: bake.md ---\n# Bake\n--- End Command ---", "command"),
        ("@workspace /setupTests", "command"),
        ("/fix 'cream' is not defined, 'cake' is never read", "command"),
        ('@workspace /setupTests jest: "Pick a testing framework"', "continuation"),
        ("<user_shell_command>\nls\n</user_shell_command>", "command"),
        (
            "You must fully embody this agent's persona and follow all activation instructions exactly as",
            "command",
        ),
        (
            "\n# undefined\n\nRead the entire task file at: undefined\n\n"
            "Follow all instructions in the task file exactly as written.\n",
            "command",
        ),
    ],
)
def test_what_asks_for_something_is_no_notice(text: str, why: str) -> None:
    assert automatic_of(text) == why
    assert not is_notice(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "<div>why is this not closed?</div>",
        "what does <system_notification> mean?",
        "<ide_opened_file>The user opened a.py</ide_opened_file>\nfix it",
        "<environment_context>x</environment_context><system-reminder>y</system-reminder> and now?",
        "[SYSTEM] is printed twice",
        "[attempt_completion] Result:\nThe user has provided feedback.\n<feedback>\nshorter\n</feedback>\n",
        "[write_to_file for 'a.py'] Result:\nThe user denied this operation.\n<feedback>\nno\n</feedback>",
        "[ask_followup_question for 'Which?'] Result:\n<answer>\nthe left one\n</answer>",
        "[read_file for 'a.py'] does nothing",
        "<environment_details>\nnoon\n</environment_details>\nfix it",
        "[ERROR] You did not use a tool in your previous response! Why?",
        "Continue from where you left off. And then stop.",
        "Review the code changes introduced by commit 0a1b. Is the oven safe?",
        '{"task_id":"b1","description":"Bake","task_type":"local_bash"} what is this?',
        '{"task_id":"b1","description":"Bake"}',
        "Unknown skill: bake. Why?",
        "This is the cake. We are setting up the oven.",
        "User has manually exited Plan Mode. Switching to Default mode is broken.\nWhy?",
        "Tool loaded. And now?",
        "Issue reproduced, please proceed. It is the left oven.",
        "<skill>bake</skill> what is this tag?",
        "<heartbeat> is printed twice",
        "Automation: can you bake every night?",
        "The app was quit while you were working. Bake the cake first.",
        "Warning: The maximum number of unified exec processes you can keep open is 60\nwhat does this mean?",
        "Warning: The maximum number of unified exec processes you can keep open is 60. How do I raise it?",
        "Warning: The maximum number of unified exec processes you can keep open is 6 and you have 7 open. "
        "Why?",
        'what does "<codex_delegation>" do?',
        "[Image: original] why is this so small?",
        "<ci-monitor-event>failed</ci-monitor-event> what is this?",
        "<bake-event>a</bake-event> and <bake-event>b</bake-event>",
        "<user-context>I am new here</user-context>",
        "<my-button>ok</my-button>",
        "@agent Try Again with less sugar",
        '@agent fix this: "too sweet"',
        "Implement the plan. But not step 2.",
        "/login does not work",
        "Review profile: it shows no picture",
        "Scope: review the oven",
        "You are the judge for this code review. Is the cake done?",
        "/tmp/cake.log",
        "/fixtures are missing",
        "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>\n\nbake it",
        "<timestamp>noon</timestamp>\n<user_query>why?</user_query>",
        f"{FIX}Why? I did use it.",
        "The issue has been fixed. Please clean up.",
        "Please commit all of my changes so we can make a PR. And push it.",
        "Start implementation of the oven",
        "start implementation",
        "Commands are in the form `/command [args]`: where is that checked?",
        # beginning as clients do that ask for a summary
        "Please create a detailed summary of the conversation so far, for the colleague who takes over.",
        "Here is the conversation so far: what did we bake?",
        f"{SUM_UP} this conversation for the colleague who takes over: write it to docs/handover.md.",
        f"{SUM_UP} the conversation so far and put it into NOTES.md",
        f"{SUM_UP} the RECENT portion of the conversation: what did we bake?",
        f"{TEXT_ONLY} What does this regex match?",
        f"{TEXT_ONLY}\n\nYour task is to create a cake.",
        f"{CHECKPOINT} What does that mean?",
        f"{PROMPT} Put it into PROMPT.md.",
    ],
)
def test_a_persons_words_stay_a_persons(text: str) -> None:
    assert automatic_of(text) == ""


def test_notices_of_all_kinds_of_logs_are_told_as_such(tmp_path: Path) -> None:
    """Each kind of log that tells who wrote a message by the role alone."""
    copilot = {
        "type": "user.message",
        "id": "e1",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {"content": FINISHED},
    }
    claude = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": FINISHED}}
    request = {"request": {"model": "m", "messages": [{"role": "user", "content": FINISHED}]}}
    note = {
        "schema_version": "authorship/3.0.0",
        "prompts": {"k": {"agent_id": {"tool": "cursor"}, "messages": [{"type": "user", "text": FINISHED}]}},
    }
    logs = {
        "copilot-cli": json.dumps(copilot),
        "claude-code": json.dumps(claude),
        "openai-log": json.dumps(request),
        "git-ai": f"a.py\n  k 1-2\n---\n{json.dumps(note)}",
        "specstory": f"_**User**_\n\n{FINISHED}\n\n---\n\n_**Assistant**_\n\nok\n",
    }
    for kind, text in logs.items():
        path = tmp_path / f"{kind}.log"
        path.write_text(text)
        turns = [item for _, item in kinds.read(path, kind) if isinstance(item, UserTurn)]
        assert [turn.automatic for turn in turns] == ["meta"], kind


@pytest.mark.parametrize(
    "text",
    [
        "<a" + "-event" * 1000 + ">" + "x" * 50_000,
        "<a" + "-b" * 20_000,
        "<a-event>" * 10_000,
        "<a-event>x</a-event>" * 10_000 + "why?",
        "/" + "a" * 100_000 + ".",
        "/a " + " " * 100_000 + ".",
        "/a" + " \n" * 50_000 + ".",
        "/a:" + "b:" * 50_000 + "\n.",
        "@workspace /" + "a" * 100_000,
        "[Image: source: x] " * 10_000 + "why?",
        "[read_file for '] Result:" * 100_000 + "<answer>",
        "# " + "\n" * 100_000,
        FIX + "```\nFix it, verify, and then give a concise explanation. @a @b" * 2000,
        "<system-reminder>x</system-reminder>" * 5000 + "why?",
        "# Response annotations:\n" + "<response-annotations>\n" * 5000 + "## My request:\nwhy?",
    ],
)
def test_a_text_is_told_in_one_pass_whatever_it_says(text: str) -> None:
    """Users write it, and while it is told nobody else is served: seconds to minutes before, for some."""
    began = time.process_time()
    automatic_of(text)
    parts(text)
    assert time.process_time() - began < 1
