from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pytest

from stages import locks
from stages.errors import InputMissingError, IntegrityError, LockedError, UsageError
from stages.progress import Silent
from stages.registry import gc
from stages.registry.objects import object_path, seal
from stages.registry.publish import publish
from stages.registry.store import Store
from stages.registry.sweep import Swept, sweep
from stages.registry.verify import verify
from stages.runner import run_stage
from stages.stage import Outcome, Output
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint


def test_the_digest_is_that_of_the_manifest_and_covers_every_byte(workspace: Workspace, store: Store) -> None:
    data = run_stage(workspace, store, Toy("hello")).outputs["data"]
    manifest = (data.path / "manifest.json").read_bytes()
    assert data.digest == "sha256:" + hashlib.sha256(manifest).hexdigest()
    assert data.path == store.objects / "sha256" / data.digest[7:9] / data.digest[7:]
    assert json.loads(manifest) == {
        "schema": "rtrl-artifact/1",
        "kind": "interactions",
        "line": "auto",
        "meta": {"length": 5},
        "base": None,
        "files": [
            {
                "path": "deep/text.txt",
                "bytes": 10,
                "sha256": hashlib.sha256(b"data hello").hexdigest(),
            },
            {"path": "seed.txt", "bytes": 1, "sha256": hashlib.sha256(b"0").hexdigest()},
        ],
    }
    assert data.bytes == 11
    assert (data.path / "seed.txt").stat().st_mode & 0o777 == 0o444


def test_an_output_may_name_another_of_the_same_run(workspace: Workspace, store: Store) -> None:
    outputs = run_stage(workspace, store, Toy()).outputs
    assert outputs["report"].meta == {"of": outputs["data"].digest}


def test_versions_count_per_kind_and_equal_content_is_one_artifact(
    workspace: Workspace, store: Store
) -> None:
    first = run_stage(workspace, store, Toy("a")).outputs["data"]
    second = run_stage(workspace, store, Toy("b")).outputs["data"]
    again = run_stage(workspace, store, Toy("a"), force=True)
    assert (first.ref, second.ref) == ("interactions@v1", "interactions@v2")
    assert again.status == "succeeded"
    assert again.outputs["data"] == first
    assert store.producers(first.digest)[0].id == again.run_id
    assert len(store.producers(first.digest)) == 2


def test_outputs_that_are_missing_or_no_plain_files_are_refused(
    workspace: Workspace, store: Store, tmp_path: Path
) -> None:
    class Missing(Toy):
        def run(self, config, inputs, extra, out_dir, ctx):  # type: ignore[no-untyped-def]
            return Outcome(outputs={"x": Output("report")})

    class Link(Toy):
        def run(self, config, inputs, extra, out_dir, ctx):  # type: ignore[no-untyped-def]
            (out_dir / "x").mkdir()
            (out_dir / "x" / "link").symlink_to("/etc/passwd")
            return Outcome(outputs={"x": Output("report")})

    class Named(Toy):
        def run(self, config, inputs, extra, out_dir, ctx):  # type: ignore[no-untyped-def]
            (out_dir / "x").mkdir()
            (out_dir / "x" / "manifest.json").write_text("{}")
            return Outcome(outputs={"x": Output("report")})

    for stage in (Missing("1"), Link("2"), Named("3")):
        with pytest.raises(IntegrityError) as caught:
            run_stage(workspace, store, stage)
        assert caught.value.code == 12
    assert store.latest("report") is None
    assert verify(store, "full", Silent()).problems == []
    assert [run.state for run in store.runs()] == ["failed"] * 3


def test_outputs_that_refer_in_a_circle_are_refused(store: Store, tmp_path: Path) -> None:
    outputs = {"a": Output("report", {"x": "output:b"}), "b": Output("report", {"x": "output:a"})}
    with pytest.raises(IntegrityError, match="refer to each other"):
        publish(store, "run", "auto", outputs, tmp_path)


def test_a_base_must_be_in_the_store(store: Store, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    with pytest.raises(IntegrityError, match="base"):
        store.publish_external(
            {"d": (Output("checkpoint", {}, base="sha256:" + "0" * 64), tmp_path / "d")}, line="auto"
        )
    assert verify(store, "full", Silent()).problems == []


def test_an_object_left_by_a_killed_run_is_replaced(workspace: Workspace, store: Store) -> None:
    """The folder is there, nothing in the registry owns it: its content cannot be trusted."""
    data = run_stage(workspace, store, Toy("x")).outputs["data"]
    other = Workspace.create(workspace.root.parent / "other", "")
    elsewhere = Store.open(other.store_dir)
    left = elsewhere.path_of(data.digest)
    left.mkdir(parents=True)
    (left / "half").write_text("written")
    assert run_stage(other, elsewhere, Toy("x")).outputs["data"].digest == data.digest
    assert sorted(path.name for path in left.iterdir()) == ["deep", "manifest.json", "seed.txt"]


def test_folders_that_a_killed_run_made_are_synced_too(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended between making a folder and syncing its name: a power cut would take the object."""
    for prefix in range(256):
        (store.objects / "sha256" / f"{prefix:02x}").mkdir(parents=True, exist_ok=True)
    synced: list[Path] = []
    monkeypatch.setattr("stages.registry.publish.sync", synced.append)
    path = run_stage(workspace, store, Toy("x")).outputs["data"].path
    assert {path.parent, store.objects / "sha256", store.objects} <= set(synced)


@pytest.mark.parametrize("name", ["os.fsync", "pathlib.Path.chmod"])  # in a thread, and in the main one
def test_a_signal_or_the_error_of_a_file_waits_for_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are hashed beside it, gigabytes of them maybe."""
    (tmp_path / "a").write_bytes(b"small")
    with (tmp_path / "b").open("wb") as file:
        file.truncate(1 << 40)  # nothing is written
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    error = KeyboardInterrupt if name.endswith("chmod") else OSError
    monkeypatch.setattr(name, Mock(side_effect=error))
    with pytest.raises(error):
        seal(tmp_path, kind="checkpoint", line="auto", meta={}, base=None)


def test_references(store: Store, tmp_path: Path) -> None:
    one = checkpoint(store, tmp_path / "c", "one")
    two = checkpoint(store, tmp_path / "c", "two", parent=one.digest)
    store.move_alias("auto", "live", two.digest, reason="test")
    for ref in ("checkpoint@live", "checkpoint@v2", "checkpoint@latest", "checkpoint", two.digest[:20]):
        assert store.resolve(ref).digest == two.digest, ref
    assert store.latest("checkpoint", where={"parent": None}) == one
    huge = "checkpoint@v" + "9" * 30
    for ref in ("checkpoint@v9", huge, "checkpoint@anchor", "report@latest", "sha256:abcdef"):
        with pytest.raises(InputMissingError):
            store.resolve(ref)
    for ref in ("nonsense", "report@live", "checkpoint@", "sha256:zz"):
        with pytest.raises((UsageError, InputMissingError)) as caught:
            store.resolve(ref)
        assert caught.value.code == 2, ref


def test_line_state_of_a_checkpoint(store: Store, tmp_path: Path) -> None:
    one = checkpoint(store, tmp_path / "c", "one")
    assert store.line_state_of(one.digest).meta == {"checkpoint": one.digest}
    alone = store.publish_external({"c": (Output("checkpoint", {}), tmp_path / "c")}, line="auto")["c"]
    with pytest.raises(IntegrityError, match="without its line_state"):
        store.line_state_of(alone.digest)


def test_the_line_state_of_what_was_made_twice_is_the_newer_one(store: Store, tmp_path: Path) -> None:
    """Distill with another `distill.history` gives the same experience, and another state."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "f").write_text("the same")
    for text in ("old", "new"):
        (tmp_path / text).mkdir()
        (tmp_path / text / "state").write_text(text)
        made = store.publish_external(
            {
                "experience": (Output("experience", {}), tmp_path / "e"),
                "line_state": (Output("line_state", {}), tmp_path / text),
            },
            line="auto",
        )
        assert store.line_state_of(made["experience"].digest) == made["line_state"]


def test_publishing_waits_for_the_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep or gc that looks and deletes must not meet an object between its rename and its commit."""
    monkeypatch.setattr("stages.registry.publish.STORE_LOCK_S", 0.05)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "f").write_text("text")
    with locks.hold(store.lock_path("store"), what="test"), pytest.raises(LockedError):
        store.publish_external({"x": (Output("report", {}), tmp_path / "x")}, line="auto")
    assert list((store.objects / "sha256").glob("*/*")) == []


def test_what_is_committed_already_is_not_touched(store: Store, tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("text")
        made = store.publish_external({"x": (Output("report", {}), tmp_path / name)}, line="auto")["x"]
        files.append((made.digest, (made.path / "f").stat().st_ino))
    assert files[0] == files[1], "its readers keep the very files"


def test_what_a_killed_run_was_about_to_publish_again_is_left_alone(
    workspace: Workspace, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row has the digest of an object that another run has committed: a sweep ends the row alone."""
    data = run_stage(workspace, store, Toy("x")).outputs["data"]

    def killed(*_: object, **__: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as now:
        now.setattr("stages.registry.publish._place", killed)
        now.setattr("stages.registry.external.fail_run", lambda *_: None)
        shutil.copytree(data.path, tmp_path / "again")
        (tmp_path / "again" / "manifest.json").unlink()
        output = Output("interactions", dict(data.meta))
        with pytest.raises(SystemExit):
            store.publish_external({"x": (output, tmp_path / "again")}, line=data.line)
    swept = sweep(store)
    assert (len(swept.abandoned), swept.removed_objects) == (1, [])
    assert verify(store, "full", Silent()).problems == []
    assert (data.path / "manifest.json").is_file()


def test_content_that_was_published_again_after_gc_is_not_removed_by_its_old_row(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gc was killed between the tombstone and the removal, and the same content came back."""
    first = run_stage(workspace, store, Toy("a")).outputs["data"]
    run_stage(workspace, store, Toy("b"))
    with monkeypatch.context() as killed:
        killed.setattr(gc, "sweep", lambda _: Swept())
        gc.collect(store, 0.0, by="me")
        killed.setattr("stages.registry.external.sweep", lambda _: Swept())
        killed.setattr("stages.runner.sweep", lambda _: Swept())
        again = run_stage(workspace, store, Toy("a")).outputs["data"]
    assert (again.digest, again.ref) == (first.digest, "interactions@v3")
    sweep(store)
    assert verify(store, "full", Silent()).problems == []


def test_a_run_that_ends_while_it_is_looked_at_is_no_trouble(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder goes first, then the lock that said it lives: between the two looks both may be gone."""
    (store.dir / "tmp" / "ending" / "out").mkdir(parents=True)

    def ends(store: Store, run_id: str) -> bool:
        shutil.rmtree(store.dir / "tmp" / run_id)
        return False

    monkeypatch.setattr("stages.registry.sweep.is_alive", ends)
    assert sweep(store) == Swept()


def test_no_registry_names_a_folder_elsewhere_for_deletion(
    workspace: Workspace, store: Store, tmp_path: Path
) -> None:
    """Whatever wrote in a workspace of somebody else's removed a folder that its registry named."""
    precious = tmp_path / "precious"
    precious.mkdir()
    data = run_stage(workspace, store, Toy()).outputs["data"]
    with sqlite3.connect(store.dir / "registry.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(
            "INSERT INTO artifact (kind, line, state, digest, meta, run_id, created_at) "
            "SELECT kind, line, 'writing', ?, meta, run_id, created_at FROM artifact WHERE digest = ?",
            (f"sha256:{precious}", data.digest),
        )
    with pytest.raises(IntegrityError, match="is no digest"):
        sweep(store)
    assert precious.is_dir()
    for other in ("sha256:../../x", "sha256:", "..:ab", "sha256:ab/cd", "sha256:ab\n"):
        with pytest.raises(IntegrityError, match="is no digest"):
            object_path(tmp_path, other)
