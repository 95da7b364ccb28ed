"""One name for each agent, however a log, a note or a request's user agent spells it.

A report tells agents apart by their names. Names are lower case with hyphens; what is in no table is a name
of its own. Sources: SpecStory's providers, Entire's and git-ai's registries, the agents' own user agents.
Not for: what a log's kind is (`kinds.py`).
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"/v?\d\S*$")  # of a user agent: "claude-cli/2.1.3"
_SPELLINGS = {
    "claude-code": "claude claude-cli claudecode",
    "codex": "codex-cli codexcli codex-cli-rs codex-tui codex-exec",
    "copilot-cli": "copilotcli github-copilot-cli",
    "copilot-vscode": "copilotide copilot-chat vscode",
    "cursor": "cursoride cursor-ide",
    "cursor-cli": "cursorcli cursor-agent",
    "droid": "factory-droid-cli factoryai-droid factory-droid droid-cli droidcli",
    "gemini-cli": "gemini geminicli",
    "opencode": "open-code opencode-cli",
    "pi": "pi-coding-agent",
    "qwen-code": "qwen qwencode qwen-cli",
}
_NAMES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}


def agent_of(told: str) -> str:
    """The name of an agent as told; a user agent's without its version. "" for none."""
    name = "-".join(_VERSION.sub("", told.strip()).lower().replace("_", "-").split())
    if name.endswith("copilot-ide"):  # behind the editor's name: VS Code, VSCodium, Insiders
        return "copilot-vscode"
    return _NAMES.get(name, name)
