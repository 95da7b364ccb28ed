"""A person's no to a tool call, or their stop, by what clients send the model in the place of a result.

For logs of requests and telemetry, which hold the words of any client and no field for it. Only the beginning
counts, as a tool's result may quote these words. Sources: published sessions of Claude Code, Codex, Cline and
Gemini CLI, opencode's `permission/index.ts`, `coreToolScheduler.ts` of Gemini CLI and of Qwen Code,
`tool_execution.rs` and `session/mod.rs` of block/goose, `cancelToolCall.ts` of continuedev/continue and its
command line, VS Code's `languageModelToolsService.ts`. Not for: rules and hooks that refuse, where nobody was
asked.
"""

from __future__ import annotations

import re

from cursorbench.sessions import claude_code_tools
from cursorbench.sessions.items import Outcome

_OPENCODE = re.compile(
    r"(?:Error: )?The user rejected permission to use this specific tool call"
    r"(?: with the following feedback: (.*)|\.)",
    re.DOTALL,
)
_CLINE = re.compile(
    r"The user denied this operation"
    r"(?: and provided the following feedback:\s*<feedback>(.*?)</feedback>|\.)",
    re.DOTALL,
)
_CLINE_OF_2026 = re.compile(r'(?:\{"error": ?")?This tool call was rejected by the user and not executed\.')
_CODEX = re.compile(r"(?:exec command |patch )?rejected by user\s*$")
_NO_PROCESS = (
    'CreateProcess { message: "Rejected(\\"rejected by user\\")" }'  # Codex's, of a command since 2026
)
_GEMINI = re.compile(
    r'(?:\{"error": ?")?\[Operation Cancelled\](?: Reason:)? (User (?:did not allow|denied|declined)\b)?'
)
_SAID_NO = re.compile(
    r"The user has declined to run this tool\. DO NOT attempt to call this tool again\."  # goose
    r"|Permission denied by user\s*\Z"  # Continue's, on the command line and in an editor
    # of Gemini CLI and Qwen Code in an editor
    r'|(?:\{"error": ?")?Tool "[^"\n]{1,200}" was canceled by the user\.'
    r"|The user skipped the tool call\.\s*(?:\Z|If the tool call is optional)"
    r"|The user chose to skip the tool call, they want to proceed without running it"  # VS Code
)
_STOPPED = re.compile(
    r"(?:Wall time: [\d.]+ seconds\n)?aborted by user(?: after [\d.]+ ?s)?\W*\Z"
    r"|(?:Error: )?Tool execution (?:aborted|was interrupted)"
    r"|The user cancelled the tool call\.\s*\Z"  # VS Code
    r"|(?:-32603: |Execution failed: )?Interrupted by the user to make a correction\s*\Z"  # goose
)


def refusal(text: str) -> str | None:
    """What the person said when refusing, "" for nothing; None where the text is no refusal."""
    told = text.lstrip()
    outcome, reason = _claude_code(told)
    if outcome == "rejected":
        return reason
    if found := _OPENCODE.match(told) or _CLINE.match(told):
        return (found[1] or "").strip()
    gemini = _GEMINI.match(told)
    said_no = any(one.match(told) for one in (_CODEX, _CLINE_OF_2026, _SAID_NO)) or command_refused(told)
    return "" if said_no or (gemini and gemini[1]) else None


def command_refused(text: str) -> bool:
    """Whether Codex says that a person refused a command, also one that a script ran and ended by."""
    told = text.strip()
    if not told.endswith(_NO_PROCESS):
        return False
    if told.startswith("Script failed\n"):
        told = told.rpartition("\nScript error:\n")[2]
    return told.startswith("exec_command failed")


def stopped(text: str) -> bool:
    """Whether the call ended because somebody stopped the agent; asked where it is no refusal."""
    told = text.lstrip()
    return bool(_STOPPED.match(told) or _GEMINI.match(told)) or _claude_code(told)[0] == "interrupted"


def _claude_code(told: str) -> tuple[Outcome, str]:
    return claude_code_tools.outcome({"is_error": True}, None, told)
