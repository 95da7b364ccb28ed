"""Moving `live` and `anchor`, and what must not move with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.errors import InputMissingError, UsageError
from stages.registry.store import Store
from stages.stage import Output
from tests.stages.toy import checkpoint


def test_going_live_on_one_line_leaves_the_deployments_of_others(store: Store, tmp_path: Path) -> None:
    made = checkpoint(store, tmp_path / "c", "c")
    ids = {}
    for line in ("auto", "acme"):
        deployment = store.deployments.create(line, made.digest, by="me", reason="x")
        store.deployments.transition(deployment.id, "staged", "verifying", by="me")
        store.move_alias(line, "live", made.digest, reason="x", deployment_id=deployment.id)
        ids[line] = deployment.id
    assert {line: store.deployments.get(one).state for line, one in ids.items()} == {
        "auto": "live",
        "acme": "live",
    }


def test_an_alias_is_of_a_checkpoint_and_has_a_known_name(store: Store, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "f").write_text("report")
    report = store.publish_external({"x": (Output("report", {}), tmp_path / "r")}, line="auto")["x"]
    with pytest.raises(UsageError, match="is a report"):
        store.move_alias("auto", "live", report.digest, reason="x")
    with pytest.raises(UsageError, match="not an alias"):
        store.move_alias("auto", "newest", report.digest, reason="x")
    with pytest.raises(InputMissingError):
        store.move_alias("auto", "live", "sha256:none", reason="x")
    assert store.alias("auto", "live") is None
