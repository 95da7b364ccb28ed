"""Which edits ended undone is decided once: the signals of an episode agree about it, and about when."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stages.distill.facts import Episode
from stages.distill.measure import measure, with_followups
from stages.distill.signals.dissatisfied_followup import EXPLICIT_NO
from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edits import edits_of
from stages.distill.signals.outcome import edited
from stages.distill.spec import RewardSpec, parse
from stages.records import Event
from tests.stages.distill.events import HOUR, event
from tests.stages.distill.followups import probability

REQUEST = "make total() add the tax before it rounds"
BEFORE, AFTER = "def total(p):\n    return round(p)\n", "def total(p):\n    return round(p + tax(p))\n"
THANKS = event("user_message", 20, text="thanks, perfect")
EDIT: dict[str, Any] = {"path": "a.py", "before": BEFORE, "after": AFTER}
KEPT = event("edit_survival", HOUR, path="a.py", horizon_s=3600, now=AFTER)


def spec(persistence_s: float = 3600.0, followup_s: float = 3600.0) -> RewardSpec:
    return parse(
        f"""
        schema = "rtrl-reward/1"
        name = "test"
        [horizons]
        persistence_s = {persistence_s}
        followup_s = {followup_s}
        [signals.edit_persistence]
        weight = 1.0
        unknown = 0.0
        """,
        "test",
    )


def signals(
    events: list[Event], of: RewardSpec | None = None, answered: tuple[int, ...] = (0,), took: int = 1
) -> tuple[Any, Any, Any]:
    """(edit_persistence, edit_rejected, dissatisfied_followup) of an episode asked at these times (ms)."""
    row = dict.fromkeys(("key_id", "user", "session", "arm", "checkpoint"), "x")
    numbers = dict.fromkeys(("prompt_tokens", "output_tokens", "duration_ms", "ttft_ms"), 1) | {
        "duration_ms": took
    }
    generation = {
        "id": "g",
        "tools_digest": "",
        "prompt_base": "",
        "prompt_prefix": 0,
        "defect": "",
        "finish_reason": "stop",
        "features": [],
        "tool_calls": [],
        "invalid_tool_calls": 0,
    }
    episode = Episode(
        {**row, "id": "e", "lag": 0, "first_at": 0, "ripe_at": 0, "first_seq": 0},
        [generation | numbers | {"at": at} for at in answered],
        events,
        request=REQUEST,
        thinking=[0.0] * len(answered),
        forgotten=True,
    )
    measured = with_followups(*measure([episode], of or spec())).to_pylist()[0]
    return tuple(measured[n] for n in ("edit_persistence", "edit_rejected", "dissatisfied_followup"))


def test_a_message_is_about_the_last_answer_of_the_episode() -> None:
    thanks = [event("user_message", 70_000, text="thanks, perfect")]
    assert signals(thanks, spec(followup_s=60.0), (0, 20_000))[2] == CONTENT
    assert signals(thanks, spec(followup_s=60.0), (0, 9_999))[2] is None


def test_an_empty_message_is_none() -> None:
    """As docs/http.md says: nothing is known of what the person thinks."""
    assert [signals([event("user_message", 20, text=text)])[2] for text in ("", " \n")] == [None, None]
    assert (
        signals([event("user_message", 20, text=""), event("user_message", 30, text="thanks, perfect")])[2]
        == signals([THANKS])[2]
    )


CONTENT = probability("thanks, perfect", REQUEST)


def test_horizons_count_from_when_the_request_came_whatever_the_answer_took() -> None:
    """As docs/http.md says. What it took is of the wall clock, and simulated users live by another."""
    for at, expected in ((3_600_000, CONTENT), (3_600_001, None)):
        assert signals([event("user_message", at, text="thanks, perfect")], took=600_000)[2] == expected
    late = event("user_message", 4_200_000, text="thanks, perfect")
    assert signals([late], spec(followup_s=4200.0), took=600_000)[2] == CONTENT


def test_a_refusal_made_good_is_forgiven_by_every_signal() -> None:
    events = [
        event("edit_rejected", 5, path="a.py"),
        event("edit_applied", 9, generation="g2", **EDIT),
        THANKS,
        KEPT,
    ]
    assert signals(events) == (1.0, 1.0, CONTENT)
    assert pytest.approx(0.05, abs=0.05) == CONTENT


def test_an_edit_that_ended_undone_outranks_thanks() -> None:
    events = [event("edit_applied", 1, **EDIT), event("edit_reverted", 9, path="a.py"), THANKS]
    assert signals(events) == (0.0, 1.0, EXPLICIT_NO)
    assert signals([event("edit_rejected", 9, path="a.py"), THANKS]) == (0.0, 1.0, EXPLICIT_NO)


def test_an_undone_edit_that_nobody_spoke_of() -> None:
    assert signals([event("edit_applied", 1, **EDIT), event("edit_rejected", 9)]) == (0.0, 1.0, None)


@pytest.mark.parametrize("followup_s", [10.0, 7200.0])
def test_in_time_is_the_horizon_of_the_edit(followup_s: float) -> None:
    """An edit at 2 s with a horizon of 60 s can be undone until 62 s, whatever the horizon of a message."""
    horizons = spec(60.0, followup_s)
    told = [event("edit_applied", 2000, **EDIT), event("user_message", 5000, text="thanks, perfect")]
    in_time, late = (event("edit_reverted", at, path="a.py") for at in (62_000, 62_001))
    assert signals([*told, in_time], horizons) == (0.0, 1.0, EXPLICIT_NO)
    assert signals([*told, late], horizons) == (None, 0.0, CONTENT)


def test_an_edit_told_by_name_alone_is_an_edit_and_its_persistence_is_not_known() -> None:
    def told(kind: str, at: int, **data: str) -> Event:
        return Event(id=f"{kind}{at}", key_id="k", generation_id="g", type=kind, at=at, wall=at, data=data)  # type: ignore[arg-type]

    named = [told("edit_applied", 1, path="a.py")]
    assert edited(edits_of(named, 0, 1000))
    assert edit_persistence(named, 1000, edits_of(named, 0, 1000)) is None
    undone = told("edit_reverted", 2, path="a.py")
    assert not edited(edits_of([*named, undone], 0, 1000))
    for kind in ("edit_rejected", "edit_reverted"):
        assert not edited(edits_of([*named, told(kind, 2)], 0, 1000)), "of all files"
    theirs = event("edit_reverted", 2, generation="other")
    assert not edited(edits_of([*named, theirs], 0, 1000))
    with_text = event("edit_applied", 1, generation="other", path="b.py", before="", after="a = total(1)\n")
    assert edits_of([*named, with_text, theirs], 0, 1000).unseen == {"a.py"}, "it undoes its own"
    # what is undone after the horizon stands, and so does another's edit when a proposal is refused
    assert edited(edits_of([*named, told("edit_reverted", 1500, path="a.py")], 0, 1000))
    other = event("edit_rejected", 2, generation="other", path="a.py")
    assert edited(edits_of([*named, other], 0, 1000))


@pytest.mark.parametrize("kind", ["edit_rejected", "edit_reverted"])
@pytest.mark.parametrize("named", [{}, {"path": "a.py"}])
def test_an_edit_told_by_name_alone_makes_good_what_was_refused_before(
    kind: str, named: dict[str, str]
) -> None:
    """As one whose text is told; it was a lost change, and no edit."""
    events = [event(kind, 2, **named), event("edit_applied", 3, path="a.py")]
    found = edits_of(events, 0, HOUR)
    assert (found.undone, found.ever_undone, edited(found)) == (False, True, True)
    assert edit_persistence(events, HOUR, found) is None


def test_thousands_of_edits_of_parts_read_the_measured_file_once() -> None:
    """It was read again for each of them: 3,000 in a file of 3,000 lines took twelve seconds."""
    n = 4_000
    lines = [f"the_total_{k} = compute({k})" for k in range(n)]
    events = [
        event("edit_applied", k, path="a.py", before=line, after=f"{line} + tax({k})", part=True)
        for k, line in enumerate(lines)
    ]
    now = "\n".join(f"{line} + tax({k})" if k % 4 else line for k, line in enumerate(lines))
    events.append(event("edit_survival", HOUR, path="a.py", horizon_s=3600, now=now))
    began = time.process_time()
    assert edit_persistence(events, HOUR, edits_of(events, 0, HOUR)) == 0.75
    assert time.process_time() - began < 5


def test_thousands_of_edits_and_refusals_take_seconds_at_most() -> None:
    """A client that undoes one by one what it applied: the time grew with their product, 3,000 and 3,000 took
    four seconds. Every second edit is refused, and of what was never applied all is measured."""
    n = 12_000
    events = [
        event("edit_applied", k, path=f"{k}.py", before="", after=f"the_total = {k}\n") for k in range(n)
    ]
    events += [event("edit_rejected", n + k, path=f"{2 * k}.py") for k in range(n // 2)]
    events += [event("edit_rejected", 2 * n + k, path=f"never/{k}.py") for k in range(n // 2)]
    events += [
        event("edit_survival", HOUR, path=f"never/{k}.py", horizon_s=3600, added=1, added_kept=1, deleted=0,
              deleted_kept=0) for k in range(n)
    ]  # fmt: skip
    began = time.process_time()
    found = edits_of(events, 0, HOUR)
    # half of the applied are undone, the others not measured; half of what was measured alone was refused
    assert edit_persistence(events, HOUR, found) == pytest.approx((n / 2) / (n / 2 + n))
    assert time.process_time() - began < 10


def test_one_file_however_its_path_is_spelled() -> None:
    """An edit that was taken back by another spelling of its file was two, and half of them was kept."""
    there, back = dict(EDIT), {"before": AFTER, "after": BEFORE}
    for again in ("./a.py", ".//a.py", "lib/../a.py"):
        events = [event("edit_applied", 1, **there), event("edit_applied", 2, path=again, **back)]
        assert not edited(edits_of(events, 0, HOUR))
        measured = [
            event("edit_survival", HOUR, path=name, horizon_s=3600, now=BEFORE) for name in ("a.py", again)
        ]
        assert signals([*events, *measured])[0] is None
    undone = [event("edit_applied", 1, **there), event("edit_reverted", 9, path="./a.py"), KEPT]
    assert signals(undone)[0] == 0.0
    measured_as = event("edit_survival", HOUR, path="./a.py", horizon_s=3600, now=AFTER)
    assert signals([event("edit_applied", 1, **there), measured_as])[0] == 1.0
    there["path"], now = "pr\u00fcfung.py", {"horizon_s": 3600, "now": AFTER}  # and as macOS lists it
    decomposed = event("edit_survival", HOUR, path="pru\u0308fung.py", **now)
    assert signals([event("edit_applied", 1, **there), decomposed])[0] == 1.0
