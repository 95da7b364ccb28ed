"""`rtrl export`: what stands in the files, that none is left half, that it is on record who has what."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlmodel import select

from stages.errors import InputMissingError, UsageError
from stages.forget.forget import forget
from stages.linestate import Baseline, LineState
from stages.progress import Silent
from stages.records import Sampling
from stages.registry import exports
from stages.registry.models import EventRow
from stages.registry.store import Store
from stages.train.outside.handover import Exported, export_experience
from stages.train.outside.layouts import LAYOUTS
from tests import processes
from tests.stages.train.world import SPEC, Told, TrainWorld


def export(
    world: TrainWorld, to: str = "parquet", *, ref: str = "experience@latest", **options: Any
) -> Exported:
    settings = {"out": None, "parent": "checkpoint@live", "by": "test", "progress": Silent()}
    return export_experience(world.workspace, world.store, ref, to, **(settings | options))


def rows(result: Exported) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(result.folder / "train.parquet").to_pylist()
    return found


def mixed(world: TrainWorld) -> list[Told]:
    """Chains of two turns; one episode without reward, one greedy, one not trainable."""
    told = world.episodes(8, turns=2)
    told[0].reward, told[2].why_not = None, "invalid_span"
    for turn in told[1].turns:
        turn.sampling = Sampling(temperature=0.0)
    told[3].group = told[4].group = "task"
    world.experience(told)
    return told


def test_ours_has_every_sequence_with_exact_tokens_masks_and_spans(world: TrainWorld) -> None:
    told = mixed(world)
    found = {row["episode_id"]: row for row in rows(export(world))}
    assert len(found) == 8
    for episode in told:
        row = found[episode.id]
        last = episode.turns[-1]
        assert row["token_ids"] == [*last.prompt, *last.output.tolist()]
        assert row["id"] == f"{episode.id}/0"
        assert (row["user"], row["key_id"], row["stratum"]) == (episode.user, "k", episode.stratum)
        sampled = np.array(row["sampled"])
        assert [(g["start"], g["end"]) for g in row["generations"]] == [
            (len(turn.prompt), len(turn.prompt) + len(turn.output)) for turn in episode.turns
        ]
        for turn, generation in zip(episode.turns, row["generations"], strict=True):
            where = slice(generation["start"], generation["end"])
            assert row["token_ids"][where] == turn.output.tolist()
            np.testing.assert_array_equal(np.float32(row["logprobs"][where]), np.float32(turn.logprobs))
            assert generation["temperature"] == turn.sampling.temperature
        assert sampled.sum() == sum(len(turn.output) for turn in episode.turns)
        assert not np.array(row["logprobs"])[~sampled].any()
        assert [(s["checkpoint"], s["lag"]) for s in row["spans"]] == [(world.live, 0)] * 2
    why = {name: row["why_not"] for name, row in found.items() if row["why_not"]}
    assert why == {"e0": "reward_unknown", "e1": "greedy", "e2": "invalid_span"}
    for name, row in found.items():
        assert any(row["mask"]) == (name not in why) == row["trainable"]
        assert (row["advantage"] is None) == (name in why)


def test_advantages_are_those_of_our_own_trainer(world: TrainWorld) -> None:
    told = mixed(world)
    by_name = {row["episode_id"]: row for row in rows(export(world))}
    # a group's baseline is the mean of its others: with two members, the other one
    assert by_name["e3"]["baseline"] == told[4].reward
    assert by_name["e4"]["advantage"] == pytest.approx(told[4].reward - told[3].reward)  # type: ignore[operator]
    state = LineState(baselines={SPEC: {"*": Baseline(0.5, 100.0), "a": Baseline(0.75, 16.0)}})
    world.experience(told, state)
    by_name = {row["episode_id"]: row for row in rows(export(world))}
    # (16 x 0.75 + 16 x 0.5) / 32 for the stratum with 16 episodes, the line's mean for a new one
    assert by_name["e6"]["baseline"] == pytest.approx(0.625)
    assert by_name["e7"]["baseline"] == pytest.approx(0.5)
    world.experience(
        told, state, own="sha256:a"
    )  # a signal of the team's own, which those rewards were not of
    assert {row["baseline"] for row in rows(export(world))}.isdisjoint({0.5, 0.625})


def test_trl_and_verl_have_trainable_rows_split_at_the_first_sampled_token(world: TrainWorld) -> None:
    told = {episode.id: episode for episode in mixed(world)}
    trl = rows(export(world, "trl"))
    verl = rows(export(world, "verl"))
    assert [row["episode_id"] for row in trl] == ["e3", "e4", "e5", "e6", "e7"]
    for one, other in zip(trl, verl, strict=True):
        first, last = told[one["episode_id"]].turns
        assert one["prompt_ids"] == first.prompt
        assert one["completion_ids"] == [*last.prompt, *last.output.tolist()][len(first.prompt) :]
        between = len(last.prompt) - len(first.prompt) - len(first.output)
        assert one["env_mask"] == [1] * len(first.output) + [0] * between + [1] * len(last.output)
        assert len(one["logprobs"]) == len(one["completion_ids"])
        assert one["prompt"].startswith("<user>")
        rollout = other["rollout"]
        assert rollout["prompt_ids"] == one["prompt_ids"]
        assert rollout["response_ids"] == one["completion_ids"]
        assert rollout["response_mask"] == one["env_mask"]
        assert rollout["response_logprobs"] == one["logprobs"]
        assert rollout["reward_score"] == told[one["episode_id"]].reward
        assert float(other["reward_model"]["ground_truth"]) == rollout["reward_score"]
        assert other["extra_info"]["advantage"] == one["advantage"]
        assert other["prompt"] == [{"role": "user", "content": one["prompt"]}]
    assert [row["extra_info"]["index"] for row in verl] == [0, 1, 2, 3, 4]
    assert {row["data_source"] for row in verl} == {"rtrl/auto"}


@pytest.mark.parametrize("to", sorted(LAYOUTS))
def test_datasets_loads_the_folder(world: TrainWorld, tmp_path: Path, to: str) -> None:
    datasets = pytest.importorskip("datasets")
    mixed(world)
    result = export(world, to)
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(str(result.folder), split="train", cache_dir=cache)
    assert loaded.num_rows == result.rows
    assert loaded.column_names == LAYOUTS[to].schema.names
    single = datasets.load_dataset(
        "parquet", data_files=str(result.folder / "train.parquet"), split="train", cache_dir=cache
    )
    assert single[0] == rows(result)[0]


def test_manifest_and_modes(world: TrainWorld) -> None:
    mixed(world)
    result = export(world, "trl")
    manifest = json.loads((result.folder / "manifest.json").read_text())
    (file,) = manifest["files"]
    data = (result.folder / file["path"]).read_bytes()
    assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert manifest["parent"]["digest"] == world.live
    assert manifest["experience"]["ref"] == "experience@v1"
    assert manifest["excluded"] == {"reward_unknown": 1, "greedy": 1, "invalid_span": 1}
    assert manifest["rows"] == file["rows"] == 5
    assert manifest["longest_prompt"] == max(len(row["prompt_ids"]) for row in rows(result))
    assert set(manifest["columns"]) == set(LAYOUTS["trl"].schema.names)
    assert "unsealed" in manifest["privacy"]
    assert stat.S_IMODE(result.folder.stat().st_mode) == 0o700
    for path in result.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    columns = pq.ParquetFile(result.folder / "train.parquet").metadata.row_group(0)
    assert {columns.column(i).compression for i in range(columns.num_columns)} == {"ZSTD"}


def test_consumed_episodes_are_left_out_for_the_child(world: TrainWorld) -> None:
    told = world.episodes(6)
    world.experience(told)
    child = world.train().outputs["checkpoint"].digest
    world.promote(child)
    with pytest.raises(InputMissingError, match="consumed 6") as refused:
        export(world, "trl")
    assert "--parent" in str(refused.value.hint)
    world.experience([*told, *world.episodes(3, seed=5, prefix="n")])
    result = export(world, "trl")
    assert {row["episode_id"] for row in rows(result)} == {"n0", "n1", "n2"}
    assert result.survey.excluded == {"consumed": 6}


def test_lag_is_in_spans_and_beyond_the_limit_nothing_is_trainable(world: TrainWorld) -> None:
    old = world.live
    told = world.episodes(3)
    world.promote(world.checkpoint(1, parent=old).digest)
    world.experience(told)
    assert {row["lag"] for row in rows(export(world, "trl"))} == {1}
    strict = world.workspace.with_overrides(["train.max_lag=0"])
    with pytest.raises(InputMissingError, match=r"nothing to export: 3 episodes \(lag 3\)"):
        export_experience(
            strict, world.store, "experience@latest", "trl", out=world.root / "none",
            parent="checkpoint@live", by="t", progress=Silent(), dry_run=True,
        )  # fmt: skip


def test_dry_run_counts_and_writes_nothing(world: TrainWorld) -> None:
    mixed(world)
    result = export(world, "trl", dry_run=True)
    assert (result.rows, result.survey.usable) == (5, 5)
    assert not result.folder.exists()
    assert exports.of_user(world.store, "u3") == []


def test_folders_in_use_or_in_the_workspace_are_refused(world: TrainWorld, tmp_path: Path) -> None:
    mixed(world)
    first = export(world)
    with pytest.raises(UsageError, match="is there already") as caught:
        export(world)
    assert caught.value.code == 2
    assert first.rows == len(rows(first))
    with pytest.raises(UsageError, match="inside the workspace"):
        export(world, out=world.workspace.root / "out")
    (tmp_path / "link").symlink_to(world.workspace.root)
    with pytest.raises(UsageError, match="inside the workspace"):
        export(world, out=tmp_path / "link" / "out")
    disk = tmp_path / "disk"  # where the spool lies; its backups must hold nothing unsealed either
    world.workspace.spool_dir.rename(disk)
    world.workspace.spool_dir.symlink_to(disk)
    with pytest.raises(UsageError, match="inside the workspace"):
        export(world, out=disk / "out")
    with pytest.raises(UsageError, match="no folder"):
        export(world, out=tmp_path / "no" / "where")
    with pytest.raises(UsageError, match="is no layout"):
        export(world, "csv")
    (tmp_path / "empty").mkdir()
    assert export(world, out=tmp_path / "empty").rows == 8
    with pytest.raises(InputMissingError):
        export(world, ref="experience@v9")
    with pytest.raises(UsageError, match="experience@latest is of kind experience"):
        export(world, parent="experience@latest")
    with pytest.raises(InputMissingError, match="no checkpoint@v9") as missing:
        export(world, parent="checkpoint@v9")
    assert "rtrl status" in missing.value.hint  # and not how the first one is made
    with pytest.raises(UsageError, match="is of kind checkpoint"):
        export(world, ref="checkpoint@v1", out=tmp_path / "other")


def test_an_export_that_fails_leaves_nothing_but_its_record(
    world: TrainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(world)
    before = set(world.root.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stages.train.outside.handover.hash_file", full)
    with pytest.raises(Exception, match="disk is full"):
        export(world)
    assert set(world.root.iterdir()) == before
    assert exports.of_user(world.store, "u3") == []


def test_routed_experts_are_not_lost_without_a_word(world: TrainWorld) -> None:
    told = world.episodes(3)
    turn = told[1].turns[0]
    turn.experts = np.zeros((len(turn.prompt) + len(turn.output) - 1, 2, 1), np.uint8)
    world.experience(told)
    result = export(world)
    (_, warning) = result.warnings()
    assert warning.startswith("1 sequences tell which experts")
    assert json.loads((result.folder / "manifest.json").read_text())["routed"] == 1
    assert len(export(world, "trl", ref="experience@v1", out=world.root / "b").warnings()) == 2


def test_interrupted_right_after_the_rename_it_is_on_the_list(
    world: TrainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(world)

    def stop(name: str) -> None:
        if name == "export.rename.after":
            raise KeyboardInterrupt

    monkeypatch.setattr("stages.train.outside.handover.faults.point", stop)
    with pytest.raises(KeyboardInterrupt):
        export(world)
    (found,) = exports.of_user(world.store, "u3")
    assert (found.state, found.there) == ("finished", True)
    assert pq.read_table(Path(found.folder) / "train.parquet").num_rows == 8


def test_what_a_failed_export_could_not_remove_is_on_the_list_until_it_is_gone(
    world: TrainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(world)

    def full(path: Path, durable: bool = False) -> tuple[int, str]:
        raise OSError(28, "the disk is full")

    monkeypatch.setattr("stages.train.outside.handover.hash_file", full)
    with monkeypatch.context() as busy:
        busy.setattr("stages.registry.exports.shutil.rmtree", lambda path, **_: None)
        with pytest.raises(Exception, match="disk is full"):
            export(world)
    (left,) = exports.of_user(world.store, "u3")
    assert (left.state, left.there) == ("begun", True)
    assert [one.id for one in exports.sweep(world.store, by="test")] == [left.id]
    assert not Path(left.partial).exists()
    assert exports.of_user(world.store, "u3") == []


def test_what_no_export_was_written_to_is_not_swept(world: TrainWorld, tmp_path: Path) -> None:
    """In a workspace of somebody else's, `rtrl forget` removed any folder that its registry named."""
    for number, (folder, partial) in enumerate((("out", "precious"), ("", ".."), ("out", ".out.x.partial"))):
        (tmp_path / partial).mkdir(exist_ok=True)
        exports.begin(
            world.store, f"e{number}", by="somebody", experience=("experience@v1", "sha256:ab"), layout="trl",
            folder=tmp_path / folder, partial=tmp_path / partial, users=["u"],
        )  # fmt: skip
    assert exports.sweep(world.store, by="test") == []
    assert (tmp_path / "precious").is_dir()
    assert [one.state for one in exports.of_user(world.store, "u")] == ["begun"] * 3


KILL = """
import sys
from pathlib import Path
from stages.progress import Silent
from stages.train.outside.handover import export_experience
from stages.registry.store import Store
from stages.workspace import Workspace
workspace = Workspace.find(Path(sys.argv[1]))
export_experience(workspace, Store.open(workspace.store_dir), "experience@latest", "trl", out=None,
                  parent="checkpoint@live", by="victim", progress=Silent())
"""


def killed_at(world: TrainWorld, point: str) -> int:
    done = processes.python("-c", KILL, str(world.workspace.root), env={"RTRL_FAULT": point})
    return done.returncode


def test_a_killed_export_is_swept_and_its_folder_never_half(world: TrainWorld) -> None:
    mixed(world)
    assert killed_at(world, "export.batch.after") == -signal.SIGKILL
    (left,) = exports.of_user(world.store, "u3")
    assert (left.state, left.by) == ("begun", "victim")
    assert not Path(left.folder).exists()
    assert Path(left.partial).is_dir()

    assert forget(world.workspace, world.store, "u3", by="test").holdings.exports == []
    assert not Path(left.partial).exists()
    assert export(world, "trl").rows == 4  # one of the five was u3's


def test_a_copy_of_the_workspace_leaves_alone_what_the_original_exports_now(
    world: TrainWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtrl forget` and `rtrl export` in a copy removed the folder under the hands of who wrote it."""
    mixed(world)
    swept: list[exports.Export] = []

    def copied(name: str) -> None:
        if name == "export.data.after":
            shutil.copytree(world.workspace.root, tmp_path / "copy")
            copy = Store.open(tmp_path / "copy" / "store")
            swept.extend(exports.sweep(copy, by="test"))
            (left,) = exports.of_user(copy, "u3")
            assert (left.state, left.there) == ("begun", True)

    monkeypatch.setattr("stages.train.outside.handover.faults.point", copied)
    result = export(world)
    assert (tmp_path / "copy").is_dir()
    assert swept == []
    assert len(rows(result)) == 8


def test_killed_after_the_rename_it_is_whole_and_said_to_be(world: TrainWorld) -> None:
    mixed(world)
    assert killed_at(world, "export.rename.after") == -signal.SIGKILL
    assert exports.sweep(world.store, by="test") == []
    (found,) = exports.of_user(world.store, "u3")
    assert (found.state, found.there) == ("finished", True)
    assert pq.read_table(Path(found.folder) / "train.parquet").num_rows == 5


def test_forgetting_names_the_folders_that_hold_the_users_data(world: TrainWorld) -> None:
    mixed(world)
    result = export(world, "trl")
    (held,) = forget(world.workspace, world.store, "u3", by="test", dry_run=True).holdings.exports
    assert (held.folder, held.layout, held.experience) == (str(result.folder), "trl", "experience@v1")
    assert (held.by, held.state, held.there) == ("test", "finished", True)
    assert forget(world.workspace, world.store, "u2", by="test", dry_run=True).holdings.exports == []
    forget(world.workspace, world.store, "u3", by="test")
    again = export(world, "trl", out=world.root / "again")
    assert "u3" not in {row["user"] for row in rows(again)}
    assert again.survey.excluded["forgotten"] == 1
    with world.store.read() as session:
        told = session.exec(select(EventRow).where(EventRow.entity == "export")).all()
    assert [event.to_state for event in told] == ["begun", "finished", "begun", "finished"]


def test_batches_are_bounded_and_in_order(world: TrainWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    told = world.episodes(23)
    world.experience(told)
    monkeypatch.setattr("stages.train.outside.handover.BATCH_ROWS", 5)
    found = rows(export(world, "verl"))
    assert [row["extra_info"]["episode_id"] for row in found] == [episode.id for episode in told]
    assert [row["extra_info"]["index"] for row in found] == list(range(23))
