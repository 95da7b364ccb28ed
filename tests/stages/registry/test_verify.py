from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.errors import IntegrityError
from stages.progress import Silent
from stages.registry import gc
from stages.registry.check import check_artifact
from stages.registry.models import ArtifactRow
from stages.registry.store import Store
from stages.registry.sweep import sweep
from stages.registry.verify import Depth, verify
from stages.runner import run_stage
from stages.stage import Artifact
from stages.workspace import Workspace
from tests.stages.registry.test_rebuilt import publish
from tests.stages.toy import Toy


def flip(path: Path) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shorten(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: dict[str, tuple[Callable[[Artifact], object], str, Depth]] = {
    "flipped byte": (lambda a: flip(a.path / "deep/text.txt"), "bytes of deep/text.txt", "sampled"),
    "shortened": (lambda a: shorten(a.path / "seed.txt"), "has 0 bytes, not 1", "present"),
    "file gone": (lambda a: (a.path / "seed.txt").unlink(), "seed.txt is missing", "present"),
    "folder gone": (lambda a: shutil.rmtree(a.path), "is missing", "present"),
    "manifest gone": (lambda a: (a.path / "manifest.json").unlink(), "no readable manifest", "present"),
    "manifest changed": (lambda a: flip(a.path / "manifest.json"), "manifest of sha256", "present"),
    "stranger in it": (lambda a: (a.path / "zz").write_text("x"), "zz does not belong", "present"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_each_kind_of_damage_is_found(workspace: Workspace, store: Store, name: str) -> None:
    damage, words, depth = DAMAGE[name]
    artifact = run_stage(workspace, store, Toy()).outputs["data"]
    assert verify(store, "full", Silent()).problems == []
    damage(artifact)
    (problem,) = verify(store, depth, Silent()).problems
    assert problem.startswith("interactions@v1: ")
    assert words in problem
    with pytest.raises(IntegrityError, match="interactions@v1") as caught:
        check_artifact(artifact)
    assert caught.value.code == 12
    assert caught.value.hint


class Meanwhile(Silent):
    """Does something when verify begins a step."""

    def __init__(self, step: str, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def start(self, what: str, total: int | None = None) -> None:
        if what.startswith(self.step):
            self.act()


@pytest.mark.parametrize("step", ["verifying", "reading", "rebuilding"])
def test_what_gc_removes_at_the_same_moment_is_no_damage(store: Store, tmp_path: Path, step: str) -> None:
    """It was called missing, with the hint to restore it from a backup, or ended verify with exit 2."""
    made = publish(store, tmp_path / "made", 1, publish(store, tmp_path / "made", 0, None))
    store.checkpoint_folder(made)
    publish(store, tmp_path / "made", 2, None)
    removed: list[ArtifactRow] = []
    found = verify(
        store, "full", Meanwhile(step, lambda: removed.extend(gc.collect(store, 0.0, by="me").remove))
    )
    assert made.digest in [row.digest for row in removed]
    assert found.problems == []


def test_what_goes_while_its_bytes_are_read_is_damage(workspace: Workspace, store: Store) -> None:
    artifact = run_stage(workspace, store, Toy()).outputs["data"]
    found = verify(store, "full", Meanwhile("reading", (artifact.path / "seed.txt").unlink))
    assert found.problems == [f"interactions@v1: {artifact.path / 'seed.txt'} is missing"]


def test_a_damaged_input_stops_the_run(workspace: Workspace, store: Store) -> None:
    artifact = run_stage(workspace, store, Toy()).outputs["data"]
    flip(artifact.path / "deep/text.txt")
    stage = Toy("reads it", inputs={"data": artifact})
    with pytest.raises(IntegrityError):
        run_stage(workspace, store, stage)
    assert stage.runs == 0


def test_present_reads_no_bytes(workspace: Workspace, store: Store) -> None:
    flip(run_stage(workspace, store, Toy()).outputs["data"].path / "seed.txt")
    found = verify(store, "present", Silent())
    assert (found.problems, found.bytes_read, found.artifacts, found.files) == ([], 0, 2, 4)


def test_a_store_whose_empty_folders_were_not_kept_is_one(workspace: Workspace, store: Store) -> None:
    """As git, S3 and `rsync -m` bring it back: each command was exit 2, "name a path of the right kind"."""
    for _ in range(2):  # objects/sha256 after what is in it
        for folder in sorted(store.dir.rglob("*"), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
    assert [path for path in store.dir.iterdir() if path.is_dir()] == []
    again = Store.open(store.dir)
    assert gc.collect(again, 0.0, by="me").remove == []
    run_stage(workspace, again, Toy())
    assert verify(again, "full", Silent()).problems == []


@pytest.mark.parametrize("folder", ["tmp", "trash", "rebuilt"])
def test_a_file_that_is_none_of_the_stores_is_passed_over(store: Store, folder: str) -> None:
    stray = store.dir / folder / ".gitkeep"
    stray.parent.mkdir(exist_ok=True)
    stray.touch()
    assert not sweep(store)
    assert gc.collect(store, 0.0, by="me").rebuilt == []
    assert verify(store, "full", Silent()).problems == []
    assert stray.exists()


def test_a_file_among_the_objects_is_named(store: Store) -> None:
    (store.objects / "sha256" / ".DS_Store").touch()
    assert verify(store, "full", Silent()).problems == ["objects/sha256/.DS_Store: no artifact owns it"]


def test_an_object_nobody_owns_is_named(store: Store) -> None:
    (store.objects / "sha256" / "ab" / ("ab" * 32)).mkdir(parents=True)
    (problem,) = verify(store, "present", Silent()).problems
    assert "no artifact owns it" in problem
