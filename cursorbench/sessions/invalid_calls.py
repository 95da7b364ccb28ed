"""What each agent's own words say of a call that did not parse, named no tool, or failed its schema.

One small table, by agent. A rule looks at the beginning of the text that the agent wrote in the place of a
result, of calls that ended in an error; never at what a tool itself gave. Sources: Claude Code's transcripts
as published ("No such tool available", "InputValidationError"), openai/codex `core/src/tools` ("unsupported
call", "failed to parse function arguments"), opencode's `tool/tool.ts` and `tool/invalid.ts`,
github/copilot-cli issue 3043, badlogic/pi-mono `agent-loop.ts` and `validation.ts`. Not for: checking calls
against a schema (`definitions.py`).
"""

from __future__ import annotations

import re
from typing import Literal

CallFault = Literal["", "unparsable", "unknown_tool", "schema"]
_Rules = tuple[tuple[re.Pattern[str], CallFault], ...]

_LOOKED_AT = 2000  # characters
_FIELDS = r"missing field|unknown field|unknown variant|invalid (?:type|value|length)|duplicate field"
_CLAUDE: _Rules = (
    (re.compile(r"\s*(?:<tool_use_error>)?\s*(?:Error: )?No such tool available: "), "unknown_tool"),
    (
        re.compile(r"\s*(?:<tool_use_error>)?\s*InputValidationError: [^\n]*could not be parsed as JSON"),
        "unparsable",
    ),
    (re.compile(r"\s*(?:<tool_use_error>)?\s*InputValidationError: "), "schema"),
)
_CODEX: _Rules = (
    (re.compile(r"unsupported (?:custom tool )?call: "), "unknown_tool"),
    (re.compile(rf"failed to parse function arguments: .*?(?:{_FIELDS})", re.DOTALL), "schema"),
    (re.compile(r"failed to parse function arguments: "), "unparsable"),
)
_COPILOT: _Rules = (
    (re.compile(r"Tool '[^'\n]{1,200}' does not exist\."), "unknown_tool"),
    (
        re.compile(r'Multiple validation errors:\s|"[\w.]{1,100}": (?:Required\b|Expected \w+, received \w)'),
        "schema",
    ),
)
_OPENCODE: _Rules = (
    (re.compile(r"Model tried to call unavailable tool '"), "unknown_tool"),  # Kilo's, which is made of it
    (re.compile(r"(?:Error: )?The \S{1,200} tool was called with invalid arguments: "), "schema"),
)
_GEMINI: _Rules = (
    (re.compile(r'Tool "[^"\n]{1,200}" not found(?: in registry)?\.'), "unknown_tool"),
    (re.compile(r"params(?:/[\w/]{1,200})? must |Invalid parameters"), "schema"),
)
_QWEN: _Rules = (  # it is made of Gemini CLI; the last are of checks that its tools make themselves
    *_GEMINI,
    (re.compile(r'Parameter "\w{1,100}" must |Question \d+(?:, Option \d+)?: "\w{1,100}" must '), "schema"),
    (re.compile(r"Timeout (?:cannot exceed|must be) "), "schema"),
)
_PI: _Rules = (
    (re.compile(r"Tool \S{1,200} not found\Z"), "unknown_tool"),
    (re.compile(r'Validation failed for tool "[^"\n]{1,200}":\n'), "schema"),
)
# OpenCode answers a call that it cannot route itself, by a tool of this name; its result is no error then.
_STAND_IN = "invalid"
_STAND_IN_SAYS = "The arguments provided to the tool are invalid: "
_OPENCODE_STAND_IN: _Rules = (
    (re.compile(r"Model tried to call unavailable tool "), "unknown_tool"),
    (re.compile(r"Invalid input for tool \S{1,200}: JSON parsing failed"), "unparsable"),
    (re.compile(r""), "schema"),
)
# (kind of log, agent): the rules. "" stands for whatever agent the kind is of.
_RULES: dict[tuple[str, str], _Rules] = {
    ("claude-code", "claude-code"): _CLAUDE,
    ("specstory", "claude-code"): _CLAUDE,
    ("codex", "codex"): _CODEX,
    ("copilot-cli", "copilot-cli"): _COPILOT,
    ("opencode", "opencode"): _OPENCODE,
    ("gemini-cli", "gemini-cli"): _GEMINI,
    ("qwen-code", "qwen-code"): _QWEN,
    ("pi", "pi"): _PI,
    ("entire", "claude-code"): _CLAUDE,  # Entire's branch holds its agents' own logs
    ("entire", "codex"): _CODEX,
    ("entire", "copilot-cli"): _COPILOT,
    ("entire", "opencode"): _OPENCODE,
    ("aider", "aider"): (),  # says so in place of a call: `ToolUse.invalid`
}


def tells(kind: str, agent: str) -> bool:
    """Whether logs of this kind say of every call of this agent that it was none."""
    return (kind, agent) in _RULES


def fault_of(kind: str, agent: str, tool: str, outcome: str, text: str) -> CallFault:
    """What a call's end says that was wrong with the call itself; "" for nothing.

    Args:
        agent: lower case, with hyphens for blanks.
        tool: name of the tool that was called.
        outcome: `items.Outcome`.
        text: what stands in the log as the result.
    """
    rules = _RULES.get((kind, agent), ())
    told = text[:_LOOKED_AT]
    if rules is _OPENCODE and tool == _STAND_IN and told.startswith(_STAND_IN_SAYS):
        told, rules = told.removeprefix(_STAND_IN_SAYS), _OPENCODE_STAND_IN
    elif outcome != "error":
        return ""
    return next((fault for begins, fault in rules if begins.match(told)), "")
