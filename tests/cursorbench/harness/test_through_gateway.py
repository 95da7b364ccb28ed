"""The harness against the real gateway with its stub engine: one episode is one episode there too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from cursorbench.harness.budget import Budget, StopReason
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.episode import Episode
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.summary import SelfSummary
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from stages.collect.plan import Rules, plan
from tests.stages.collect.test_plan import reasons, scanned
from tests.stages.gateway.rig import Rig, running

CALL = 'stub:call read_file {"path": "a.py"}'


def work(rig: Rig, folder: Path, attribution: Attribution, budget: Budget) -> Episode:
    """Reads until the context is full, sums up, and ends; the stub does what the last user message says."""
    (folder / "a.py").write_text("x = 1\n" * 40)
    policy = SelfSummary(1900, ask="stub:say It says x = 1.", restart="{summary}\nstub:say All done.")
    toolbox = Toolbox(Folder(folder), SMALL_TOOLS)
    loop = AgentLoop(toolbox, "Read.", CALL, budget, summary=policy, max_tokens=200)
    with Driver(Endpoint(f"{rig.url}/v1", rig.key)) as driver:
        return driver.run(loop, attribution)


@pytest.mark.parametrize("no_train", [False, True])
async def test_a_self_summarised_episode_is_one_episode_with_all_its_generations(
    tmp_path: Path, no_train: bool
) -> None:
    (tmp_path / "work").mkdir()
    async with running(tmp_path / "gateway") as rig:
        who = Attribution("ada", no_train=no_train)
        episode = await asyncio.to_thread(work, rig, tmp_path / "work", who, Budget(turns=9))
        recorded = rig.generations()
    assert episode.stop is StopReason.ANSWERED
    assert [turn.summary for turn in episode.turns] == [False] * 3 + [True, False]
    assert episode.final_text == "All done."
    # every generation of the chain is linked, and nothing else is
    assert tuple(one.id for one in recorded) == episode.generations
    assert len({(one.session, one.episode) for one in recorded}) == 1
    assert [one.ordinal for one in recorded] == [0, 1, 2, 3, 4]
    assert {one.no_train for one in recorded} == {no_train}
    # what was counted here is what was sampled there
    assert [turn.usage.prompt for turn in episode.turns] == [one.prompt_tokens for one in recorded]
    assert episode.output_tokens == sum(one.output_tokens for one in recorded)
    assert [len(one.tool_calls) for one in recorded] == [1, 1, 1, 0, 0]
    # and collect takes the chain whole, or, where its user said so, leaves it whole
    found = scanned(recorded, [])
    rules = Rules("live", 1, 0, {"sha256:aaa": 0}, frozenset())
    decided = plan(found, rules, recorded[-1].at + 1, np.zeros(len(recorded), dtype=np.bool_))
    assert reasons(found, decided) == {recorded[0].episode: "no_train" if no_train else "taken"}
    assert len(decided.taken) == (0 if no_train else 1)


async def test_two_episodes_are_two(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    async with running(tmp_path / "gateway") as rig:
        for _ in range(2):
            await asyncio.to_thread(work, rig, tmp_path / "work", Attribution(), Budget(turns=2))
        recorded = rig.generations()
    assert len({one.episode for one in recorded}) == 2
    assert [one.ordinal for one in recorded] == [0, 1, 0, 1]
