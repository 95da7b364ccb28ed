"""What the gate says of alarms that wait, which ones a name stands for, and how often one is posted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages.errors import IntegrityError, UsageError
from stages.monitor import alert, gate
from stages.monitor.standing import Said, Standing
from stages.stage import Artifact


def alarm(name: str, done: bool = False) -> Standing:
    said = Said("acknowledged", "ann", "2026-11-21", "looked", name, "auto", {})
    return Standing({"id": name, "text": f"{name} rose"}, said if done else None, False)


def checkpoint(name: str) -> Artifact:
    return Artifact("checkpoint", name, 1, "auto", 0, "", "run", {}, Path("/no"))


@pytest.mark.parametrize(
    ("alarms", "told", "names"),
    [
        ([alarm("a1", True)], None, ""),
        ([alarm("a1", True), alarm("a2")], "alarm a2 waits for somebody to look at it: a2 rose", "a2"),
        (
            [alarm("a1"), alarm("a2")],
            "alarm a1, and 1 more waits for somebody to look at it: a1 rose",
            "a1 a2",
        ),
        ([alarm(f"a{n}") for n in range(3)], "alarm a0, and 2 more waits for", "a0 a1 a2"),
    ],
)
def test_what_waits_is_counted_and_named(
    monkeypatch: pytest.MonkeyPatch, alarms: list[Standing], told: str | None, names: str
) -> None:
    asked: list[Any] = []

    def found(_: object, line: str, checkpoints: tuple[Artifact, ...]) -> list[Standing]:
        asked.append((line, [one.digest for one in checkpoints]))
        return alarms

    monkeypatch.setattr(gate, "alarms_of", found)
    settings = SimpleNamespace(monitor=SimpleNamespace(block=True), workspace=SimpleNamespace(line="acme"))
    workspace: Any = SimpleNamespace(settings=settings)
    store: Any = object()
    why = gate.alarmed(workspace, store, checkpoint("new"), checkpoint("old"))
    assert asked == [("acme", ["old", "new"])]
    assert (why is None) == (told is None)
    if why is not None:
        assert why.message.startswith(str(told))
        assert f"`rtrl monitor ack {names} --reason" in why.hint
    assert gate.alarmed(workspace, store, checkpoint("new"), None) is None  # nothing is served yet
    settings.monitor.block = False
    assert gate.alarmed(workspace, store, checkpoint("new"), checkpoint("old")) is None
    assert len(asked) == 1


def test_who_has_looked_is_told_beside_the_alarm() -> None:
    told = {"id": "a1", "text": "a1 rose"}
    assert alarm("a1").to_dict() == told | {"acknowledged": None}
    by = {"by": "ann", "at": "2026-11-21", "reason": "looked", "alarm": "a1"}
    assert alarm("a1", True).to_dict() == told | {"acknowledged": by}


def test_a_beginning_stands_for_one_alarm() -> None:
    known, damaged = [alarm("a12"), alarm("a13"), alarm("b1")], IntegrityError("no", hint="verify")
    assert gate._one(known, [damaged], "a12") is known[0]
    assert gate._one(known, [], "b") is known[2]
    with pytest.raises(UsageError, match="a1 stands for 2 alarms"):
        gate._one(known, [], "a1")
    assert gate._one(known, [], "c") is None
    assert gate._one(known, [damaged], "") is None
    with pytest.raises(IntegrityError):  # it may be one of those that cannot be read
        gate._one(known, [damaged], "c")


@pytest.mark.parametrize(
    ("statuses", "retries", "why", "waited"),
    [
        ([200], 3, "", []),
        ([299], 3, "", []),
        ([199, 300], 3, "http://hc.example answered 199", []),  # no 2xx, and nothing that passes
        ([300], 3, "http://hc.example answered 300", []),
        ([404], 3, "http://hc.example answered 404", []),
        ([499], 3, "http://hc.example answered 499", []),
        ([500, 429, 0, 204], 3, "", [0.5, 1.0, 2.0]),
        ([500, 503], 1, "http://hc.example answered 503", [0.5]),
        ([0], 0, "http://hc.example: TimeoutError", []),
        ([0] * 8, 7, "http://hc.example: TimeoutError", [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]),
    ],
)
def test_what_may_pass_is_tried_again_with_longer_waits(
    monkeypatch: pytest.MonkeyPatch, statuses: list[int], retries: int, why: str, waited: list[float]
) -> None:
    answers, waits = iter(statuses), list[float]()
    monkeypatch.setattr(alert.posting, "post", lambda *_: (next(answers), "TimeoutError"))
    monkeypatch.setattr(alert, "time", SimpleNamespace(sleep=waits.append))
    assert alert.post("http://hc.example/secret", {}, 1.0, retries) == why
    assert waits == waited
