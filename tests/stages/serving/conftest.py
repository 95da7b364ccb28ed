"""A workspace served by the real gateway with the stub engine behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stages.gateway.keys import ApiKeys
from stages.linestate import LineState
from stages.registry.store import Store
from stages.serving.detach import start_detached, stop
from stages.stage import Artifact, Output
from stages.target.endpoint import Endpoint, require_endpoint
from stages.vault import Vault
from stages.workspace import Workspace

SETTINGS = """
[gateway]
port = 0
[engine]
program = "stub"
restart_backoff_s = 0.1
[deploy]
"""


class StubWorld:
    """Checkpoints `first` (live) and `second`, which passed against it; folders without weights in them."""

    def __init__(self, root: Path, settings: str = SETTINGS) -> None:
        self.root = root
        self.workspace = Workspace.create(root / "ws", settings)
        self.store = Store.open(self.workspace.store_dir)
        Vault.create(self.workspace.keys_dir)
        self.key = ApiKeys.create(self.workspace.keys_dir, "default")
        self.first = self.checkpoint("first", None)
        self.second = self.checkpoint("second", self.first.digest)
        self.store.move_alias("auto", "live", self.first.digest, reason="init", by="test")
        self.report(self.second, self.first)

    def checkpoint(
        self,
        name: str,
        parent: str | None,
        *,
        fingerprint: bool = True,
        words: str = "",
        config: str = "{}",
    ) -> Artifact:
        source = self.root / name
        source.mkdir()
        if words:  # what the stub engine does with requests that do not say
            (source / "stub.txt").write_text(words)
        (source / "config.json").write_text(config)
        (source / "tokenizer.json").write_text("{}")
        (source / "model.safetensors").write_bytes(name.encode())
        child = [[-1.0, -2.0 if parent else -3.0]]
        document = {
            "schema": "rtrl-fingerprint/1",
            "probes": [[1, 2, 3]],
            "logprobs": {"parent": [[-1.0, -3.0]] if parent else None, "child": child},
            "tensors": {"w": {"sha256": name, "numel": 4}},
        }
        if fingerprint:
            (source / "served_fingerprint.json").write_text(json.dumps(document))
        LineState().save(self.root / f"{name}-state")
        outputs = {
            "checkpoint": (Output("checkpoint", {"parent": parent}), source),
            "line_state": (
                Output("line_state", {"checkpoint": "output:checkpoint", "stage": "train"}),
                self.root / f"{name}-state",
            ),
        }
        return self.store.publish_external(outputs, line="auto")["checkpoint"]

    def report(self, candidate: Artifact, baseline: Artifact, line: str = "auto") -> None:
        source = self.root / f"report-{candidate.version}-{baseline.version}-{line}"
        source.mkdir()
        (source / "report.json").write_text("{}")
        meta = {"verdict": "pass", "candidate": candidate.digest, "baseline": baseline.digest}
        self.store.publish_external({"report": (Output("report", meta), source)}, line=line)

    @property
    def endpoint(self) -> Endpoint:
        return require_endpoint(self.workspace.run_dir)

    def ask(self, text: str = "hi") -> httpx.Response:
        """One chat request with logprobs."""
        return httpx.post(
            f"{self.endpoint.url}/v1/chat/completions",
            json={"model": "rtrl", "messages": [{"role": "user", "content": text}], "logprobs": True},
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=30,
        )

    def voice(self) -> list[float]:
        """Logprobs of the stub's answer: they tell which folder it holds."""
        answer = self.ask()
        assert answer.status_code == 200, answer.text
        return [entry["logprob"] for entry in answer.json()["choices"][0]["logprobs"]["content"]]


@pytest.fixture(scope="module")
def stub_world(tmp_path_factory: pytest.TempPathFactory) -> StubWorld:
    return StubWorld(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def idle(stub_world: StubWorld) -> Iterator[StubWorld]:
    """The workspace, with nothing serving it before and after."""
    yield stub_world
    stop(stub_world.workspace)


@pytest.fixture(scope="module")
def serving(stub_world: StubWorld) -> Iterator[StubWorld]:
    """The workspace behind a running gateway, shared by a module's tests."""
    start_detached(stub_world.workspace)
    yield stub_world
    stop(stub_world.workspace)
