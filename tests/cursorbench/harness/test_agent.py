"""The agent of real tasks, put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cursorbench.harness.agent import TASK_BUDGET, AgentConfig, begin
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.task_tools import ToolSettings
from cursorbench.harness.workplace import Folder


def test_equal_settings_have_equal_digests_and_others_others() -> None:
    config = AgentConfig()
    assert config.digest() == AgentConfig().digest()
    changed = [
        replace(config, system="Other."),
        replace(config, max_tokens=1),
        replace(config, temperature=0.5),
        replace(config, budget=replace(TASK_BUDGET, turns=3)),
        replace(config, tools=ToolSettings(lint=(("ruff", "check"),))),
        replace(config, summary=SelfSummary(1000)),
    ]
    assert len({one.digest() for one in [config, *changed]}) == 7


def test_it_asks_as_it_is_told(tmp_path: Path) -> None:
    config = AgentConfig(max_tokens=7, temperature=0.5)
    request = begin(config, Folder(tmp_path), "fix it").next_request()
    assert request is not None
    body = request.body("m")
    assert (body["max_tokens"], body["temperature"], body["model"]) == (7, 0.5, "m")
    assert [one["content"] for one in body["messages"]] == [config.system, "fix it"]
    names = [one["function"]["name"] for one in body["tools"]]
    assert names == ["read_file", "edit_file", "search"], "a plain folder runs no commands"
    assert "tool_choice" not in body
