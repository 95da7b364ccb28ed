"""A real workspace with tiny checkpoints, one real vLLM server that all end-to-end tests share, and one
batch engine.

Starting vLLM takes half a minute on two cores: tests must not start their own without need.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.engine.inprocess import InProcessEngine
from stages.eval.run import start_engine
from stages.gateway.keys import ApiKeys
from stages.linestate import LineState
from stages.modelio import checkpoint_meta
from stages.registry.store import Store
from stages.served_fingerprint import write_fingerprint
from stages.serving.detach import start_detached, stop
from stages.stage import Artifact, Output
from stages.target.endpoint import Endpoint, require_endpoint
from stages.vault import Vault
from stages.workspace import Workspace
from tests.e2e.tiny import nudge_checkpoint, write_checkpoint

HERE = Path(__file__).parent
PATIENCE_S = 1200  # engines start in half a minute, and in minutes where the machine has other work


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests may take long; what hangs is ended all the same."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


class World:
    """A workspace whose line has checkpoints `first` (live) and `second`, its child, which passed.

    Attributes:
        key: an API key of the gateway.
        folder: where the checkpoints' sources lie.
    """

    def __init__(self, root: Path, settings: str) -> None:
        self.root = root
        self.workspace = Workspace.create(root / "ws", settings)
        self.store = Store.open(self.workspace.store_dir)
        Vault.create(self.workspace.keys_dir)
        self.key = ApiKeys.create(self.workspace.keys_dir, "default")
        (self.workspace.keys_dir / "default.key").write_text(self.key)
        parent = write_checkpoint(root / "first", seed=1)
        write_fingerprint(parent, parent=None)
        self.first = self.publish(parent, None)
        child = nudge_checkpoint(parent, root / "second", seed=2, step=0.05)
        write_fingerprint(child, parent=parent)
        self.second = self.publish(child, self.first)
        for name in ("live", "anchor"):
            self.store.move_alias("auto", name, self.first.digest, reason="init", by="test")
        self.report(self.second, self.first)

    def publish(self, folder: Path, parent: Artifact | None) -> Artifact:
        """Publish a checkpoint folder with an empty line state."""
        state = self.root / f"{folder.name}-state"
        LineState().save(state)
        meta = checkpoint_meta(folder, parent=parent.digest if parent else None, generation=bool(parent))
        outputs = {
            "checkpoint": (Output("checkpoint", meta), folder),
            "line_state": (
                Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"}),
                state,
            ),
        }
        return self.store.publish_external(outputs, line="auto")["checkpoint"]

    def report(self, candidate: Artifact, baseline: Artifact) -> None:
        """A passing report, as the gate writes it."""
        source = self.root / f"report-{candidate.version}-{baseline.version}"
        source.mkdir()
        (source / "report.json").write_text("{}")
        meta = {"verdict": "pass", "candidate": candidate.digest, "baseline": baseline.digest}
        self.store.publish_external({"report": (Output("report", meta), source)}, line="auto")

    @property
    def endpoint(self) -> Endpoint:
        """Where the gateway listens now."""
        return require_endpoint(self.workspace.run_dir)

    @property
    def url(self) -> str:
        """Base of the OpenAI API."""
        return f"{self.endpoint.url}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends."""
        return {"Authorization": f"Bearer {self.key}"}


SETTINGS = """
[gateway]
port = 0
client_clock = true
[engine]
restart_backoff_s = 0.2
max_num_seqs = 32
max_model_len = 16384
"""


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A workspace that nothing serves yet."""
    return World(tmp_path_factory.mktemp("world"), SETTINGS)


@pytest.fixture(scope="session")
def served(world: World) -> Iterator[World]:
    """The same workspace behind a running `rtrl serve` with vLLM. Leave `first` served."""
    start_detached(world.workspace)
    yield world
    stop(world.workspace)


@pytest.fixture(scope="session")
def batch(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessEngine]:
    """The engine of `rtrl eval`, as the stage starts it with settings of no one's own. With whatever weights
    were asked for last: ask for yours. The last test of `test_inprocess.py` kills it."""
    workspace = Workspace.create(tmp_path_factory.mktemp("batch") / "ws", "")
    with start_engine(workspace, world.first.path) as made:
        yield made
