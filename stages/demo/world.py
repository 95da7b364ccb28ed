"""What a person would type around the cycles: `rtrl init --tiny` and `rtrl simulate`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stages import people_days
from stages.target.endpoint import Endpoint

if TYPE_CHECKING:
    from evals.population.simulate import Summary
    from stages.stage import Progress
    from stages.workspace import Workspace


def make_workspace(root: Path, seed: int) -> Workspace:
    """A workspace around the shipped model. One whose making was interrupted is finished."""
    from stages.init import init_tiny

    return init_tiny(root, settings=f"\n[workspace]\nseed = {seed}\n").workspace


def live_a_day(
    workspace: Workspace, endpoint: Endpoint, *, seed: int, users: int, requests: int, progress: Progress
) -> Summary:
    """Let the population of `seed` live its next day with what is served.

    A day that is interrupted is over: its people did do something.

    Args:
        users: 0 for the population's default; `requests` likewise.

    Raises:
        DependencyDownError: (exit 13) the gateway stays away.
        InputMissingError: (exit 5) there is no API key.
    """
    from evals.population.simulate import Traffic, simulate

    place = people_days.place(workspace.root, endpoint.url, None)
    day = people_days.next_day(place.run_dir, "train", seed)
    people_days.lived(place.run_dir, "train", seed, day)
    traffic = Traffic(place.url, place.key, seed=seed, day=day)
    traffic = replace(traffic, users=users or traffic.users, requests=requests or traffic.requests)
    progress.start(f"day {day + 1} of {traffic.users} people", traffic.requests)
    return asyncio.run(simulate(traffic, progress.advance))
