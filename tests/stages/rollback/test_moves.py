"""What is asked of a gateway, in which order, and what stands as an intent when something goes wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages.errors import DependencyDownError, StoreError
from stages.rollback import away, traffic
from stages.rollback.away import Asked
from stages.rollback.patience import Patience
from stages.rollback.traffic import canary_in, intend, move, served_now
from stages.target.intent import read_intent, write_intent

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
HERE: Any = SimpleNamespace(line="auto")
WAITS = Patience(drain_timeout_s=2, swap_timeout_s=60, engine_timeout_s=30)


class Gateway:
    """Answers as it is told to, and notes what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any], float]] = []
        self.answers = answers
        monkeypatch.setattr(traffic, "post", self.post)
        monkeypatch.setattr(traffic, "served", lambda _: self.answer("served"))

    def post(self, _: object, path: str, body: dict[str, Any], timeout_s: float) -> Any:
        self.asked.append((path, body, timeout_s))
        return self.answer(path.rpartition("/")[2])

    def answer(self, name: str) -> Any:
        found = self.answers[name]
        if isinstance(found, Exception):
            raise found
        return found


def free(canary: str = "") -> dict[str, Any]:
    """What the gateway serves, with a canary or without."""
    return {"line": "auto", "checkpoint": B, "canary": {"deployment": canary} if canary else None}


def test_a_canary_loses_its_users_first_and_then_the_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(monkeypatch, close={"served": free()}, swap={"verification": {}})
    intent = intend("auto", B, A, "", "d3")
    assert (intent.reason, intent.canary) == ("rollback", "d3")
    assert intent.deployment.startswith("deployment-")
    assert move(tmp_path, HERE, intent, Path("/weights"), WAITS) == {"verification": {}}
    close, swap = gateway.asked
    assert close == ("/admin/canary/close", {"line": "auto", "drain_timeout_s": 2}, 66.0)
    assert swap == (
        "/admin/swap",
        {
            "line": "auto",
            "checkpoint": A,
            "path": "/weights",
            "deployment": intent.deployment,
            "drain_timeout_s": 2,
            "cut": True,
            "limit_s": 30,
        },
        60,
    )
    assert read_intent(tmp_path, "auto") == intent


def test_where_only_a_canary_ends_nothing_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the gateway answered: what counts is that it serves none afterwards."""
    intent = intend("auto", B, B, "worse", "d3")
    assert (intent.deployment, intent.reason) == ("d3", "worse")
    for close in ({"served": free()}, None, OSError(), {"served": free("d4")}):
        gateway = Gateway(monkeypatch, close=close, served=free())
        assert move(tmp_path, HERE, intent, None, WAITS) == {}
        assert [path for path, *_ in gateway.asked] == ["/admin/canary/close"]
        assert read_intent(tmp_path, "auto") == intent


@pytest.mark.parametrize("after", [free("d3"), {"line": "auto", "canary_opening": "d3"}, OSError(), None])
def test_a_canary_that_does_not_end_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    gateway = Gateway(monkeypatch, close=OSError(), served=after)
    assert move(tmp_path, HERE, intend("auto", B, A, "", "d3"), Path("/w"), WAITS) is None
    assert [path for path, *_ in gateway.asked] == ["/admin/canary/close"]
    assert read_intent(tmp_path, "auto") is None


def test_weights_that_do_not_load_leave_no_intent_but_that_of_a_canary_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for swap in (None, OSError(), DependencyDownError("down", hint="")):
        Gateway(monkeypatch, close={"served": free()}, swap=swap)
        assert move(tmp_path, HERE, intend("auto", B, A, ""), Path("/w"), WAITS) is None
        assert read_intent(tmp_path, "auto") is None
    with pytest.raises(
        DependencyDownError, match="the canary has ended; the engine did not go back to sha256:a"
    ):
        move(tmp_path, HERE, intend("auto", B, A, "worse", "d3"), Path("/w"), WAITS)
    left = read_intent(tmp_path, "auto")
    assert left is not None
    assert (left.leaving, left.checkpoint, left.canary, left.reason) == (B, B, "d3", "worse")


def test_what_the_gateway_serves_now(monkeypatch: pytest.MonkeyPatch) -> None:
    Gateway(monkeypatch, served=free("d3"))
    assert served_now(HERE, "auto") == free("d3")
    Gateway(monkeypatch, served=OSError())
    assert served_now(HERE, "auto") == {}
    assert canary_in({"canary": {"share": 0.1}, "canary_opening": "d4"}) == "d4"
    assert canary_in({"canary": {"deployment": "d3"}, "canary_opening": "d4"}) == "d3"
    assert canary_in({}) == ""


BACK = {"line": "auto", "checkpoint": B, "deployment": "d2", "previous": A, "previous_ref": "checkpoint@v1"}


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], to: str = "") -> Any:
    monkeypatch.setattr(away, "served_now", lambda *_: told)
    return away.from_gateway(tmp_path, HERE, Asked("auto", "", to), WAITS, 0)


def test_what_was_moved_already_is_not_moved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway is asked for nothing: the canary is gone, and the weights are there."""
    intent = intend("auto", B, A, "worse", "d3")
    write_intent(tmp_path, intent)
    done = asked(tmp_path, monkeypatch, BACK | {"checkpoint": A, "deployment": intent.deployment})
    assert (done.intent, done.answer, done.seconds, done.lock) == (intent, {}, 0.0, None)
    gateway = Gateway(monkeypatch, close=OSError(), served=free("d3"))
    still = BACK | {"checkpoint": A, "deployment": intent.deployment, "canary": {"deployment": "d3"}}
    assert asked(tmp_path, monkeypatch, still) is None
    assert [path for path, *_ in gateway.asked] == ["/admin/canary/close"]


def test_of_one_without_a_canary_too_and_what_was_only_intended_is_moved_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = intend("auto", B, A, "worse")
    write_intent(tmp_path, intent)
    gateway = Gateway(monkeypatch, swap={})
    moved = BACK | {"checkpoint": A, "deployment": intent.deployment}
    assert asked(tmp_path, monkeypatch, moved).intent == intent
    assert gateway.asked == []
    assert asked(tmp_path, monkeypatch, BACK | {"previous_path": "/a"}).intent == intent
    assert [(path, body["path"]) for path, body, _ in gateway.asked] == [("/admin/swap", "/a")]


def test_what_is_not_on_record_is_gone_on_from() -> None:
    """The registry has C live and the canary open; the gateway serves B already, and knows of neither."""
    c = "sha256:" + "c" * 64
    found = away._intended(Asked("auto", "", A), BACK, intend("auto", c, B, "worse", "d3"))
    assert found is not None
    assert (found.leaving, found.checkpoint, found.canary) == (c, A, "d3")
    first = away._intended(Asked("auto", ""), BACK | {"deployment": ""}, None)  # served without one
    assert first is not None
    assert (first.leaving, first.checkpoint) == (B, A)


def test_an_intent_of_another_time_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks of a checkpoint that is neither served nor what was before."""
    write_intent(tmp_path, intend("auto", A, "sha256:" + "c" * 64, "old"))
    Gateway(monkeypatch, swap={"verification": {"ok": True}})
    done = asked(tmp_path, monkeypatch, BACK | {"previous_path": "/a"})
    assert (done.intent.leaving, done.intent.checkpoint, done.intent.reason) == (B, A, "rollback")
    assert done.answer == {"verification": {"ok": True}}


@pytest.mark.parametrize(
    ("to", "digest"),
    [("checkpoint@v1", A), (A, A), ("sha256:" + "a" * 6, A), (B, B), ("sha256:aaaaa", None)],
)
def test_a_name_that_the_gateway_knows(to: str, digest: str | None) -> None:
    if digest is None:
        with pytest.raises(StoreError, match="knows no") as caught:
            away._named(to, BACK)
        assert caught.value.hint == f"it can go back to checkpoint@v1 {A}"
    else:
        assert away._named(to, BACK) == digest
    with pytest.raises(StoreError) as alone:
        away._named(A, {"checkpoint": B})
    assert alone.value.hint.startswith("it can go back to nothing now")
