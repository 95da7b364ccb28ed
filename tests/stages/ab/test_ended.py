"""What is said of canaries that are over, by their state."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stages.ab.ended import ended, no_canary
from stages.errors import RolledBackError
from stages.registry.deployments import Deployment

WAS = Deployment(
    id="d1",
    line="auto",
    checkpoint="sha256:1",
    state="live",
    by="somebody",
    reason="to try it",
    report=None,
    previous=None,
    override=False,
    salt="s",
    run_id=None,
    data={"canary": {"share": 0.5}},
    created_at="2026-11-21T08:00:00.000+00:00",
    updated_at="2026-11-21T09:15:42.000+00:00",
)


def a_store(*newest_first: Deployment) -> Any:
    found = {each.id: each for each in newest_first}
    return SimpleNamespace(
        deployments=SimpleNamespace(history=lambda line, limit: list(newest_first), get=found.__getitem__)
    )


def last(*newest_first: Deployment) -> str:
    return no_canary(a_store(*newest_first), "auto").message


def test_how_the_last_one_ended() -> None:
    none = "no canary of line auto is open"
    assert last() == none
    plain = replace(WAS, id="d2", data={})
    assert last(plain) == none  # deployed to everybody: no canary
    assert last(plain, WAS, replace(WAS, id="d0")) == f"{none}; the last one: d1 was promoted"
    assert last(replace(WAS, state="retired")) == f"{none}; the last one: d1 was promoted"
    at = "2026-11-21 09:15Z"
    assert last(replace(WAS, state="failed")) == f"{none}; the last one: d1 ended as failed at {at}"
    away = replace(WAS, state="rolled_back")
    assert last(away) == f"{none}; the last one: d1 was rolled back at {at}: to try it"
    why = replace(away, data={**WAS.data, "rollback_reason": "it is worse"})
    assert last(why) == f"{none}; the last one: d1 was rolled back at {at}: it is worse"


@pytest.mark.parametrize("state", ["rolling_back", "rolled_back"])
def test_one_that_was_taken_away_is_an_error_and_a_deployment_of_all_is_none(state: str) -> None:
    away = replace(WAS, state=state)
    with pytest.raises(RolledBackError, match="d1 was rolled back"):
        ended(a_store(away), "d1")
    assert not ended(a_store(replace(away, data={})), "d1")


@pytest.mark.parametrize(
    ("state", "promoted"), [("live", True), ("retired", True), ("canary", False), ("failed", False)]
)
def test_whether_it_was_promoted(state: str, promoted: bool) -> None:
    assert ended(a_store(replace(WAS, state=state)), "d1") is promoted
