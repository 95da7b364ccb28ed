from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from pathlib import Path

import pytest

from cursorbench import votes
from stages import locks
from stages.distill.config import JudgeConfig
from stages.errors import UsageError
from stages.progress import Silent
from stages.registry import gc, leftovers, pins
from stages.registry.runs import begin_run
from stages.registry.store import Store
from stages.registry.verify import verify
from stages.runner import run_stage
from stages.stage import Artifact, Output, RunContext
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint


def reasons(store: Store, keep_days: float = 0.0) -> dict[str, str]:
    plan = gc.plan(store, keep_days)
    kinds = ("interactions", "experience", "checkpoint", "line_state", "report")
    refs = {one.digest: one.ref for kind in kinds for one in store.all_of(kind)}
    with store.read() as session:
        from stages.registry.models import ArtifactRow

        return {refs[session.get_one(ArtifactRow, key).digest or ""]: why for key, why in plan.keep.items()}


def publish(store: Store, folder: Path, kind: str, text: str, **meta: object) -> Artifact:
    folder.mkdir(exist_ok=True)
    (folder / "f").write_text(text)
    return store.publish_external({"x": (Output(kind, meta), folder)}, line="auto")["x"]  # type: ignore[arg-type]


def test_a_plan_changes_nothing_and_young_artifacts_stay(workspace: Workspace, store: Store) -> None:
    for text in ("a", "b"):
        run_stage(workspace, store, Toy(text))
    assert gc.plan(store, 1.0).remove == []
    planned = {f"{row.kind}@v{row.version}" for row in gc.plan(store, 0.0).remove}
    assert planned == {"report@v1", "interactions@v1"}
    assert store.resolve("report@v1").path.is_dir()


def test_in_a_layer_of_an_image_where_no_folder_is_renamed_it_goes_where_it_lies(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """overlayfs, of a workspace that `rtrl init` made while the image was built: it was exit 13, for good."""
    for text in ("a", "b"):
        run_stage(workspace, store, Toy(text))
    old, new = store.resolve("report@v1").path, store.resolve("report@v2").path
    rename = Path.rename

    def overlay(path: Path, target: Path) -> Path:
        if path.is_dir():
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overlay)
    gc.collect(store, 0.0, by="me")
    assert (old.exists(), new.exists()) == (False, True)
    assert verify(store, "full", Silent()).problems == []


def test_what_an_older_registry_still_has_and_a_later_gc_removed_goes_again(
    workspace: Workspace, store: Store
) -> None:
    """docs/registry.md, Restoring: verify names it as missing; gc by hand takes it off the registry."""
    for text in ("a", "b"):
        run_stage(workspace, store, Toy(text))
    shutil.rmtree(store.resolve("report@v1").path)
    (problem,) = verify(store, "present", Silent()).problems
    assert problem.endswith("is missing")
    gc.collect(store, 0.0, by="me")
    assert verify(store, "full", Silent()).problems == []


def test_live_anchor_and_the_last_three_deployments_stay_whole(store: Store, tmp_path: Path) -> None:
    """Eight checkpoints deployed in turn, the anchor on the first: 1, 6, 7, 8 and their line states stay."""
    parent = None
    for n in range(1, 9):
        made = checkpoint(store, tmp_path / "c", str(n), parent)
        parent = made.digest
        if n == 1:
            store.move_alias("auto", "anchor", parent, reason="init")
        one = store.deployments.create("auto", parent, by="me", reason="x")
        store.deployments.transition(one.id, "staged", "verifying")
        store.move_alias("auto", "live", parent, reason="x", deployment_id=one.id)
    gc.collect(store, 0.0, by="me")
    assert [one.version for one in store.all_of("checkpoint")] == [8, 7, 6, 1]
    assert [one.version for one in store.all_of("line_state")] == [8, 7, 6, 1]
    for one in store.all_of("checkpoint"):
        assert store.line_state_of(one.digest).path.is_dir()
    assert len(store.ancestors(parent or "")) == 7


def test_what_may_have_sampled_what_is_trained_on_stays(store: Store, tmp_path: Path) -> None:
    """A chain of eight, each live in turn, of which the line reads what up to five before sampled. A ninth,
    rolled back, is as near as the fifth; a tenth beside it was never served."""
    parent, chain = None, []
    for n in range(1, 9):
        chain.append(checkpoint(store, tmp_path / "c", str(n), parent))
        if n == 6:
            aside = checkpoint(store, tmp_path / "c", "rolled back", parent)
            never = checkpoint(store, tmp_path / "c", "never", parent)
        for one in [aside, chain[-1]] if n == 6 else chain[-1:]:
            made = store.deployments.create("auto", one.digest, by="me", reason="x")
            store.deployments.transition(made.id, "staged", "verifying")
            store.move_alias("auto", "live", one.digest, reason="x", deployment_id=made.id)
        parent = chain[-1].digest
    publish(store, tmp_path / "a", "interactions", "i", checkpoint=chain[-1].digest, max_lag=5)
    publish(store, tmp_path / "a", "interactions", "logs", checkpoint="")
    gc.collect(store, 0.0, by="me")
    there = [one.ref for one in chain if store.is_committed(one.digest)]
    assert there == [one.ref for one in chain[2:]]
    assert store.is_committed(aside.digest)
    assert not store.is_committed(never.digest)


def test_what_a_rollback_goes_back_to_and_what_is_not_done_with_stay(store: Store, tmp_path: Path) -> None:
    """Of four deployments the first is staged still; the last one's checkpoint took the place of another."""
    made = [checkpoint(store, tmp_path / "c", str(n)) for n in range(7)]
    staged, before, *others, live = made[:5]
    store.deployments.create("auto", staged.digest, by="me", reason="x")
    for one in others:
        failed = store.deployments.create("auto", one.digest, by="me", reason="x")
        store.deployments.transition(failed.id, "staged", "failed")
    last = store.deployments.create("auto", live.digest, by="me", reason="x", previous=before.digest)
    store.deployments.transition(last.id, "staged", "verifying")
    store.move_alias("auto", "live", live.digest, reason="x", deployment_id=last.id)
    why = reasons(store)
    assert why[before.ref] == f"of {last.id}"
    assert "(staged)" in why[staged.ref]
    assert made[5].ref not in why


def test_checkpoints_to_go_back_to_stay_whatever_failed_since(store: Store, tmp_path: Path) -> None:
    """Five failed after the last that went live: a rollback, and another one, go to those before it."""
    made = [checkpoint(store, tmp_path / "c", str(n)) for n in range(10)]
    for before, one in itertools.pairwise(made[:5]):
        live = store.deployments.create("auto", one.digest, by="me", reason="x", previous=before.digest)
        store.deployments.transition(live.id, "staged", "verifying")
        store.move_alias("auto", "live", one.digest, reason="x", deployment_id=live.id)
    for one in made[5:]:
        failed = store.deployments.create("auto", one.digest, by="me", reason="x", previous=made[4].digest)
        store.deployments.transition(failed.id, "staged", "failed")
    why = reasons(store)
    assert [one.version for one in made if one.ref in why] == [2, 3, 4, 5, 8, 9, 10]


def test_data_of_the_live_checkpoint_pins_bases_and_inputs_of_running_runs_stay(
    store: Store, tmp_path: Path
) -> None:
    old = publish(store, tmp_path / "a", "interactions", "old")
    pinned = publish(store, tmp_path / "a", "interactions", "pinned")
    busy = publish(store, tmp_path / "a", "interactions", "busy")
    base = publish(store, tmp_path / "a", "report", "base")
    live = checkpoint(store, tmp_path / "c", "live")
    store.move_alias("auto", "live", live.digest, reason="init")
    fresh = publish(store, tmp_path / "a", "interactions", "fresh")
    experience = publish(store, tmp_path / "a", "experience", "e", interactions=[fresh.digest])
    newest = publish(store, tmp_path / "a", "interactions", "newest")
    (tmp_path / "a" / "f").write_text("delta")
    delta = store.publish_external(
        {"x": (Output("report", {}, base=base.digest), tmp_path / "a")}, line="auto"
    )["x"]
    pins.pin(store, pinned.digest, by="me", reason="paper")
    with locks.hold(store.run_lock_path("r"), what="run r", run="r"):
        begin_run(store, "r", stage="distill", line="auto", inputs={"i": busy}, config={}, extra={}, seed=0)
        why = reasons(store)
        gc.collect(store, 0.0, by="me")
    assert why[pinned.ref] == "pinned by me: paper"
    assert why[busy.ref] == "input of a running run"
    assert why[fresh.ref] == why[newest.ref] == why[experience.ref] == "data of the live checkpoint"
    assert why[delta.ref] == "the newest of its kind"
    assert why[base.ref] == f"base of {delta.ref}"
    assert old.ref not in why
    assert not old.path.exists()
    assert store.artifact(old.digest) is None
    assert pins.unpin(store, pinned.digest, by="me")
    assert not pins.unpin(store, pinned.digest, by="me")
    gc.collect(store, 0.0, by="me")
    assert store.artifact(pinned.digest) is None
    assert store.artifact(fresh.digest) == fresh


def test_what_was_collected_from_logs_stays_until_an_age_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of the first collect left the disk, and the weekly gc took the only copy with it."""
    folder = tmp_path / "a"
    monkeypatch.setattr("stages.registry.publish.now", lambda: "2001-01-01T00:00:00.000000Z")
    ada = publish(store, folder, "interactions", "ada", checkpoint="")
    before = publish(store, folder, "experience", "before", checkpoint="", interactions=[ada.digest])
    again = publish(store, folder, "experience", "again", checkpoint="", interactions=[ada.digest])
    monkeypatch.undo()
    ben = publish(store, folder, "interactions", "ben", checkpoint="")
    both = publish(store, folder, "experience", "both", checkpoint="", interactions=[ben.digest])
    served = publish(store, folder, "interactions", "served", checkpoint="sha256:" + "0" * 64)
    publish(store, folder, "interactions", "newest", checkpoint="sha256:" + "0" * 64)
    why = reasons(store)
    assert {one.ref for one in (before, served)}.isdisjoint(why)
    assert {why[one.ref] for one in (ada, again, ben)} == {gc.COLLECTED}
    gc.collect(store, 0.0, by="cron")
    assert {one.ref for one in (ada, again, ben, both) if one.path.is_dir()} == {
        ada.ref, again.ref, ben.ref, both.ref,
    }  # fmt: skip
    gc.collect(store, 0.0, 30.0, by="me")
    assert [one.path.is_dir() for one in (ada, again, ben, both)] == [False, False, True, True]
    gc.collect(store, 0.0, 0.0, by="me")
    assert [one.path.is_dir() for one in (ben, both)] == [True, True], "the newest experience, and its data"


def test_an_experience_that_stays_can_be_trained_on(store: Store, tmp_path: Path) -> None:
    """Its line state went, and `rtrl train` on what was kept said that it was removed (5)."""
    live = checkpoint(store, tmp_path / "c", "live")
    store.move_alias("auto", "live", live.digest, reason="init")
    made = []
    for text in ("one", "two"):
        folders = {kind: tmp_path / kind for kind in ("experience", "line_state")}
        for kind, folder in folders.items():
            folder.mkdir(exist_ok=True)
            (folder / "f").write_text(f"{kind} {text}")
        outputs = {
            "experience": (Output("experience", {"checkpoint": live.digest}), folders["experience"]),
            "line_state": (Output("line_state", {"checkpoint": live.digest}), folders["line_state"]),
        }
        made.append(store.publish_external(outputs, line="auto"))
    assert reasons(store)[made[0]["line_state"].ref] == "line state of experience@v1"
    gc.collect(store, 0.0, by="me")
    for one in made:
        assert {each.ref for each in store.outputs_of(one["experience"].run_id) if each.path.is_dir()} == {
            one["experience"].ref,
            one["line_state"].ref,
        }


def test_data_of_the_live_checkpoint_stays_whatever_the_clock_said(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = publish(store, tmp_path / "a", "interactions", "old")
    live = checkpoint(store, tmp_path / "c", "live")
    store.move_alias("auto", "live", live.digest, reason="init")
    monkeypatch.setattr("stages.registry.publish.now", lambda: "2001-01-01T00:00:00.000000Z")
    fresh = publish(store, tmp_path / "a", "interactions", "fresh")
    publish(store, tmp_path / "a", "interactions", "newest")
    why = reasons(store)
    assert (why.get(old.ref), why.get(fresh.ref)) == (None, "data of the live checkpoint")


def test_of_what_each_collect_takes_once_more_the_newest_stays(store: Store, tmp_path: Path) -> None:
    """While nothing is promoted all that came since live is in each of them, and all of them were kept."""
    live = checkpoint(store, tmp_path / "c", "live")
    store.move_alias("auto", "live", live.digest, reason="init")

    def collected(text: str, last: int, spec: str = "s", now: int = 0, **meta: object) -> list[str]:
        window = {"first_seq": 1, "resume_seq": 3, "last_seq": last, "now": now or last, "damaged": {}}
        window |= {key: meta.pop(key) for key in ("first_seq", "damaged") if key in meta}
        about = {"checkpoint": live.digest, "arm": "live", "quarantined": {}, **meta, "window": window}
        made = publish(store, tmp_path / "i", "interactions", text, **about)
        given = publish(store, tmp_path / "e", "experience", text, interactions=[made.digest], spec=spec)
        return [made.ref, given.ref]

    goes = [*collected("a", 10), *collected("b", 20, quarantined={"lengths": 1})]
    stays = [
        *collected("another spec", 22, spec="t"),
        *collected("another arm", 23, arm="canary"),
        *collected("damage", 24, damaged={"1": 5}),
        *collected("lost", 25, quarantined={"spool_checksum": 1}),
        *collected("clock set back", 26, now=90),
        *collected("newest", 30),
        *collected("spool begun anew", 99, first_seq=40),
    ]
    # "newest" is of no instant as late as that of "clock set back", so it holds none of it for sure
    why = reasons(store)
    assert ([why.get(ref) for ref in goes], None in [why.get(ref) for ref in stays]) == ([None] * 4, False)
    removed = [f"{row.kind}@v{row.version}" for row in gc.plan(store, 0.0).remove]
    assert [ref for ref in removed if ref in goes] == goes, "in the order in which they were made"


def test_removed_content_can_be_published_again(workspace: Workspace, store: Store) -> None:
    first = run_stage(workspace, store, Toy("a"))
    run_stage(workspace, store, Toy("b"))
    gc.collect(store, 0.0, by="me")
    again = run_stage(workspace, store, Toy("a"))
    assert again.status == "succeeded", "a run whose outputs are gone is no reason to do nothing"
    assert again.outputs["data"].digest == first.outputs["data"].digest
    assert again.outputs["data"].ref == "interactions@v3"


def test_a_scratch_store_is_not_collected(workspace: Workspace, store: Store) -> None:
    (store.dir / "reads-from").write_text(str(store.dir))
    with pytest.raises(UsageError):
        gc.collect(Store.open(store.dir), 0.0, by="me")


def test_the_scratch_folder_of_a_run_that_goes_on_stays(workspace: Workspace, store: Store) -> None:
    """Killed, and taken up again after a week: gc took a night's work from under the second attempt."""
    long_ago = time.time() - (leftovers.LOG_DAYS + 1) * 86400

    def first(ctx: RunContext) -> None:
        (ctx.scratch / "attempts").write_text("of a night")
        os.utime(ctx.scratch, (long_ago, long_ago))
        raise RuntimeError("stands for a kill")

    def second(ctx: RunContext) -> None:
        assert ctx.scratch.stat().st_mtime > long_ago + 86400, "it is taken up now"
        os.utime(ctx.scratch, (long_ago, long_ago))  # and goes on for more than a week
        for log in logs():
            os.utime(log, (long_ago, long_ago))
        gc.collect(store, 0.0, by="cron")
        assert [log.stem for log in logs()] == [ctx.run_id], "of the first attempt nobody writes any more"
        assert (ctx.scratch / "attempts").read_text() == "of a night"
        raise RuntimeError("killed again")

    def logs() -> list[Path]:
        return sorted((store.dir / "logs").iterdir())

    for during in (first, second):
        with pytest.raises(RuntimeError):
            run_stage(workspace, store, Toy("x", during=during))
    gc.collect(store, 0.0, by="cron")
    assert list((store.dir / "scratch").iterdir()) == [], "as old, and nobody goes on with it"


def test_old_scratch_folders_go_also_when_two_remove_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store.dir / "scratch"
    long_ago = time.time() - (leftovers.SCRATCH_DAYS + 1) * 86400
    for name in ("old", "older", "young"):
        (place / name / "inner").mkdir(parents=True)
        if name != "young":
            os.utime(place / name, (long_ago, long_ago))
    remove = shutil.rmtree

    def after_another(folder: Path) -> None:
        remove(folder)
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", after_another)
    gc.collect(store, 0, by="t")
    assert [folder.name for folder in place.iterdir()] == ["young"]


def test_old_votes_of_a_judge_go_but_for_those_that_were_looked_at(store: Store) -> None:
    """One file for each message that a judge was ever asked about."""
    place, long_ago = store.dir / leftovers.VOTES, time.time() - (leftovers.VOTES_DAYS + 1) * 86400
    for name in ("aa1", "bb1", "bb2"):
        path = place / name[:2] / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('["yes"]')
        os.utime(path, (long_ago, long_ago))
    assert votes.ask({"bb2": []}, JudgeConfig(votes=1), str, str, place).cached == {"bb2"}
    gc.collect(store, 0, by="t")
    assert [path.name for path in place.rglob("*.json")] == ["bb2.json"]
