"""A workspace whose stages write a few bytes, for the tests of the cycle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stages.cycle.result import CycleResult
from stages.cycle.run import run_cycle
from stages.cycle.stub import StubStage
from stages.registry.store import Store
from stages.stage import Output
from stages.workspace import Workspace


def make(root: Path) -> tuple[Workspace, Store]:
    workspace = Workspace.create(root / "w", "")
    store = Store.open(workspace.store_dir)
    folder = root / "seed"
    folder.mkdir()
    (folder / "weights").write_text("seed")
    seed = store.publish_external(
        {"checkpoint": (Output("checkpoint", {"parent": None}), folder)},
        line="auto",
        stage="init",
        config={},
        seed=0,
    )["checkpoint"]
    store.move_alias("auto", "live", seed.digest, reason="test")
    return workspace, store


def live(store: Store) -> str:
    found = store.alias("auto", "live")
    assert found is not None
    return found.digest


def run(world: tuple[Workspace, Store], stages: dict[str, StubStage], **options: object) -> CycleResult:
    return run_cycle(*world, stages=stages, **options)  # type: ignore[arg-type]


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it
