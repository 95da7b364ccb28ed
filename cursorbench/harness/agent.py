"""The agent of real tasks, put together: prompt, tools, budget, self-summary. One way to run it.

    config = AgentConfig()
    with backend.start(environment) as sandbox, Driver(Endpoint(url, key)) as driver:
        episode = run(config, SandboxPlace(sandbox), instruction, driver, Attribution(no_train=True))

What it did to the files is in the sandbox (`sandbox.diff()`). Agents of others: `outside.py`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cursorbench.harness.budget import Budget
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver
from cursorbench.harness.episode import Episode
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.task_tools import Semantic, ToolSettings, task_tools
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.workplace import Workplace

SYSTEM = (
    "You are a coding agent at work in a repository. Do what the user asks by changing its files with "
    "your tools, and see to it that what you changed works. Calls that do not need each other's results "
    "can be made side by side in one message. Ask when the request is unclear. When you are done, say "
    "briefly what you did, without a call."
)
TASK_BUDGET = Budget(turns=100, output_tokens=200_000, total_tokens=20_000_000, wall_s=3600.0, tool_calls=500)


@dataclass(frozen=True)
class AgentConfig:
    """All that decides how an agent works, but for the model and the task.

    Attributes:
        max_tokens: output tokens of one model call at most.
        temperature: of sampling; None leaves it to who serves.
        summary: None for none; the trigger should leave room below the model's context for the results
            of one message's calls, one answer and the summary.
    """

    system: str = SYSTEM
    max_tokens: int = 4096
    temperature: float | None = None
    budget: Budget = TASK_BUDGET
    tools: ToolSettings = field(default_factory=ToolSettings)
    summary: SelfSummary | None = None

    def digest(self, semantic: Semantic | None = None) -> str:
        """Of these settings, the harness's own code, and the index: equal digests, comparable trials."""
        settings = {**asdict(self), "semantic": semantic.name if semantic else ""}
        total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):
            total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        return f"sha256:{total.hexdigest()}"


def begin(
    config: AgentConfig,
    place: Workplace,
    request: str,
    semantic: Semantic | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AgentLoop:
    """An episode that is ready to be driven; `clock` as of `AgentLoop`."""
    tools = task_tools(config.tools, commands=place.runs_commands, semantic=semantic)
    return AgentLoop(
        Toolbox(place, tools),
        config.system,
        request,
        config.budget,
        summary=config.summary,
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        clock=clock,
    )


def run(
    config: AgentConfig,
    place: Workplace,
    request: str,
    driver: Driver,
    attribution: Attribution | None = None,
    semantic: Semantic | None = None,
) -> Episode:
    """Let the agent answer one request. Raises UsageError when the endpoint refuses the key."""
    return driver.run(begin(config, place, request, semantic), attribution)
