"""Parts measured one by one, in processes, on Ray: the same artifact, byte for byte; and what goes wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtrl_cli.main import run
from stages import schemas
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.distill.shards import Shard, measure_shard
from stages.errors import DependencyDownError, IntegrityError, UsageError
from stages.init import init_bare
from stages.registry.store import Store
from stages.result import StageResult
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.collect.logs.openai_logs import REQUESTS, log_of

EPISODES = 9


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Workspace, Store]:
    """Nine episodes in five parts."""
    monkeypatch.setattr(schemas, "PART_EPISODES", 2)
    workspace = init_bare(tmp_path / "ws")
    store = Store.open(workspace.store_dir)
    log = tmp_path / "log.jsonl"
    log_of(log, "s1", REQUESTS * (EPISODES // len(REQUESTS)))
    run_stage(workspace, store, CollectStage(source=Source((log,), "openai-log")))
    return workspace, store


def distill(place: tuple[Workspace, Store], *overrides: str) -> StageResult:
    return run_stage(*place, DistillStage(), (), list(overrides))


def test_side_by_side_is_the_same_as_one_by_one(place: tuple[Workspace, Store]) -> None:
    alone = distill(place, "distill.workers=1").outputs["experience"]
    both = distill(place, "distill.workers=2").outputs["experience"]
    assert alone.meta["counts"]["episodes"] == EPISODES
    assert alone.digest == both.digest
    assert not multiprocessing.active_children()


def test_ray_gives_the_same_artifact(place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rtrl[ray]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(schemas.__file__).parents[1]), *_path()]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    alone = distill(place, "distill.workers=1").outputs["experience"]
    cluster = distill(place, "distill.engine=ray", "distill.workers=2").outputs["experience"]
    assert alone.digest == cluster.digest


def _path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def test_a_worker_of_a_cluster_that_dies_is_told_as_such(
    place: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray tries its part three times more, and then says so by an error that is none of the part's."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    class WorkerCrashedError(RayError):
        pass

    def crashed(_: object) -> None:
        raise WorkerCrashedError

    ray = SimpleNamespace(
        is_initialized=lambda: True,
        remote=lambda function: SimpleNamespace(remote=lambda shard: shard),
        get=crashed,
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(DependencyDownError, match="WorkerCrashedError") as caught:
        distill(place, "distill.engine=ray")
    assert caught.value.hint


@pytest.mark.parametrize("workers", [1, 2])
def test_damage_in_one_part_is_told_as_damage(place: tuple[Workspace, Store], workers: int) -> None:
    _, store = place
    made = store.latest("interactions")
    assert made is not None
    part = made.path / "part-00003" / schemas.GENERATIONS_FILE
    data = bytearray(part.read_bytes())
    data[40] ^= 0xFF
    part.chmod(0o600)
    part.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        distill(place, f"distill.workers={workers}")
    assert caught.value.hint


def test_a_teams_signal_that_fails_in_a_worker_is_told_as_theirs(place: tuple[Workspace, Store]) -> None:
    root = place[0].root
    (root / f"signals_{os.getpid()}.py").write_text("def bad(seen):\n    return 'much'\n")
    (root / "ours.toml").write_text(
        f'schema = "rtrl-reward/1"\nname = "ours"\n[signals.bad]\nfunction = "signals_{os.getpid()}:bad"\n'
        "weight = 1.0\nunknown = 0.0\n"
    )
    with pytest.raises(UsageError, match="no finite number") as caught:
        distill(place, "distill.spec=ours.toml", "distill.workers=2")
    assert caught.value.hint


def test_a_part_is_not_measured_by_other_source_than_the_run_recorded(
    place: tuple[Workspace, Store],
) -> None:
    """A process begun later, or another machine, may find the module changed: its part went by that."""
    workspace, store = place
    (workspace.root / f"edited_{os.getpid()}.py").write_text("def one(seen):\n    return 1\n")
    spec = (
        f'schema = "rtrl-reward/1"\nname = "ours"\n[signals.mine]\nfunction = "edited_{os.getpid()}:one"\n'
        "weight = 1.0\nunknown = 0.0\n"
    )
    made = store.latest("interactions")
    assert made is not None
    recorded = {"mine": {"function": f"edited_{os.getpid()}:one", "digest": "sha256:0"}}
    part = made.path / "part-00000"
    with pytest.raises(IntegrityError, match="has changed since"):
        measure_shard(Shard(part, made.digest, spec, workspace.root, workspace.keys_dir, own=recorded))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_teams_signal_prints_is_not_in_the_commands_document(
    place: tuple[Workspace, Store], workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    root, name = place[0].root, f"printing_{workers}_{os.getpid()}"
    (root / f"{name}.py").write_text(
        "print('imported')\n\ndef one(seen):\n    print('asked')\n    return 1\n"
    )
    (root / "ours.toml").write_text(
        f'schema = "rtrl-reward/1"\nname = "ours"\n[signals.mine]\nfunction = "{name}:one"\n'
        "weight = 1.0\nunknown = 0.0\n"
    )
    settings = ("distill.spec=ours.toml", f"distill.workers={workers}")
    arguments = ["distill", "--workspace", str(root), *(part for one in settings for part in ("--set", one))]
    assert run([*arguments, "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["status"] == "succeeded"
    assert "imported" in err
    assert "asked" in err


@pytest.mark.parametrize("workers", [1, 2])
def test_the_words_in_a_teams_error_are_nowhere(
    place: tuple[Workspace, Store], workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    root, name = place[0].root, f"quoting_{workers}_{os.getpid()}"
    (root / f"{name}.py").write_text("def bad(seen):\n    raise KeyError(seen.request)\n")
    (root / "ours.toml").write_text(
        f'schema = "rtrl-reward/1"\nname = "ours"\n[signals.bad]\nfunction = "{name}:bad"\n'
        "weight = 1.0\nunknown = 0.0\n"
    )
    settings = ("distill.spec=ours.toml", f"distill.workers={workers}")
    arguments = ["distill", "--workspace", str(root), *(part for one in settings for part in ("--set", one))]
    assert run([*arguments, "--json"], debug=True) == 2
    shown = "".join(capfd.readouterr())
    files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert "raised KeyError" in shown
    assert "Traceback" in shown
    assert any(b"run.error" in data and b"raised KeyError" in data for data in files)
    for words in ("add a cart", "still broken", "now the till"):
        assert words not in shown
        assert not [data for data in files if words.encode() in data]
