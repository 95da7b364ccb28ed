"""What a chain is, and the workspace it begins with. Not for: running it (`chain.py`)."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from experimenting.people import population_digest

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

OWN_SIGNALS = "experiment_signals"


@dataclass(frozen=True)
class Setup:
    """What a chain is.

    Attributes:
        name: of the variant, e.g. "default".
        seed: of the population that is trained on, of training and of sampling.
        spec: the reward spec's text.
        signals: source of the team's own signals that the spec names, "" for none.
        cycles: of use and learning.
        users, requests: of a day; follow-ups come on top.
        gate: a checkpoint goes live only when `eval` passes it; else all do.
        without: a part of the objective that is taken out, see `without.py`.
        lag: cycles by which the served checkpoint is behind the one that is trained.
        heldout: held-out requests measured after every cycle.
        heldout_ends: the same before the first and after the last.
        settings: `section.key=value` of the workspace.
        base: "NAME-SEED" of the chain whose checkpoint and history this one goes on from, "" for the shipped
            seed model; `base_cycle` is after which of its cycles.
        keep: cycles after which the checkpoint is kept, for chains that go on from there.
    """

    name: str
    seed: int
    spec: str
    cycles: int
    signals: str = ""
    users: int = 200
    requests: int = 450
    lag: int = 0
    gate: bool = False
    without: str = ""
    heldout: int = 160
    heldout_ends: int = 1200
    settings: tuple[str, ...] = ()
    base: str = ""
    base_cycle: int = 0
    keep: tuple[int, ...] = ()
    population: str = field(default_factory=population_digest)


def kept_folder(chain: Path, cycle: int) -> Path:
    """Where a chain keeps its checkpoint after a cycle."""
    return chain / "kept" / f"{cycle:02}"


def make_workspace(setup: Setup, root: Path, model: Path | None) -> tuple[Workspace, Store]:
    """The chain's workspace at `root`, made if need be, and its store. `model`: begin with this folder."""
    from stages.init import TINY_SETTINGS, init_model, init_tiny
    from stages.registry.store import Store
    from stages.workspace import SETTINGS_FILE, Workspace

    if (root / SETTINGS_FILE).is_file():
        workspace = Workspace.find(root)
        store = Store.open(workspace.store_dir)
        if store.alias(workspace.settings.workspace.line, "live") is None:
            shutil.rmtree(root)  # its making was interrupted
    if not (root / SETTINGS_FILE).is_file():
        shutil.rmtree(root, ignore_errors=True)
        settings = f"\n[workspace]\nseed = {setup.seed}\n"
        if model is None:
            init_tiny(root, settings=settings)
        else:
            init_model(root, model, settings=settings)
    (root / "spec.toml").write_text(setup.spec, encoding="utf-8")
    if setup.signals:
        (root / f"{OWN_SIGNALS}.py").write_text(setup.signals, encoding="utf-8")
    usual = tomllib.loads(TINY_SETTINGS)
    overrides = [
        *(
            f"{part}.{name}={value if isinstance(value, str) else json.dumps(value)}"
            for part in usual
            for name, value in usual[part].items()
        ),
        "distill.spec=spec.toml",
        "distill.workers=1",
        "train.threads=1",
        "train.micro_batch_tokens=2048",
        "train.micro_checkpoints=4",
        f"collect.max_lag={setup.lag}",
        f"train.max_lag={setup.lag}",
        *setup.settings,
    ]
    workspace = Workspace.find(root, overrides)
    return workspace, Store.open(workspace.store_dir)
