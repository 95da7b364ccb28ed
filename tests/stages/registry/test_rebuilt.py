"""Checkpoints whose weights are deltas: read through one function, kept by gc, rebuilt by verify, killed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from stages.delta import SUFFIX
from stages.delta.write import write_delta
from stages.errors import DependencyDownError, IntegrityError
from stages.linestate import LineState
from stages.progress import Silent
from stages.registry import gc, rebuilt
from stages.registry.chain import chain
from stages.registry.store import Store
from stages.registry.sweep import sweep
from stages.registry.verify import verify
from stages.stage import Artifact, Output
from stages.workspace import Workspace
from tests.stages.delta.safetensors_files import save
from tests.stages.registry.test_kill import fresh, in_child, points_of

WEIGHTS = "model.safetensors"


def weights(number: int) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    values = np.random.default_rng(0).standard_normal(4000).astype("<f4")
    values[: 10 * number] += np.float32(0.5)
    return {"w": ("F32", (40, 100), values.tobytes())}


def publish(store: Store, folder: Path, number: int, parent: Artifact | None) -> Artifact:
    """Checkpoint `number` with a line state, a delta to `parent` unless that is None."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "hf").mkdir(parents=True)
    (folder / "hf" / "config.json").write_text("{}")
    (folder / "hf" / "adapter").mkdir()  # as of a low-rank update: beside the weights, and none of them
    save(folder / "hf" / "adapter" / "adapter_model.safetensors", {"w": ("U8", (1,), bytes([number]))})
    path = save(folder / "hf" / WEIGHTS, weights(number), {"n": str(number)})
    if parent is not None:
        write_delta(path, rebuilt.whole_weights(store, parent))
        path.unlink()
    LineState().save(folder / "state")
    base = parent.digest if parent else None
    outputs = {
        "checkpoint": (Output("checkpoint", {"parent": base}, base), folder / "hf"),
        "line_state": (Output("line_state", {"checkpoint": "output:checkpoint"}), folder / "state"),
    }
    return store.publish_external(outputs, line="auto")["checkpoint"]


@pytest.fixture
def family(store: Store, tmp_path: Path) -> list[Artifact]:
    """Checkpoints 0 (whole) to 3, each a delta to the one before."""
    found: list[Artifact] = []
    for number in range(4):
        found.append(publish(store, tmp_path / "made", number, found[-1] if found else None))
    forget(store)
    return found


def forget(store: Store) -> None:
    shutil.rmtree(store.dir / rebuilt.FOLDER, ignore_errors=True)


def cached(store: Store) -> set[str]:
    return {path.name for path in (store.dir / rebuilt.FOLDER).glob("*")}


def age(store: Store) -> None:
    for path in (store.dir / rebuilt.FOLDER).iterdir():
        os.utime(path, (0, 0))


def expected(tmp_path: Path, number: int) -> bytes:
    return save(tmp_path / "expected", weights(number), {"n": str(number)}).read_bytes()


def test_every_reader_gets_the_whole_folder_byte_for_byte(
    store: Store, family: list[Artifact], tmp_path: Path
) -> None:
    assert store.checkpoint_folder(family[0]) == family[0].path
    for number in (3, 1, 2):
        folder = store.checkpoint_folder(family[number])
        assert (folder / WEIGHTS).read_bytes() == expected(tmp_path, number)
        assert {path.name for path in folder.iterdir()} == {"adapter", "config.json", WEIGHTS}
        adapter = folder / "adapter" / "adapter_model.safetensors"
        assert adapter.read_bytes()[-1] == number
        assert folder == store.checkpoint_folder(store.resolve(family[number].digest))
    assert [one.ref for one in chain(store, family[3])] == [one.ref for one in reversed(family)]
    assert list((store.dir / "tmp").iterdir()) == []
    assert not (family[3].path / WEIGHTS).exists()
    assert (family[3].path / f"{WEIGHTS}{SUFFIX}").stat().st_size < 0.1 * len(expected(tmp_path, 3))


def test_many_readers_at_once_rebuild_once(
    store: Store, family: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    write = rebuilt._write
    monkeypatch.setattr(rebuilt, "_write", lambda *args: (made.append(1), write(*args)))
    with ThreadPoolExecutor(6) as pool:
        folders = set(pool.map(lambda _: store.checkpoint_folder(family[3]), range(12)))
    assert len(folders) == 1
    assert len(made) == 1


def test_gc_keeps_bases_but_not_what_bases_remember(store: Store, family: list[Artifact]) -> None:
    store.move_alias("auto", "live", family[2].digest, reason="x")
    gc.collect(store, 0.0, by="me")
    assert [one.version for one in store.all_of("checkpoint")] == [4, 3, 2, 1]
    assert {one.meta["checkpoint"] for one in store.all_of("line_state")} == {
        family[2].digest,
        family[3].digest,  # the newest of its kind
    }
    assert store.checkpoint_folder(family[3]).is_dir()
    assert verify(store, "full", Silent()).problems == []


def test_gc_removes_rebuilt_folders_that_nothing_in_use_needs(store: Store, family: list[Artifact]) -> None:
    store.move_alias("auto", "live", family[2].digest, reason="x")
    for one in family:
        store.checkpoint_folder(one)
    assert gc.plan(store, 7.0).rebuilt == [], "all were just given to somebody"
    age(store)
    store.checkpoint_folder(family[3])  # marks it as used
    planned = gc.plan(store, 7.0)
    assert [folder.name for folder, _ in planned.rebuilt] == [family[1].digest.removeprefix("sha256:")]
    assert planned.bytes == planned.rebuilt[0][1] > 16_000
    gc.collect(store, 7.0, by="me")
    assert cached(store) == {one.digest.removeprefix("sha256:") for one in family[2:]}
    assert store.checkpoint_folder(family[1]).is_dir()


def test_a_removed_checkpoint_takes_its_rebuilt_folder_along(
    store: Store, family: list[Artifact], tmp_path: Path
) -> None:
    store.checkpoint_folder(family[3])
    new = publish(store, tmp_path / "made", 7, None)
    store.move_alias("auto", "live", new.digest, reason="x")
    gc.collect(store, 0.0, by="me")
    assert [one.digest for one in store.all_of("checkpoint")] == [new.digest]
    assert cached(store) == set()


def damage(path: Path) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_delta_is_an_integrity_error_and_leaves_nothing(
    store: Store, family: list[Artifact]
) -> None:
    damage(family[2].path / f"{WEIGHTS}{SUFFIX}")
    with pytest.raises(IntegrityError) as refused:
        store.checkpoint_folder(family[3])
    assert refused.value.code == 12
    assert refused.value.hint
    assert cached(store) == set()
    assert list((store.dir / "tmp").iterdir()) == []
    problems = verify(store, "full", Silent()).problems
    assert {problem.split(":")[0] for problem in problems} == {"checkpoint@v3", "checkpoint@v4"}
    assert store.checkpoint_folder(family[1]).is_dir()


def test_a_missing_base_is_named(store: Store, family: list[Artifact]) -> None:
    shutil.move(family[0].path, family[0].path.with_name("elsewhere"))
    with pytest.raises(IntegrityError, match="no readable manifest"):
        store.checkpoint_folder(family[1])


def test_a_rotten_copy_is_never_built_upon(store: Store, family: list[Artifact], tmp_path: Path) -> None:
    """A rebuilt folder is only a copy: the chain in objects/ decides, and verify tells of it."""
    damage(store.checkpoint_folder(family[2]) / WEIGHTS)
    assert (store.checkpoint_folder(family[3]) / WEIGHTS).read_bytes() == expected(tmp_path, 3)
    assert cached(store) == {family[3].digest.removeprefix("sha256:")}
    damage(store.checkpoint_folder(family[1]) / WEIGHTS)
    assert not rebuilt.check_rebuilt(store, family[1])
    damage(store.checkpoint_folder(family[1]) / WEIGHTS)
    found = verify(store, "full", Silent())
    assert found.problems == ["rebuilt folder of checkpoint@v2: it was changed; now removed"]
    assert found.rebuilt == 3
    assert verify(store, "full", Silent()).problems == []


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10_000))
    return


def test_a_disk_without_room_is_told_before_anything_is_written(
    store: Store, family: list[Artifact], full_disk: None
) -> None:
    with pytest.raises(DependencyDownError, match="no room to rebuild checkpoint@v4: its weights take 16,"):
        store.checkpoint_folder(family[3])
    assert list((store.dir / "tmp").iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_is_told_and_cleared(
    store: Store, family: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(DependencyDownError, match="the disk is full"):
        store.checkpoint_folder(family[3])
    assert list((store.dir / "tmp").iterdir()) == []
    assert cached(store) == set()


def test_killed_anywhere_the_next_reader_gets_the_whole_folder(template: Path, tmp_path: Path) -> None:
    """Every fault point of rebuilding and of removing what was rebuilt."""

    def made(folder: Path) -> Workspace:
        return fresh(tmp_path / "base", folder)

    def work(workspace: Workspace) -> None:
        store = Store.open(workspace.store_dir)
        store.checkpoint_folder(store.resolve("checkpoint@v3"))
        age(store)
        gc.collect(store, 7.0, by="me")

    store = Store.open(fresh(template, tmp_path / "base").store_dir)
    first = publish(store, tmp_path / "made", 0, None)
    second = publish(store, tmp_path / "made", 1, first)
    publish(store, tmp_path / "made", 2, second)
    forget(store)
    points = points_of(lambda: work(made(tmp_path / "first")), tmp_path / "points")
    assert {"rebuilt.fsync.before:2", "rebuilt.rename.after:1", "rebuilt.discard.after:1"} <= set(points)
    for number, point in enumerate(points):
        workspace = made(tmp_path / str(number))
        assert in_child(lambda w=workspace: work(w), RTRL_FAULT=point) == signal.SIGKILL, point  # type: ignore[misc]
        store = Store.open(workspace.store_dir)
        sweep(store)
        assert list((store.dir / "tmp").iterdir()) == [], point
        assert list((store.dir / "trash").iterdir()) == [], point
        folder = store.checkpoint_folder(store.resolve("checkpoint@v3"))
        assert (folder / WEIGHTS).read_bytes() == expected(tmp_path, 2), point
        assert verify(store, "full", Silent()).problems == [], point


def old_folder(store: Store) -> Path:
    """A rebuilt folder that nobody was given for a day."""
    folder = store.dir / rebuilt.FOLDER / ("a" * 64)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    os.utime(folder, (1, 1))
    return folder


def test_a_folder_that_somebody_was_given_meanwhile_is_not_removed(store: Store) -> None:
    folder = old_folder(store)
    kept = {f"sha256:{folder.name}"}
    ((planned, _),) = rebuilt.unneeded(store, set(), kept)
    assert planned == folder
    assert rebuilt._mark_used(folder)
    rebuilt.remove(store, folder, kept)
    assert folder.is_dir()
    rebuilt.remove(store, folder, set())  # its checkpoint is gone
    assert not folder.exists()


def test_a_folder_is_not_removed_while_somebody_is_given_it(store: Store) -> None:
    folder = old_folder(store)
    kept = {f"sha256:{folder.name}"}
    with ThreadPoolExecutor(1) as pool:
        with rebuilt._locked(folder, fcntl.LOCK_SH):
            removing = pool.submit(rebuilt.remove, store, folder, kept)
            with pytest.raises(TimeoutError):
                removing.result(0.2)
            os.utime(folder)
        removing.result(20)
    assert folder.is_dir(), "it was used a moment ago"


def test_a_folder_that_gc_took_before_the_lock_is_not_given(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old_folder(store)

    def taken(fd: int, how: int) -> None:
        folder.rename(tmp_path / "trash")
        folder.mkdir()  # another one begins to be made

    monkeypatch.setattr("stages.registry.rebuilt.fcntl.flock", taken)
    assert not rebuilt._mark_used(folder)


def test_what_is_thrown_away_may_be_swept_at_the_same_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old_folder(store)

    def meanwhile(name: str) -> None:
        if name == "rebuilt.discard.after":
            sweep(store)

    monkeypatch.setattr("stages.registry.rebuilt.faults.point", meanwhile)
    rebuilt._discard(store, folder)
    rebuilt._discard(store, folder)  # as by another who had found it unsound too
    assert list((store.dir / "trash").iterdir()) == []
    assert not folder.exists()
