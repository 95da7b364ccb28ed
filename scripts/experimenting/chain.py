"""One line of checkpoints learning from one population under one reward spec: cycle after cycle, resumable.

A chain has a workspace of its own with real artifacts. A cycle: the population lives a day with the served
checkpoint (`people.py`), the stages collect, distill and train run as library calls, the new checkpoint goes
live, and held-out people are measured. Left out: eval and deploy; every checkpoint goes live, good or bad,
since what bad rewards do is to be seen. A chain killed at any moment goes on with the stage it was in; a day
that was cut short is lived again from the spool before it.

    FOLDER/setup.json        what this chain is; another setup is another folder
    FOLDER/cycles/NN.json    what cycle NN showed (00: before the first); written last
    FOLDER/cycles/NN.rows.json   its held-out requests
    FOLDER/last/             the last checkpoint, once the chain is finished
    FOLDER/work/             the workspace, removed then
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from experimenting.edge import SERVICE, Edge, Engine
from experimenting.heldout import figures, measure
from experimenting.people import live_a_day, population_digest

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.result import StageResult
    from stages.stage import Artifact
    from stages.workspace import Workspace

Say = Callable[[str], None]


class LoadingEngine(Engine, Protocol):
    """An engine whose weights can be changed."""

    def load_weights(self, checkpoint_dir: Path) -> Any: ...


Start = Callable[["Workspace", Path], LoadingEngine]


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
        lag: cycles by which the served checkpoint is behind the one that is trained.
        heldout: held-out requests measured after every cycle.
        heldout_ends: the same before the first and after the last.
        settings: `section.key=value` of the workspace.
        model: folder of the first checkpoint, "" for the shipped seed model.
    """

    name: str
    seed: int
    spec: str
    cycles: int
    signals: str = ""
    users: int = 200
    requests: int = 800
    lag: int = 0
    heldout: int = 300
    heldout_ends: int = 1200
    settings: tuple[str, ...] = ()
    model: str = ""
    population: str = field(default_factory=population_digest)


class Chain:
    """See the module.

    Args:
        folder: of this chain; what is there is gone on with.
        start: makes an engine for a checkpoint folder.
    """

    def __init__(self, setup: Setup, folder: Path, start: Start, say: Say = lambda text: None) -> None:
        self.setup, self.folder, self._start, self._say = setup, folder, start, say
        self._cycles = folder / "cycles"
        self._work = folder / "work"
        self._engine: LoadingEngine | None = None

    @property
    def finished(self) -> int:
        """Cycles that are done; -1 before the first measurement."""
        return max((int(path.stem) for path in self._cycles.glob("[0-9][0-9].json")), default=-1)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.finished >= self.setup.cycles and (self.folder / "last").is_dir()

    def run(self, engine: LoadingEngine | None = None) -> LoadingEngine | None:
        """All cycles that are left; the engine, to be used for the next chain."""
        self._engine = engine
        if self.complete:
            return engine
        self._take_folder()
        workspace, store = self._workspace()
        while (done := self.finished) < self.setup.cycles:
            self._cycle(workspace, store, done + 1)
        live = _live(workspace, store)
        partial = self.folder / ".last"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(store.checkpoint_folder(live), partial)
        partial.rename(self.folder / "last")
        shutil.rmtree(self._work)
        return self._engine

    def _take_folder(self) -> None:
        self._cycles.mkdir(parents=True, exist_ok=True)
        path = self.folder / "setup.json"
        told = json.loads(json.dumps(asdict(self.setup)))
        if not path.exists():
            _write(path, told)
        elif json.loads(path.read_text("utf-8")) != told:
            raise SystemExit(f"{self.folder} holds another experiment than {self.setup.name}: take another --out")

    def _workspace(self) -> tuple[Workspace, Store]:
        from stages.init import init_model, init_tiny
        from stages.registry.store import Store
        from stages.workspace import SETTINGS_FILE, Workspace

        root, setup = self._work, self.setup
        if (root / SETTINGS_FILE).is_file():
            workspace = Workspace.find(root)
            store = Store.open(workspace.store_dir)
            if store.alias(workspace.settings.workspace.line, "live") is None:
                shutil.rmtree(root)  # its making was interrupted
        if not (root / SETTINGS_FILE).is_file():
            settings = f"\n[workspace]\nseed = {setup.seed}\n"
            if setup.model:
                init_model(root, Path(setup.model), settings=settings + _TINY)
            else:
                init_tiny(root, settings=settings)
        (root / "spec.toml").write_text(setup.spec, encoding="utf-8")
        if setup.signals:
            (root / f"{OWN_SIGNALS}.py").write_text(setup.signals, encoding="utf-8")
        overrides = [
            "distill.spec=spec.toml",
            "distill.workers=1",
            "train.threads=1",
            "train.micro_batch_tokens=2048",
            f"collect.max_lag={setup.lag}",
            f"train.max_lag={setup.lag}",
            *setup.settings,
        ]
        workspace = Workspace.find(root, overrides)
        return workspace, Store.open(workspace.store_dir)

    def _cycle(self, workspace: Workspace, store: Store, number: int) -> None:
        started, seconds = time.monotonic(), {}

        @contextmanager
        def timed(what: str) -> Iterator[None]:
            begun = time.monotonic()
            yield
            seconds[what] = round(time.monotonic() - begun, 2)

        about: dict[str, Any] = {"cycle": number}
        if number:
            with timed("day"):
                about["use"] = self._day(workspace, store, number)
            about |= self._learn(workspace, store, number, timed)
        checkpoint = _live(workspace, store)
        self._hold(workspace, store, checkpoint)
        with timed("heldout"):
            ends = number in (0, self.setup.cycles)
            count = self.setup.heldout_ends if ends else self.setup.heldout
            assert self._engine is not None
            rows = measure(self._engine, count, SERVICE, seed=1000 * self.setup.seed + number)
        about |= {"heldout": figures(rows), "checkpoint": checkpoint.digest, "seconds": seconds}
        about["seconds"]["all"] = round(time.monotonic() - started, 2)
        _write(self._cycles / f"{number:02}.rows.json", rows)
        _write(self._cycles / f"{number:02}.json", about)
        self._say(_line(self.setup, about))

    def _served(self, workspace: Workspace, store: Store) -> Artifact:
        """The checkpoint that people meet: `lag` behind the live one, or the first."""
        live = _live(workspace, store)
        ancestors = store.ancestors(live.digest)[: self.setup.lag]
        if not ancestors:
            return live
        found = store.artifact(ancestors[-1])
        assert found is not None
        return found

    def _day(self, workspace: Workspace, store: Store, number: int) -> dict[str, Any]:
        """Live the day, unless it was lived to its end already."""
        from evals.population.simulate import Traffic
        from stages.gateway.keys import ApiKeys
        from stages.gateway.served import Checkpoint

        told = self._work / f"day-{number:02}.json"
        if told.is_file():
            found: dict[str, Any] = json.loads(told.read_text("utf-8"))
            return found
        self._restore_spool(workspace, number)
        served = self._served(workspace, store)
        self._hold(workspace, store, served)
        key = ApiKeys.listed(workspace.keys_dir)[0]
        setup = self.setup
        traffic = Traffic("", "", users=setup.users, requests=setup.requests, seed=setup.seed, day=number - 1)
        edge = Edge(workspace, Checkpoint(served.digest, served.path), key.id, SERVICE)
        try:
            assert self._engine is not None
            day = live_a_day(edge, self._engine, traffic).to_json()
        finally:
            edge.close()
        _write(told, day)
        return day

    def _restore_spool(self, workspace: Workspace, number: int) -> None:
        """The spool as it was before the day: what an interrupted one left is put away."""
        kept = self._work / "spool-before"
        marker = self._work / "spool-before.day"
        if marker.is_file() and marker.read_text() == str(number):
            shutil.rmtree(workspace.spool_dir, ignore_errors=True)
            shutil.copytree(kept, workspace.spool_dir)
            return
        marker.unlink(missing_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(workspace.spool_dir, kept)
        marker.write_text(str(number))

    def _learn(
        self, workspace: Workspace, store: Store, number: int, timed: Callable[[str], Any]
    ) -> dict[str, Any]:
        """collect, distill, train; the new checkpoint goes live. Each is found again if it ran already."""
        from stages.collect.run import STAGE as COLLECT
        from stages.distill.run import STAGE as DISTILL
        from stages.runner import run_stage
        from stages.train.run import STAGE as TRAIN

        line = workspace.settings.workspace.line
        results: dict[str, StageResult] = {}
        refs: list[str] = []
        for stage in (COLLECT, DISTILL, TRAIN):
            with timed(stage.name):
                results[stage.name] = run_stage(workspace, store, stage, refs, seed=self.setup.seed)
            outputs = results[stage.name].outputs
            refs = [outputs[name].digest for name in ("interactions", "experience") if name in outputs]
        made = results["train"].outputs["checkpoint"]
        store.move_alias(line, "live", made.digest, reason=f"cycle {number}", by="experiments")
        self._forget(store, line)
        return {
            "distill": results["distill"].metrics,
            "train": results["train"].metrics,
            "warnings": results["train"].warnings,
        }

    def _forget(self, store: Store, line: str) -> None:
        """Nothing yet: a chain's workspace goes when it is complete."""

    def _hold(self, workspace: Workspace, store: Store, checkpoint: Artifact) -> None:
        """See that the engine holds a checkpoint."""
        folder = store.checkpoint_folder(checkpoint)
        if self._engine is None:
            self._engine = self._start(workspace, folder)
        elif getattr(self._engine, "checkpoint_dir", None) != folder:
            self._engine.load_weights(folder)


OWN_SIGNALS = "experiment_signals"
_TINY = """
[gateway]
client_clock = true

[collect]
clock = "events"
"""


def _live(workspace: Workspace, store: Store) -> Artifact:
    return store.resolve("checkpoint@live", workspace.settings.workspace.line)


def _write(path: Path, content: Any) -> None:
    """A whole file or none."""
    partial = path.with_name(f".{path.name}.new")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def _line(setup: Setup, about: Mapping[str, Any]) -> str:
    shown = ("edit_persistence", "dissatisfied_followup", "broken_calls", "ask_rate", "edit_rate", "right_edits")
    told = ", ".join(f"{name} {about['heldout'][name]['value'] or 0:.3f}" for name in shown)
    latency = about["heldout"]["latency_s"]["value"]
    times = " ".join(f"{name} {value:.0f}" for name, value in about["seconds"].items())
    return f"{setup.name} seed {setup.seed} cycle {about['cycle']}: {told}, {latency * 1000:.0f} ms [{times} s]"
