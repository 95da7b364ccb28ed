"""One line of checkpoints learning from one population under one reward spec: cycle after cycle, resumable.

A chain has a workspace of its own with real artifacts. A cycle: the population lives a day with the served
checkpoint (`people.py`), the stages collect, distill and train run as library calls, the new checkpoint goes
live, and held-out people are measured. Left out: eval and deploy; every checkpoint goes live, good or bad,
since what bad rewards do is to be seen. A chain killed at any moment goes on with the stage it was in; a day
that was cut short is lived again from the spool before it.

    FOLDER/setup.json        what this chain is; another setup is another folder
    FOLDER/cycles/NN.json    what cycle NN showed (00: before the first); written last
    FOLDER/cycles/NN.rows.json   its held-out requests
    FOLDER/cycles/NN.monitor.npz what the monitors were told
    FOLDER/kept/NN/          the checkpoint after cycle NN, where the setup says so
    FOLDER/last/             the last checkpoint, once the chain is finished
    FOLDER/work/             the workspace, removed then
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.errors import UsageError
from experimenting.edge import SERVICE, Edge
from experimenting.heldout import figures, measure
from experimenting.learn import LoadingEngine, learn
from experimenting.people import live_a_day
from experimenting.setup import Setup, kept_folder, make_workspace

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact
    from stages.workspace import Workspace

Say = Callable[[str], None]


Start = Callable[["Workspace", Path], LoadingEngine]


class Chain:
    """See the module.

    Args:
        folder: of this chain; what is there is gone on with.
        start: makes an engine for a checkpoint folder.
        enough: whether what is there has shown what was to be seen, so that no more cycles are needed.
    """

    def __init__(
        self,
        setup: Setup,
        folder: Path,
        start: Start,
        say: Say = lambda text: None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self.setup, self.folder, self._start, self._say, self._enough = setup, folder, start, say, enough
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
        return (self.folder / "last").is_dir() and self._shown()

    def _shown(self) -> bool:
        return self.finished >= self.setup.cycles or self._enough()

    def run(self, engine: LoadingEngine | None = None) -> LoadingEngine | None:
        """All cycles that are left; the engine, to be used for the next chain."""
        self._engine = engine
        if self.complete:
            return engine
        self._take_folder()
        workspace, store = make_workspace(self.setup, self._work, self._base())
        while not self._shown():
            self._cycle(workspace, store, self.finished + 1)
        live = _live(workspace, store)
        self._keep(store.checkpoint_folder(live), self.folder / "last")
        shutil.rmtree(self._work)
        return self._engine

    def _base(self) -> Path | None:
        """The checkpoint to begin with; None for the shipped one. Raises UsageError when it is not there."""
        if not self.setup.base:
            return None
        found = kept_folder(self.folder.parent / self.setup.base, self.setup.base_cycle)
        if not found.is_dir():
            raise UsageError(f"there is no {found}", hint=f"{self.setup.base} has to be run first")
        return found

    def _keep(self, checkpoint: Path, folder: Path) -> None:
        """A copy of a checkpoint: whole, or not there."""
        if folder.is_dir():
            return
        partial = self.folder / ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(checkpoint, partial)
        folder.parent.mkdir(exist_ok=True)
        partial.rename(folder)

    def _take_folder(self) -> None:
        self._cycles.mkdir(parents=True, exist_ok=True)
        path = self.folder / "setup.json"
        told = json.loads(json.dumps(asdict(self.setup)))
        if not path.exists():
            _write(path, told)
        elif json.loads(path.read_text("utf-8")) != told:
            raise UsageError(
                f"{self.folder} holds another chain than the {self.setup.name} asked for",
                hint="other sizes, settings, specs or people are another chain: take another --work",
            )

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
            line = workspace.settings.workspace.line
            store.move_alias(line, "live", about["next"], reason=f"cycle {number}", by="experiments")
        checkpoint = _live(workspace, store)
        with timed("heldout"):
            rows = self._measured(workspace, store, checkpoint, number)
        if number in self.setup.keep:
            self._keep(store.checkpoint_folder(checkpoint), kept_folder(self.folder, number))
        about |= {"heldout": figures(rows), "checkpoint": checkpoint.digest, "seconds": seconds}
        about["seconds"]["all"] = round(time.monotonic() - started, 2)
        _write(self._cycles / f"{number:02}.rows.json", rows)
        _write(self._cycles / f"{number:02}.json", about)
        self._say(_line(self.setup, about))

    def _measured(
        self, workspace: Workspace, store: Store, checkpoint: Artifact, number: int
    ) -> list[dict[str, Any]]:
        """Held-out people with a checkpoint. Of the shipped one the same for every chain of a seed: once."""
        setup = self.setup
        count = setup.heldout_ends if number in (0, setup.cycles) else setup.heldout
        shared = self.folder.parent / f"first-{setup.seed}-{count}.json"
        if number == 0 and not setup.base and shared.is_file():
            found: list[dict[str, Any]] = json.loads(shared.read_text("utf-8"))
            return found
        self._hold(workspace, store, checkpoint)
        assert self._engine is not None
        rows = measure(self._engine, count, SERVICE, seed=1000 * setup.seed + number)
        if number == 0 and not setup.base:
            _write(shared, rows)
        return rows

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
        day = setup.base_cycle + number - 1
        traffic = Traffic("", "", users=setup.users, requests=setup.requests, seed=setup.seed, day=day)
        edge = Edge(workspace, Checkpoint(served.digest, served.path), key, SERVICE)
        try:
            assert self._engine is not None
            use = live_a_day(edge, self._engine, traffic, _sampling(setup, number)).to_json()
        finally:
            edge.close()
        _write(told, use)
        return use

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
        """collect, distill, train, and eval behind a gate: what came of them, and which checkpoint is next.

        Each is found again when it ran already; all of them when the cycle only lacks its measurement.
        """
        told = self._work / f"learned-{number:02}.json"
        if told.is_file():
            found: dict[str, Any] = json.loads(told.read_text("utf-8"))
            return found
        if self._engine is None:  # the day was lived before this start
            self._hold(workspace, store, _live(workspace, store))
        assert self._engine is not None
        cycle = self._cycles / f"{number:02}.monitor.npz"
        results, stopped = learn(workspace, store, self.setup, self._engine, timed, cycle)
        trained = results.get("train")
        passed = trained.outputs["checkpoint"].digest if trained and not stopped else ""
        about = {
            "distill": results["distill"].metrics,
            "train": trained.metrics if trained else {},
            "warnings": [text for result in results.values() for text in result.warnings],
            "stopped": stopped,
            "next": passed or _live(workspace, store).digest,
        }
        _write(told, about)
        return about

    def _hold(self, workspace: Workspace, store: Store, checkpoint: Artifact) -> None:
        """See that the engine holds a checkpoint."""
        folder = store.checkpoint_folder(checkpoint)
        if self._engine is None:
            self._engine = self._start(workspace, folder)
        elif getattr(self._engine, "checkpoint_dir", None) != folder:
            self._engine.load_weights(folder)


def _sampling(setup: Setup, number: int) -> int:
    """The seed of a day's answers: another one for each chain and day, whenever and beside what it runs."""
    named = f"{setup.name} {setup.seed} {number}"
    return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=4).digest(), "big")


def _live(workspace: Workspace, store: Store) -> Artifact:
    return store.resolve("checkpoint@live", workspace.settings.workspace.line)


def _write(path: Path, content: Any) -> None:
    """A whole file or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


_TOLD = (
    "edit_persistence",
    "dissatisfied_followup",
    "latency_s",
    "broken_calls",
    "ask_rate",
    "edit_rate",
    "right_edits",
)


def _line(setup: Setup, about: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name} {about['heldout'][name]['value'] or 0:.3f}" for name in _TOLD)
    times = " ".join(f"{name} {value:.0f}" for name, value in about["seconds"].items())
    return f"{setup.name} seed {setup.seed} cycle {about['cycle']}: {told} [{times} s]"
