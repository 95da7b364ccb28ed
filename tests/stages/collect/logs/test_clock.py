"""Times without a zone, as Aider's: named by the user, told by the repository, or UTC; east and west."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cursorbench.history.repository import Repository
from cursorbench.sessions.items import Place, UserTurn
from stages.collect.logs.clock import NONE, Clock, clock_of, zone_of
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.errors import UsageError
from stages.init import init_bare
from stages.registry.store import Store
from stages.runner import run_stage
from tests.cursorbench.history.gits import DAY, HOUR, T0, Git

KOLKATA, DENVER = 19_800_000, -25_200_000  # ms east of UTC in November
OLD, NEW = "def first():\n    return 'first'\n", "def second():\n    return 'second value'\n"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_zone_by_its_name_with_its_summer_time() -> None:
    clock = Clock(zone_of("Europe/Berlin"))
    assert clock.utc(ms("2024-08-05 12:00:00Z")) == ms("2024-08-05 10:00:00Z")
    assert clock.utc(ms("2024-12-05 12:00:00Z")) == ms("2024-12-05 11:00:00Z")
    assert clock.used == {"--timezone Europe/Berlin": 2}
    with pytest.raises(UsageError, match="no time zone 'Mars'") as error:
        zone_of("Mars")
    assert "Europe/Berlin" in error.value.hint
    for name in ("", "../etc/passwd", "/etc/localtime"):
        with pytest.raises(UsageError):
            zone_of(name)


def test_the_nearest_commit_that_the_log_names_tells_before_all_others() -> None:
    others = [(n * HOUR, 0) for n in range(100)]
    clock = Clock(None, [(10 * HOUR, KOLKATA), (90 * HOUR, DENVER)], others)
    assert clock.utc(20 * HOUR) == 20 * HOUR - KOLKATA
    assert clock.utc(80 * HOUR) == 80 * HOUR - DENVER
    assert clock.used == {
        "+05:30 by commits that the log names": 1, "-07:00 by commits that the log names": 1,
    }  # fmt: skip


def test_other_commits_tell_where_they_agree() -> None:
    nine = [(n * HOUR, DENVER) for n in range(9)]
    assert Clock(None, (), [*nine, (0, 0)]).utc(0) == -DENVER
    split = Clock(None, (), [*nine, (0, 0), (1, 0)])
    assert (split.utc(0), split.used) == (0, {NONE: 1})
    far = Clock(None, (), nine)
    assert (far.utc(60 * DAY), far.used) == (60 * DAY, {NONE: 1})  # they may have moved since


def test_only_times_of_logs_that_tell_no_zone_are_changed() -> None:
    clock = Clock(ZoneInfo("Asia/Kolkata"))
    turn = UserTurn(session="s", place=Place("f"), at=KOLKATA, text="x")
    assert clock.item("aider", turn).at == 0
    assert clock.item("claude-code", turn).at == KOLKATA
    assert clock.item("aider", UserTurn(session="s", place=Place("f"), text="x")).at is None


@pytest.fixture
def world(tmp_path: Path) -> dict[str, Any]:
    """Aider at 12:00 of its user's clock, half a minute before the commit, a file by content alone."""
    git = Git(tmp_path / "shop")
    git.commit(-DAY, {"shop.py": OLD})
    workspace = init_bare(tmp_path / "ws")
    return {
        "git": git,
        "log": tmp_path / ".aider.chat.history.md",
        "place": (workspace, Store.open(workspace.store_dir)),
    }


def collected(world: dict[str, Any], offset: int, **about: Any) -> dict[str, Any]:
    """What became of the edit of somebody so far east of UTC."""
    git: Git = world["git"]
    git.commit(30_000, {"shop.py": OLD + NEW})
    git.commit(9 * DAY, {"other.py": "x = 1"})
    started = datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(milliseconds=offset)
    world["log"].write_text(
        f"# aider chat started at {started:%Y-%m-%d %H:%M:%S}\n\n> Aider v0.50.1  \n\n#### add it  \n\n"
        f"Sure.\n\nshop.py\n```python\n<<<<<<< SEARCH\n{OLD}=======\n{OLD}{NEW}>>>>>>> REPLACE\n```\n\n"
        "> Applied edit to shop.py  \n"
    )
    source = Source((world["log"],), "aider", repo=git.folder, **about)
    found: dict[str, Any] = run_stage(*world["place"], CollectStage(source=source)).metrics["persistence"]
    return found


@pytest.mark.parametrize(("offset", "zone"), [(KOLKATA, "+0530"), (DENVER, "-0700")])
def test_the_commit_of_a_session_elsewhere_is_found(world: dict[str, Any], offset: int, zone: str) -> None:
    world["git"].zone = zone
    world["git"].commit(-HOUR, {"more.py": "y = 1"})
    for n in range(12):
        world["git"].commit(-HOUR + n, {"more.py": f"y = {n}"})
    found = collected(world, offset)
    assert found["recognised_by"] == {"content": 1}
    assert found["kept"]["24h"]["rate"] == 1.0
    assert found["zones"] == {f"{zone[:3]}:{zone[3:]} by commits of the weeks around": 1}


def test_a_named_zone_outranks_the_repository_and_is_repeated(world: dict[str, Any]) -> None:
    found = collected(world, KOLKATA, zone=zone_of("Asia/Kolkata"))
    assert (found["recognised_by"], found["zones"]) == ({"content": 1}, {"--timezone Asia/Kolkata": 1})
    (run,) = (one.run_id for one in world["place"][1].all_of("interactions"))
    again = run_stage(*world["place"], CollectStage(), from_run=run)
    assert again.metrics["persistence"] == found


def test_what_a_commit_that_the_log_names_tells(tmp_path: Path) -> None:
    git = Git(tmp_path / "r")
    git.commit(0, {"a.py": "a"})
    git.zone = "+0530"
    named = git.commit(HOUR, {"a.py": "b"})
    with Repository(git.folder) as repository:
        clock = clock_of(repository, "HEAD", [(T0 + KOLKATA, named[:7]), (T0, ""), (T0, "ffffff0")])
    assert clock.utc(T0 + KOLKATA) == T0
    assert clock.used == {"+05:30 by commits that the log names": 1}
