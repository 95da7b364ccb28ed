"""One agent has one name, whoever tells of it."""

from __future__ import annotations

import pytest

from cursorbench.sessions.agents import agent_of


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("cursor", ("cursor", "cursoride", "Cursor IDE")),  # SpecStory's three writers
        ("cursor-cli", ("Cursor CLI", "cursor-agent")),
        ("claude-code", ("Claude Code", "claude-code", "claude", "claude-cli/2.1.3")),
        ("codex", ("Codex CLI", "codex", "codex_cli_rs/0.46.0")),
        ("copilot-vscode", ("VS Code Copilot IDE", "copilotide", "copilot-vscode", "vscode")),
        ("gemini-cli", ("Gemini CLI", "gemini", "GeminiCLI/v1.2")),
        ("droid", ("Factory Droid CLI", "droid")),
        ("openai/python", ("OpenAI/Python",)),
        ("our-agent-2", ("Our  Agent 2",)),
        ("", ("", " ")),
    ],
)
def test_one_name(name: str, spellings: tuple[str, ...]) -> None:
    """Each spelling was an agent of its own in a report, each version of a client too."""
    assert {agent_of(one) for one in spellings} == {name}
