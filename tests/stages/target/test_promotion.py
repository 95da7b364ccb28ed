"""A promotion whose canary ends before it is on record, or of which the gate has found a loss since."""

from __future__ import annotations

from typing import Any

import pytest

from stages.errors import GateRejectedError
from stages.registry.states import StateError
from stages.target.admin import Admin
from tests.stages.target.fixtures import Line, line, prepared

__all__ = ["line", "prepared"]


def test_traffic_goes_back_to_the_alias(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine died meanwhile, and the gateway put the end on record: everybody had it, for seconds."""
    deployments = line.store.deployments
    canary = deployments.create("auto", line.b.digest, by="test", reason="test", previous=line.a.digest)
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        deployments.transition(canary.id, before, after)
    swap = line.gateway.swap

    def late(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if deployments.get(canary.id).state == "canary":
            deployments.end_canary(canary.id, "its engine: it ended", by="rtrl serve")
        return swap(body)

    monkeypatch.setattr(line.gateway, "swap", late)
    with pytest.raises(StateError):
        line.deploy(promote=True)
    assert [each["checkpoint"] for each in line.gateway.swaps] == [line.b.digest, line.a.digest]
    assert line.live == line.served == line.a.digest
    assert deployments.get(canary.id).state == "rolled_back"


def test_a_loss_that_was_found_since_it_was_opened_counts(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest report about a candidate decides; `rtrl ab --decide` promoted what it called a loss."""
    monkeypatch.setattr(Admin, "close_canary", lambda *_, **__: {})
    deployments, first = line.store.deployments, line.report(line.b, line.a)
    canary = deployments.create(
        "auto", line.b.digest, by="test", reason="test", previous=line.a.digest, report=first.digest
    )
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        deployments.transition(canary.id, before, after)
    line.report(line.b, line.a, "regressed")
    with pytest.raises(GateRejectedError, match="regressed"):
        line.deploy(promote=True, only=canary.id)
    assert (line.gateway.swaps, line.live) == ([], line.a.digest)
    forced = line.deploy(promote=True, override=True, reason="its users say otherwise")
    assert (forced.metrics["override"], line.live) == (True, line.b.digest)
    assert forced.warnings == ["deployed without a passing report: its users say otherwise"]
