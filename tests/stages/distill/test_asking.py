"""The price of asking on the simulated population: questions stay worth while exactly where they help.

People react to answers as they do in the demo; what comes of it is measured and scored by the default spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cursorbench.harness import call_parser
from cursorbench.harness.chat import assistant_message
from evals.population.episode import begin, scratch
from evals.population.people import Case, day_of
from stages.distill import stabiliser
from stages.distill.facts import Episode
from stages.distill.measure import measure, with_followups
from stages.distill.reward import combine
from stages.distill.spec import RewardSpec, load
from stages.records import Event

USERS, REQUESTS = 60, 240
ASK = "Which value should it be?"


def answered(case: Case, text: str, root: Path) -> Episode:
    """The episode of one scripted answer, as distill would read it."""
    episode = begin(case, root)
    episode.loop.receive(assistant_message(text))
    if episode.loop.stop is None:
        episode.loop.receive(assistant_message("Done."))
    reaction = episode.react()
    episode.close()
    row = {
        "id": "g", "user": case.person.id, "episode": "e", "at": 0, "prompt_tokens": 50, "output_tokens": 10,
        "ttft_ms": 1.0, "duration_ms": 2.0, "tool_calls": [], "invalid_tool_calls": 0, "tools_digest": "",
        "features": [], "prompt_base": "", "prompt_prefix": 0, "defect": "", "finish_reason": "stop",
    }  # fmt: skip
    head = {
        "id": "e", "key_id": "k", "user": case.person.id, "session": "s", "arm": "live", "checkpoint": "c",
        "lag": 0, "first_at": 0, "ripe_at": 0, "first_seq": 0,
    }  # fmt: skip
    events = [
        Event(
            id=str(n), key_id="k", generation_id="g", type=happening.type,  # type: ignore[arg-type]
            at=int(1000 * happening.after_s), wall=0, data=happening.data,
        )
        for n, happening in enumerate(reaction.happenings)
    ]  # fmt: skip
    final = ASK if text == ASK else "Done."
    return Episode(head, [row], events, request=case.intent.request, said=final, thinking=[0.0])


def edit(case: Case, after: str) -> str:
    return call_parser.render("edit_file", {"path": case.path, "old": case.before, "new": after})


@dataclass(frozen=True)
class Table:
    """Rewards without the price [cases] by what was done; which cases are vague; their stratum's code."""

    asked: Any
    right: Any
    wrong: Any
    vague: Any
    stratum: Any
    clarified: Any


@pytest.fixture(scope="module")
def table() -> Table:
    spec, _ = load("default", Path())
    cases = [case for of in day_of("train", 3, USERS, REQUESTS) for case in of if case.kind != "beyond"]
    with scratch() as root:
        texts = (
            lambda case: ASK,
            lambda case: edit(case, case.intent.goal),
            lambda case: edit(case, case.before.replace("return ", "return 1 + ", 1)),
        )
        found = [rewards([answered(case, text(case), root) for case in cases], spec) for text in texts]
    _, codes = np.unique(found[0][1], return_inverse=True)
    vague = np.array([case.kind == "vague" for case in cases])
    return Table(*(reward for reward, _, _ in found), vague, codes, found[0][2])


def rewards(episodes: list[Episode], spec: RewardSpec) -> tuple[Any, list[str], Any]:
    measured = with_followups(*measure(episodes, spec))
    values = {
        name: measured[name].to_numpy().astype(float) for name in spec.names if name in measured.column_names
    }
    nothing = np.full(len(episodes), np.nan)
    values |= {"latency": nothing, "latency_first_token": nothing}
    reward = combine(values, np.zeros(len(episodes), dtype=np.int64), spec, price=0.0).reward
    return reward, measured["stratum"].to_pylist(), values["clarified"]


def test_at_equal_price_a_question_is_worth_more_than_a_guess_where_something_is_unsaid(table: Table) -> None:
    """A guess at what is unsaid is right one time in eight; an edit of a clear request half of the time."""
    assert table.clarified.all()
    vague, clear = table.vague, ~table.vague
    guess = (table.right[vague].mean() + 7 * table.wrong[vague].mean()) / 8
    edits = (table.right[clear].mean() + table.wrong[clear].mean()) / 2
    assert table.asked[vague].mean() == pytest.approx(-0.12, abs=0.06)
    assert guess == pytest.approx(-0.57, abs=0.06)
    assert table.asked[clear].mean() < edits - 0.3


def lived(table: Table, spec: RewardSpec, *, able: float, priced: bool) -> list[dict[str, float]]:
    """60 windows of a policy with two chances to ask, on vague and on clear requests.

    REINFORCE as `train` does it: the advantage is over the stratum's running mean. Its edits are right one
    time in eight on vague requests and with the chance `able` on clear ones.
    """
    random = np.random.default_rng(0)
    logits, baseline = np.array([-0.4, -1.2]), np.zeros(table.stratum.max() + 1)
    state: dict[str, Any] = {}
    told = []
    for _ in range(60):
        rows = random.integers(0, len(table.vague), 1200)
        kind = (~table.vague[rows]).astype(int)
        chance = 1 / (1 + np.exp(-logits))
        ask = random.random(len(rows)) < chance[kind]
        right = random.random(len(rows)) < np.where(kind == 0, 1 / 8, able)
        reward = np.where(ask, table.asked[rows], np.where(right, table.right[rows], table.wrong[rows]))
        price = 0.0
        if priced:
            assert spec.stabiliser is not None
            dual = stabiliser.moved(state, float(1 - ask.mean()), len(rows), spec.stabiliser)
            state, price = dual.to_state(), dual.price
        reward = reward - price * ask
        advantage = reward - baseline[table.stratum[rows]]
        for code in np.unique(table.stratum[rows]):
            baseline[code] += 0.3 * (reward[table.stratum[rows] == code].mean() - baseline[code])
        slope = np.where(ask, 1 - chance[kind], -chance[kind]) * advantage
        logits = logits + 8.0 * np.array([slope[kind == 0].sum(), slope[kind == 1].sum()]) / len(rows)
        asked, vague = ask[kind == 0], reward[kind == 0]
        told.append(
            {
                "vague": float(asked.mean()),
                "clear": float(ask[kind == 1].mean()),
                "edits": float(1 - ask.mean()),
                "price": price,
                "gain": float(vague[asked].mean() - vague[~asked].mean()),  # over a guess at the same
            }
        )
    return told


@pytest.fixture(scope="module")
def spec() -> RewardSpec:
    """The default spec, as it is shipped."""
    found, _ = load("default", Path())
    assert found.stabiliser is not None
    assert found.stabiliser.band == "history"
    return found


def mean(windows: list[dict[str, float]], name: str) -> float:
    return sum(window[name] for window in windows) / len(windows)


def test_a_weak_policy_that_may_ask_for_free_stops_editing_and_with_the_price_it_does_not(
    table: Table, spec: RewardSpec
) -> None:
    free = lived(table, spec, able=0.15, priced=False)
    assert free[-1]["edits"] < 0.05
    kept = lived(table, spec, able=0.15, priced=True)
    start = mean(kept[:3], "edits")
    assert abs(mean(kept[-20:], "edits") - start) < 0.15 + 0.1
    assert min(window["edits"] for window in kept) > 0.4
    assert 0.0 < mean(kept[-20:], "price") < 0.5  # far from its bound of 1.4


def test_an_able_policy_asks_where_it_helps_and_nowhere_else(table: Table, spec: RewardSpec) -> None:
    found = lived(table, spec, able=0.5, priced=True)
    last = found[-20:]
    assert mean(last, "gain") == pytest.approx(0.3, abs=0.1)
    assert mean(last, "vague") > 0.7
    assert mean(last, "clear") < 0.05
    assert mean(last, "price") < 0.02
    assert abs(mean(last, "edits") - mean(found[:3], "edits")) < 0.15 + 0.02


def test_a_line_that_edits_in_a_third_of_its_episodes_pays_for_no_band_of_others(spec: RewardSpec) -> None:
    """A fixed band took its price to the bound, whatever its policy did."""
    assert spec.stabiliser is not None
    state: dict[str, Any] = {}
    prices = []
    for _ in range(40):
        dual = stabiliser.moved(state, 0.35, 1200, spec.stabiliser)
        state = dual.to_state()
        prices.append(dual.price)
    assert max(prices) == prices[0] == 0.2
    assert prices[-1] < 0.03
    assert stabiliser.moved(state, 0.15, 1200, spec.stabiliser).price > prices[-1]
