"""What the monitors are given of a window: whose word each signal is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.distill.measure import MEASURED
from stages.distill.monitored import cycle_of, read_to, unchanged
from stages.distill.spec import PRICE, load
from stages.monitor.charts import update
from stages.monitor.cycle import Cycle
from stages.monitor.history import History
from stages.stage import Artifact

NOTHING = ("edit_persistence", "edit_persistence_24h", "edit_persistence_7d", "dissatisfied_followup")


def window(
    at: int = 1,
    *,
    spec: str = "completions",
    root: Path = Path(),
    why_not: Sequence[str] = (),
    **columns: Sequence[float | None],
) -> Cycle:
    """A cycle of completions by ten users; what is not given is 0, or of `NOTHING` and outcomes not known."""
    n = len(next(iter(columns.values())))
    unknown = dict.fromkeys((*NOTHING, "completion_accepted", "task_outcome"), [None] * n)
    given = {"at": [at] * n, "n_generations": [1] * n, **unknown, **columns}
    texts = {"user": [f"u{row // 10 % 10}" for row in range(n)], "watched.cell": ["none/any/small/brief"] * n}

    def column(field: pa.Field) -> pa.Array:
        empty = "" if pa.types.is_string(field.type) else False if pa.types.is_boolean(field.type) else 0
        return pa.array({**given, **texts}.get(field.name, [empty] * n), type=field.type)

    measured = pa.Table.from_arrays([column(field) for field in MEASURED], schema=MEASURED)
    accepted = np.array(given["completion_accepted"], dtype=np.float64)
    reward = np.where(np.isnan(accepted), 0.0, accepted - 0.25)
    return cycle_of(measured, reward, load(spec, root)[0], f"sha256:{at}", why_not=why_not)


def test_who_was_shown_no_change_has_refused_none() -> None:
    """The 0 of `edit_rejected` is known of each episode, and a word of users only where there was an edit."""
    edited, rejected = [0.0, 0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 1.0]
    taken = [1.0, None, None, None, 1.0]
    found = window(edited=edited * 20, edit_rejected=rejected * 20, completion_accepted=taken * 20)
    assert found.told is not None
    assert found.user is not None
    np.testing.assert_array_equal(found.told[:5], [1.0, np.nan, 0.0, -1.0, 0.0])  # the last: (1 - 1) / 2
    np.testing.assert_array_equal(found.user[:5], [np.nan, np.nan, 0.0, -1.0, -1.0])


def test_what_gives_no_gradient_by_no_users_hand_is_left_out() -> None:
    """One was sampled for another arm, one greedily, as its user wants, and one lost half of its calls."""
    lost = {"watched.lost_turns": [0.5, 0.5, 0.5]}
    assert "left_out" not in window(**lost).columns
    found = window(why_not=["arm", "greedy", ""], **lost)
    assert found.columns["left_out"].tolist() == [1.0, 0.0, 0.5]


FREE = """
schema = "rtrl-reward/1"
name = "free"
[signals.edit_rejected]
weight = 0.0
unknown = 0.0
[signals.length_cost]
weight = -0.01
unknown = 0.0
"""


def test_what_is_not_trained_on_is_held_out_where_enough_tell_it(tmp_path: Path) -> None:
    twenty = {"edited": [1.0] * 20 + [0.0] * 10, "edit_rejected": [1.0] * 10 + [0.0] * 20}
    found = window(**twenty)
    assert found.user is not None
    assert np.nansum(found.user) == -10
    assert window(**{**twenty, "edited": [1.0] * 19 + [0.0] * 11}).user is None
    (tmp_path / "free.toml").write_text(FREE)
    weightless = window(spec="free.toml", root=tmp_path, **twenty).user
    np.testing.assert_array_equal(weightless, found.told)


def test_a_reward_less_its_price_is_another_one() -> None:
    specs = {name: window(spec=name, edited=[1.0]).spec for name in ("default", "completions")}
    assert [f" less {PRICE}" in spec for spec in specs.values()] == [True, False]
    assert all(spec.endswith(", refusals of edits") for spec in specs.values())


def test_up_to_where_interactions_were_read() -> None:
    def of(**meta: object) -> tuple[int, int] | None:
        return read_to(Artifact("interactions", "sha256:1", 1, "auto", 0, "", "run", meta, Path("/no")))

    assert of(window={"now": 5, "last_seq": 7}) == (5, 7)
    assert of() is None
    history = History(forgotten=3)
    found = unchanged(history.to_state())
    assert (found.history, found.alarms, found.notes) == (history, [], [])


def test_completions_that_are_taken_more_often_are_no_divergence() -> None:
    """No code is changed: what users told beside the reward was a 0 each, which did not rise with it."""
    history, alarms = History(), []
    for at in range(1, 9):
        cycle = window(at, completion_accepted=([1.0] * (2 + at) + [0.0] * (8 - at)) * 60)
        found = update(history, cycle)
        history = found.history
        alarms += [alarm.behaviour for alarm in found.alarms]
    assert alarms == []


def test_completions_that_are_taken_less_often_are_an_alarm() -> None:
    """By the reward alone nobody is told: it falls, which is no divergence."""
    history, alarms = History(), []
    for at in range(1, 9):
        taken = 4 if at < 7 else 1  # of ten that were shown; two more were not
        shown = [1.0] * taken + [0.0] * (10 - taken)
        found = update(history, window(at, completion_accepted=[*shown, None, None] * 60))
        history = found.history
        alarms += [(at, alarm.behaviour, alarm.direction, alarm.value) for alarm in found.alarms]
    assert alarms == [(7, "completion_accepted", "down", 0.1)]
