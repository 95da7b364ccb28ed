"""A random walk over everything a store can go through, against a plain model of what must be there."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stages import locks
from stages.errors import UsageError
from stages.progress import Silent
from stages.registry import gc
from stages.registry.models import ArtifactRow
from stages.registry.runs import begin_run, new_run_id
from stages.registry.states import now
from stages.registry.store import Store
from stages.registry.sweep import sweep
from stages.registry.verify import verify
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint

TEXTS = st.sampled_from(["a", "b", "c"])


class StoreMachine(RuleBasedStateMachine):
    """Publishes, fails, crashes, sweeps, collects; what was published and is still needed stays."""

    _template: Path | None = None

    @initialize()
    def make(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        if StoreMachine._template is None:
            StoreMachine._template = Workspace.create(Path(tempfile.mkdtemp()) / "w", "").root
        self.workspace = Workspace(Path(shutil.copytree(StoreMachine._template, self.folder / "w")))
        self.store = Store.open(self.workspace.store_dir)
        self.present: dict[str, tuple[str, int]] = {}  # digest -> kind, version
        self.versions: dict[str, int] = {}
        self.live: str | None = None
        self.tree: dict[str, str | None] = {}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _published(self, artifacts) -> None:  # type: ignore[no-untyped-def]
        for artifact in artifacts:
            if artifact.digest in self.present:
                assert self.present[artifact.digest] == (artifact.kind, artifact.version)
            else:
                assert artifact.version > self.versions.get(artifact.kind, 0)
                self.versions[artifact.kind] = artifact.version
                self.present[artifact.digest] = (artifact.kind, artifact.version)

    @rule(text=TEXTS, status=st.sampled_from(["succeeded", "rejected", "inconclusive"]), force=st.booleans())
    def run(self, text: str, status: str, force: bool) -> None:
        result = run_stage(self.workspace, self.store, Toy(text, status), force=force)
        self._published(result.outputs.values())

    @rule(text=TEXTS)
    def fail(self, text: str) -> None:
        with contextlib.suppress(UsageError):
            run_stage(self.workspace, self.store, Toy(text, error=UsageError("no")), force=True)

    @rule(text=TEXTS)
    def grow(self, text: str) -> None:
        made = checkpoint(self.store, self.folder / "c", text, self.live)
        self.tree.setdefault(made.digest, self.live)
        self._published([made, self.store.line_state_of(made.digest)])
        self.store.move_alias("auto", "live", made.digest, reason="test")
        self.live = made.digest

    @rule(noted=st.booleans(), placed=st.booleans())
    def crash(self, noted: bool, placed: bool) -> None:
        """What a kill leaves: an open run without its lock, a writing row, perhaps an object."""
        run_id = new_run_id("collect")
        begin_run(self.store, run_id, stage="collect", line="auto", inputs={}, config={}, extra={}, seed=0)
        digest = "sha256:" + "".join(f"{ord(c):02x}" for c in run_id[-8:]) * 4
        (self.store.dir / "tmp" / run_id / "out").mkdir(parents=True)
        with self.store.write() as session:
            row = ArtifactRow(kind="report", line="auto", run_id=run_id, created_at=now())
            row.digest = digest if noted else None
            session.add(row)
        if noted and placed:
            self.store.path_of(digest).mkdir(parents=True)

    @rule()
    def sweep(self) -> None:
        sweep(self.store)
        assert not sweep(self.store)

    @rule()
    def collect(self) -> None:
        plan = gc.plan(self.store, 0.0)
        done = gc.collect(self.store, 0.0, by="test")
        assert [row.id for row in plan.remove] == [row.id for row in done.remove]
        for row in done.remove:
            assert row.digest is not None
            assert row.digest != self.live
            del self.present[row.digest]

    @rule()
    def busy(self) -> None:
        """A living run is nobody's to sweep."""
        run_id = new_run_id("collect")
        with locks.hold(self.store.run_lock_path(run_id), what="run", run=run_id):
            begin_run(
                self.store, run_id, stage="collect", line="auto", inputs={}, config={}, extra={}, seed=0
            )
            (self.store.dir / "tmp" / run_id).mkdir()
            sweep(self.store)
            assert self.store.run(run_id).state == "running"
            assert (self.store.dir / "tmp" / run_id).is_dir()
        sweep(self.store)
        assert self.store.run(run_id).state == "lost"

    @invariant()
    def what_was_published_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        found = {
            artifact.digest: (artifact.kind, artifact.version)
            for kind in ("interactions", "report", "checkpoint", "line_state")
            for artifact in self.store.all_of(kind)
        }
        assert found == self.present
        if self.live is not None:
            assert self.store.resolve("checkpoint@live").digest == self.live
            assert self.store.line_state_of(self.live).kind == "line_state"
            assert set(self.store.ancestors(self.live)) <= set(self.tree)

    @rule()
    def verify(self) -> None:
        found = verify(self.store, "full", Silent())
        assert found.problems == []
        assert found.artifacts == len(self.present)


StoreMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
TestStore = StoreMachine.TestCase
