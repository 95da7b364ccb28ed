"""Several collects in one report: other users, logs that grew, logs that are gone, and who was forgotten."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stages.collect.logs.clock import zone_of
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.errors import UsageError
from stages.forget.forget import forget
from stages.forget.since import Since
from stages.init import init_bare
from stages.registry.store import Store
from stages.report.build import Report, build
from stages.report.chosen import choose
from stages.report.load import load
from stages.result import StageResult
from stages.runner import run_stage
from stages.vault import DATABASE_FILE, Vault
from stages.workspace import Workspace
from tests.stages.report.reported import DAY, REQUESTS, write_log

AT = 1_760_000_000


@pytest.fixture
def place(tmp_path: Path) -> tuple[Workspace, Store]:
    workspace = init_bare(tmp_path / "ws")
    return workspace, Store.open(workspace.store_dir)


def took(place: tuple[Workspace, Store], log: Path, user: str, *, distil: bool = True) -> StageResult:
    found = run_stage(*place, CollectStage(source=Source((log,), "openai-log", user, "shop")))
    if distil:
        run_stage(*place, DistillStage())
    return found


def reported(place: tuple[Workspace, Store], *refs: str, everything: bool = False) -> Report:
    return build(*place, *choose(place[1], refs, "auto", everything=everything))


def left(report: Report) -> dict[tuple[str, str], int]:
    return {(row.what, row.reason): row.count for row in report.left_out.rows}


def test_two_users_collected_one_after_the_other(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    for user, session, model in (("ada", "s1", "m1"), ("ben", "s2", "m2")):
        write_log(tmp_path / f"{user}.jsonl", session, model, AT, REQUESTS)
        took(place, tmp_path / f"{user}.jsonl", user)
    alone = reported(place)
    assert (alone.refs, alone.episodes, alone.users) == (("experience@v2",), 3, 1)
    assert left(alone)["not in this report", "of other collects"] == 3
    both = reported(place, everything=True)
    assert (both.refs, both.episodes, both.users) == (("experience@v1", "experience@v2"), 6, 2)
    assert both.ref == "experience@v1, experience@v2"
    assert [one.label for one in both.populations[1].groups] == ["m1", "m2"]
    assert ("not in this report", "of other collects") not in left(both)
    assert {one.state for one in (*both.best, *both.worst)} == {"shown"}
    for one in (*both.best, *both.worst):
        assert one.answer.endswith(one.episode_id.split(":")[1])  # "answer 1 of s2": of its own collect
    named = reported(place, "interactions@v2", "experience@v1")
    assert (named.refs, named.readings) == (both.refs, both.readings)


def test_a_log_that_grew_and_one_that_is_gone(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    """First s1 with 2 requests and s2 with 3; then s2 is deleted, s1 has a third request, s3 comes."""
    logs = tmp_path / "logs"
    logs.mkdir()
    write_log(logs / "s1.jsonl", "s1", "m1", AT, REQUESTS[:2])
    write_log(logs / "s2.jsonl", "s2", "m1", AT + DAY, REQUESTS)
    took(place, logs, "")
    (logs / "s2.jsonl").unlink()
    (logs / "s1.jsonl").unlink()
    write_log(logs / "s1.jsonl", "s1", "m1", AT, REQUESTS)
    write_log(logs / "s3.jsonl", "s3", "m1", AT, REQUESTS[:1])
    found = took(place, logs, "")
    assert found.metrics["vanished"] == {"sessions": 1, "episodes": 3}
    assert any("1 session (3 episodes) of interactions@v1" in line for line in found.warnings)
    assert left(reported(place))["not in this report", "of other collects"] == 3
    whole = reported(place, everything=True)
    assert (whole.episodes, whole.sessions, whole.repeated) == (3 + 3 + 1, 3, 2)
    # the newer row counts: of s1's second request the message after it is known by now
    assert whole.readings["dissatisfied_followup"].n == 2 + 2


def test_what_is_not_distilled_is_said(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1", "m1", AT, REQUESTS)
    write_log(tmp_path / "b.jsonl", "s2", "m1", AT, REQUESTS[:1])
    took(place, tmp_path / "a.jsonl", "ada", distil=False)
    took(place, tmp_path / "b.jsonl", "ben")
    rows = reported(place, everything=True).left_out.rows
    (row,) = (one for one in rows if one.what == "not in this report")
    assert (row.reason, row.count) == ("not distilled yet", 3)
    assert "rtrl distill --input interactions@v1" in row.about


def test_the_same_session_name_of_two_people_is_two_sessions(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    for n, user in enumerate(("ada", "ben")):
        write_log(tmp_path / f"{user}.jsonl", "main", "m1", AT + n, REQUESTS)
        took(place, tmp_path / f"{user}.jsonl", user)
    assert left(reported(place))["not in this report", "of other collects"] == 3
    found = reported(place, everything=True)
    assert (found.episodes, found.repeated) == (6, 0)


def test_who_was_forgotten_since_is_told_as_forgotten(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    for user, session in (("ada", "s1"), ("ben", "s2")):
        write_log(tmp_path / f"{user}.jsonl", session, "m1", AT, REQUESTS)
        took(place, tmp_path / f"{user}.jsonl", user)
    vault = Vault.open(place[0].keys_dir)
    vault.forget("ada")
    vault.close()
    found = reported(place, everything=True)
    assert (found.episodes, found.users) == (3, 1)
    assert left(found)["from the gradient", "forgotten"] == 3
    assert left(found)["from the gradient", "text_only"] == 3
    assert left(found)["from the figures", "forgotten"] == 3
    assert {one.state for one in (*found.best, *found.worst)} <= {"shown", "forgotten"}


def test_what_cannot_be_one_report(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1", "m1", AT, REQUESTS)
    took(place, tmp_path / "a.jsonl", "ada")
    run_stage(*place, DistillStage(), overrides=["distill.spec=completions"])
    with pytest.raises(UsageError, match="other reward specs") as error:
        reported(place, "experience@v1", "experience@v2")
    assert error.value.hint == "rtrl distill --input interactions@v1"
    write_log(tmp_path / "b.jsonl", "s2", "m1", AT + 1, REQUESTS)
    took(place, tmp_path / "b.jsonl", "ben")
    write_log(tmp_path / "c.jsonl", "s3", "m1", AT + 2, REQUESTS)
    took(place, tmp_path / "c.jsonl", "cyd", distil=False)
    run_stage(*place, DistillStage(), overrides=["distill.spec=completions"])
    with pytest.raises(UsageError, match="experience@v1, experience@v3 and experience@v4 have") as error:
        reported(place, *(f"experience@v{version}" for version in (1, 2, 3, 4)))
    assert error.value.hint == "for v in 1 2; do rtrl distill --input interactions@v$v; done"
    with pytest.raises(UsageError, match="--all"):
        reported(place, "experience@v1", everything=True)


def test_who_is_back_after_being_forgotten_has_no_old_episode(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """What is sealed under the new key is readable; what was made before it stays in no figure."""
    for user, session in (("ada", "s1"), ("ben", "s2")):
        write_log(tmp_path / f"{user}.jsonl", session, "m1", AT, REQUESTS)
        took(place, tmp_path / f"{user}.jsonl", user)
    vault = Vault.open(place[0].keys_dir)
    vault.forget("ada")
    vault.ensure(["ada"])
    assert vault.users("ada")
    vault.close()
    found = reported(place, everything=True)
    assert (found.episodes, found.users) == (3, 1)
    assert left(found)["from the figures", "forgotten"] == 3
    chosen = choose(place[1], (), "auto", everything=True)
    before = load(place[1], *chosen, gone=lambda users, made: set())  # forgotten, then collected
    assert (len(before.episodes), before.forgotten) == (6, 0)


@pytest.mark.parametrize("year", [-1, 1])
def test_whether_a_user_was_forgotten_since_no_clock_decides(
    place: tuple[Workspace, Store], tmp_path: Path, year: int
) -> None:
    """`forget` ran after the clock had been set back, or on one that was ahead for a day."""
    write_log(tmp_path / "ada.jsonl", "s1", "m1", AT, REQUESTS)
    took(place, tmp_path / "ada.jsonl", "ada")
    forget(*place, "ada", by="test")
    with closing(sqlite3.connect(place[0].keys_dir / DATABASE_FILE)) as keys, keys:
        keys.execute("UPDATE user_keys SET forgotten = forgotten + ?", (1000 * 365 * DAY * year,))
    write_log(tmp_path / "ben.jsonl", "s2", "m1", AT, REQUESTS)
    took(place, tmp_path / "ben.jsonl", "ben")
    found = reported(place, everything=True)
    assert (found.episodes, found.users, left(found)["from the figures", "forgotten"]) == (3, 1, 3)
    gone = Since(place[1], place[0].keys_dir).lost
    first, second = (place[1].resolve(f"interactions@v{n}").digest for n in (1, 2))
    assert (gone(["ada", "ben"], [first]), gone(["ada"], [first, second])) == ({"ada"}, set())


def test_of_who_was_forgotten_nothing_is_missed(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for session in ("s1", "s2", "s3"):
        write_log(logs / f"{session}.jsonl", session, "m1", AT, REQUESTS)
    took(place, logs, "")
    vault = Vault.open(place[0].keys_dir)
    vault.forget("openai-log:s1")
    vault.ensure(["openai-log:s1"])
    vault.close()
    (logs / "s2.jsonl").unlink()
    found = took(place, logs, "")
    assert found.metrics["vanished"] == {"sessions": 1, "episodes": 3}
    assert left(reported(place))["not in this report", "of other collects"] == 3


def test_a_session_read_again_in_its_right_zone_is_told_once(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    log = tmp_path / ".aider.chat.history.md"
    log.write_text(
        "# aider chat started at 2025-10-09 12:00:00\n\n> Aider v0.50.1  \n\n#### add it  \n\nDone.\n\n"
        "#### and a till  \n\nDone too.\n"
    )
    for n, zone in enumerate((None, "America/Denver", "Europe/Berlin")):
        about = zone_of(zone) if zone else None
        found = run_stage(*place, CollectStage(source=Source((log,), zone=about)))
        run_stage(*place, DistillStage())
        told = [line for line in found.warnings if "read as UTC" in line]
        assert [("aider" in line, "--timezone" in line) for line in told] == ([] if n else [(True, True)])
    whole = reported(place, everything=True)
    assert (whole.episodes, whole.repeated) == (2, 4)
    assert whole.first_at == 1_760_004_000_000  # 12:00 in Berlin is 10:00 UTC
    assert ("not in this report", "of other collects") not in left(reported(place))
