"""What is left out is what the artifacts counted, with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stages import schemas, tables
from stages.report.left_out import Left, Timing, left_out
from stages.stage import Artifact


class OneStore:
    """Knows these interactions, also when their bytes are gone."""

    def __init__(self, *found: Artifact) -> None:
        self.found = found

    def all_of(self, kind: str, *, removed: bool) -> Iterator[Artifact]:
        assert (kind, removed) == ("interactions", True)
        return iter(self.found)


WHY_NOT = pa.chunked_array([["no_tokens", ""], ["no_tokens", *[""] * 7]])


def artifact(path: Path, **meta: Any) -> Artifact:
    return Artifact("interactions", f"sha256:{path.name}", 1, "auto", 0, "", "run", meta, path)


@pytest.fixture
def experience(tmp_path: Path) -> Artifact:
    rows = [{"id": str(n), "episode": "", "reason": reason} for n, reason in enumerate(("a", "b", "b"))]
    path = tmp_path / "e" / schemas.QUARANTINE_FILE
    tables.write(path, pa.Table.from_pylist(rows, schema=schemas.QUARANTINE))
    return artifact(tmp_path / "e", interactions=["sha256:i"])


def counts(rows: tuple[Left, ...]) -> dict[tuple[str, str], int]:
    return {(row.what, row.reason): row.count for row in rows}


def test_of_a_served_line_with_what_waited_matured_and_came_too_late(
    experience: Artifact, tmp_path: Path
) -> None:
    interactions = artifact(
        tmp_path / "i",
        checkpoint="sha256:c",
        counts={"episodes": 10},
        left_behind={"immature": 6, "lag": 4},
        events_left_behind={"no_generation": 3, "immature": 1},
        events_after_horizon=2,
        events_too_late=3,
        quarantined={"spool_checksum": 5},
        lost_events=7,
    )
    other = artifact(tmp_path / "other", checkpoint="sha256:c", counts={"episodes": 99})
    found = left_out(OneStore(other, interactions), [experience], WHY_NOT, 1, 2)  # type: ignore[arg-type]
    assert found.timing == Timing(matured=10, waiting=6, too_late=4, events_too_late=5)
    assert counts(found.rows) == {
        ("from the gradient", "no_tokens"): 2,
        ("from the figures", "forgotten"): 1,
        ("from the figures over time", "no window"): 2,
        ("quarantined by distill", "b"): 2,
        ("quarantined by distill", "a"): 1,
        ("episodes left by collect", "immature"): 6,
        ("episodes left by collect", "lag"): 4,
        ("events left by collect", "no_generation"): 3,
        ("events left by collect", "immature"): 1,
        ("quarantined by collect", "spool_checksum"): 5,
        ("events lost", "spool damaged"): 7,
    }
    shares = {row.reason: row.share for row in found.rows if row.what == "episodes left by collect"}
    assert shares == {"immature": 0.3, "lag": 0.2}


def test_of_logs_files_and_lines_that_make_no_episode(experience: Artifact, tmp_path: Path) -> None:
    said = {
        "episodes": 10,
        "unanswered_requests": 3,
        "automatic:command": 4,
        "edits applied": 5,
        "feedback_of_other_kinds": 6,
    }
    interactions = artifact(
        tmp_path / "i",
        checkpoint="",
        counts={"episodes": 10},
        said=said,
        unknown_files=2,
        persistence={"edits": 8, "reasons": {"no commit took it": 2}},
        quarantined={"no JSON": 1},
    )
    found = left_out(OneStore(interactions), [experience], WHY_NOT, 0, 0)  # type: ignore[arg-type]
    assert found.timing is None
    assert counts(found.rows) == {
        ("from the gradient", "no_tokens"): 2,
        ("quarantined by distill", "b"): 2,
        ("quarantined by distill", "a"): 1,
        ("quarantined by collect", "no JSON"): 1,
        ("edits not followed in git", "no commit took it"): 2,
        ("of the logs", "automatic:command"): 4,
        ("of the logs", "unanswered requests"): 3,
        ("of the logs", "unknown files"): 2,
        ("of the logs", "feedback of other kinds"): 6,
    }
    rows = {row.reason: row for row in found.rows}
    assert "an episode all the same" in rows["automatic:command"].about  # where an agent answered it
    assert (rows["no commit took it"].share, rows["no commit took it"].about) == (0.25, "counts as lost")
    assert rows["unanswered requests"].about == "a request without an answer is no episode"


def test_of_several_collects_what_they_counted_together(experience: Artifact, tmp_path: Path) -> None:
    """Unknown files 2 + 1; the quarantine of the one experience twice; no share of two collects' counts, but
    of edits: 1 and 2 + 1 of 4 + 4 that were followed and 8 that were not."""
    followed = {"edits": 4, "reasons": {"superseded by later changes of the session": 1, "no such file": 2}}
    first = artifact(
        tmp_path / "i",
        checkpoint="",
        counts={"episodes": 10},
        unknown_files=2,
        left_behind={"forgotten": 10},
        persistence=followed,
    )
    followed = {"edits": 4, "made_elsewhere": 8, "reasons": {"no such file": 1}}
    second = artifact(
        tmp_path / "j", checkpoint="", counts={"episodes": 5}, unknown_files=1, persistence=followed
    )
    other = artifact(tmp_path / "e", interactions=["sha256:j"])
    store: Any = OneStore(first, second)
    found = left_out(store, [experience, other], WHY_NOT, 0, 0)
    assert counts(found.rows) == {
        ("from the gradient", "no_tokens"): 2,
        ("quarantined by distill", "b"): 4,
        ("quarantined by distill", "a"): 2,
        ("episodes left by collect", "forgotten"): 10,
        ("of the logs", "unknown files"): 3,
        ("edits not followed in git", "made in folders not called as the repository is"): 8,
        ("edits not followed in git", "no such file"): 3,
        ("edits not followed in git", "superseded by later changes of the session"): 1,
    }
    assert [row.share for row in found.rows if row.what == "edits not followed in git"] == [
        1 / 2,
        3 / 16,
        1 / 16,
    ]
    assert [row.about for row in found.rows][-1].startswith("counts neither way")
    assert next(row for row in found.rows if row.reason == "forgotten").share is None


def test_collects_for_one_checkpoint_count_the_same_use_again(experience: Artifact, tmp_path: Path) -> None:
    """A candidate was rejected between i and j; k came after a deploy: what had waited was ripe by then, and
    what was trained on is what j had, beside the ten that j found so; of three not to be kept j had told two.
    """

    def collect(name: str, version: int, checkpoint: str, waited: int, late: int) -> Artifact:
        made = artifact(
            tmp_path / name,
            checkpoint=checkpoint,
            counts={"episodes": 10 * version},
            left_behind={
                "immature": waited,
                "lag": late,
                "consumed": 10 * (version - 1),
                "no_train": version,
            },
            events_too_late=1,
            events_left_behind={"no_generation": 1, "immature": 7, "consumed": 20 * (version - 1)},
        )
        again = {
            "left_behind": {"consumed": 20, "no_train": 2},
            "events_left_behind": {"consumed": 40, "no_generation": 1},
        }
        made.meta.update({"left_again": again} if name == "k" else {})
        return replace(made, version=version)

    found = [collect("k", 3, "b", 3, 1), collect("j", 2, "a", 2, 4), collect("i", 1, "a", 6, 4)]
    experiences = [replace(experience, meta={"interactions": [f"sha256:{name}"]}) for name in "ijk"]
    store: Any = OneStore(*found)
    told = left_out(store, experiences, WHY_NOT, 0, 0)
    assert told.timing == Timing(matured=10, waiting=3, too_late=5, events_too_late=2)
    assert counts(told.rows) == {
        ("from the gradient", "no_tokens"): 2,
        ("quarantined by distill", "b"): 4,
        ("quarantined by distill", "a"): 2,
        ("episodes left by collect", "immature"): 3,
        ("episodes left by collect", "lag"): 5,
        ("episodes left by collect", "consumed"): 10,
        ("episodes left by collect", "no_train"): 3,
        ("events left by collect", "no_generation"): 1,
        ("events left by collect", "immature"): 7,
        ("events left by collect", "consumed"): 20,
    }


def test_what_collects_of_older_versions_found_trained_on_is_of_the_earlier_ones(
    experience: Artifact, tmp_path: Path
) -> None:
    found = [
        artifact(
            tmp_path / name, checkpoint=name, counts={"episodes": 5}, left_behind={"consumed": n, "lag": 1}
        )
        for name, n in (("k", 7), ("j", 2))
    ]
    experiences = [replace(experience, meta={"interactions": [f"sha256:{name}"]}) for name in "jk"]
    told = counts(left_out(OneStore(*found), experiences, WHY_NOT, 0, 0).rows)  # type: ignore[arg-type]
    assert told["episodes left by collect", "consumed"] == 2
    assert told["episodes left by collect", "lag"] == 2


def test_what_is_in_the_same_logs_is_counted_once_however_often_they_are_collected(
    experience: Artifact, tmp_path: Path
) -> None:
    """Each week the same folder, which has grown; and another user's. Three collects told of 2 + 3 + 4."""

    def collect(name: str, user: str, commands: int) -> Artifact:
        source = {"paths": ["/logs"], "kind": "", "user": user, "repository": "", "digest": f"sha256:{name}"}
        said = {"automatic:command": commands}
        return artifact(
            tmp_path / name, checkpoint="", counts={"episodes": 10}, said=said, source=source, unknown_files=1
        )

    found = [collect("k", "ada", 4), collect("j", "ada", 3), collect("i", "ada", 2), collect("h", "ben", 7)]
    experiences = [replace(experience, meta={"interactions": [f"sha256:{name}"]}) for name in "hijk"]
    told = left_out(OneStore(*found), experiences, WHY_NOT, 0, 0)  # type: ignore[arg-type]
    assert counts(told.rows) == {
        ("from the gradient", "no_tokens"): 2,
        ("quarantined by distill", "b"): 4,
        ("quarantined by distill", "a"): 2,
        ("of the logs", "automatic:command"): 11,
        ("of the logs", "unknown files"): 2,
    }
