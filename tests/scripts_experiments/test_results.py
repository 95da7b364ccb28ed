"""Changes and verdicts of the experiments, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from experimenting import verdicts
from experimenting.heldout import figures
from experimenting.plan import EXPERIMENTS, Size, setups, spec_text
from experimenting.results import Run, changes
from experimenting.setup import Setup

from stages.distill.spec import parse


def row(case: int, **fields: Any) -> dict[str, Any]:
    """A held-out request of person `case % 10`."""
    usual = {
        "case": f"c{case}", "user": f"u{case % 10}", "kind": "operator", "persisted": None,
        "dissatisfied": False, "broken": False, "asked": False, "edited": False, "outcome": "nothing",
        "tokens": 10, "turns": 1, "calls": 0, "seconds": 0.02, "failure": "",
    }  # fmt: skip
    return usual | fields


def edits(right: int, wrong: int, seconds: float) -> list[dict[str, Any]]:
    """That many edits, the right ones kept, out of 100 requests."""
    kept = [row(n, persisted=1.0, edited=True, outcome="right", seconds=seconds) for n in range(right)]
    lost = [
        row(right + n, persisted=0.0, edited=True, dissatisfied=True, outcome="wrong", seconds=seconds)
        for n in range(wrong)
    ]
    return [*kept, *lost, *(row(n, seconds=seconds) for n in range(right + wrong, 100))]


def test_a_change_is_that_of_the_same_requests() -> None:
    found = changes(edits(30, 30, 0.1), edits(54, 6, 0.08))
    persistence = found["edit_persistence"]
    assert (persistence.first, persistence.last) == (0.5, pytest.approx(0.9))
    assert persistence.relative == pytest.approx(0.8)
    assert persistence.apart
    assert persistence.low is not None
    assert persistence.low > 0
    assert found["dissatisfied_followup"].relative == pytest.approx(-0.8)
    assert found["latency_s"].relative == pytest.approx(-0.2)
    assert found["ask_rate"].relative is None  # nobody asked before


def test_requests_that_failed_are_in_neither() -> None:
    before = edits(50, 50, 0.1)
    after = [*edits(50, 50, 0.1)[:99], row(99, failure="no answer")]
    assert changes(before, after)["edit_rate"].difference == pytest.approx(0.0)


def write(folder: Path, setup: Setup, measured: list[list[dict[str, Any]]]) -> Run:
    """A chain that got so far."""
    (folder / "cycles").mkdir(parents=True)
    for number, rows in enumerate(measured):
        about = {"cycle": number, "heldout": figures(rows), "seconds": {"all": 20.0 + number}, "stopped": ""}
        band = (0.55, 0.85) if number == len(measured) - 1 else (None, None)  # of history: late
        about["distill"] = {"stabiliser": dict(zip(("low", "high"), band, strict=True))}
        (folder / f"cycles/{number:02}.rows.json").write_text(json.dumps(rows))
        (folder / f"cycles/{number:02}.json").write_text(json.dumps(about))
    return Run(setup, folder)


def test_the_worst_seed_decides_and_nothing_does_before_all_are_finished(tmp_path: Path) -> None:
    size = Size(seeds=2, cycles=1)
    asked = [one for one in setups(EXPERIMENTS["hacks"], size) if one.name == "default"]
    good = write(tmp_path / "1", asked[0], [edits(30, 30, 0.1), edits(54, 6, 0.08)])
    half = write(tmp_path / "2", asked[1], [edits(30, 30, 0.1)])
    by_id = {one["id"]: one for one in verdicts.verdicts("hacks", [good, half], workers=2)}
    assert by_id["hacks.persistence_gain_min"]["value"] is None
    assert by_id["hacks.naive_ask_rise_min"]["value"] is None
    worse = write(tmp_path / "3", asked[1], [edits(30, 30, 0.1), edits(40, 20, 0.12)])
    by_id = {one["id"]: one for one in verdicts.verdicts("hacks", [good, worse], workers=2)}
    assert by_id["hacks.persistence_gain_min"]["value"] == pytest.approx(1 / 3)
    assert by_id["hacks.latency_drop_min"]["value"] == pytest.approx(-0.2)
    assert by_id["hacks.default_edit_rate_in_band"]["value"] == pytest.approx(0.05)
    assert by_id["hacks.seconds_per_cycle"]["value"] == 10.5  # two chains side by side


def test_what_a_part_is_worth_is_the_difference_to_the_default_of_the_same_seeds(tmp_path: Path) -> None:
    """After the last cycle 54 and 48 of 60 edits are right with all parts, 30 and 36 without one."""

    def chain(name: str, seed: int, right: int) -> Run:
        setup = Setup(name, seed, "", cycles=1, users=1, requests=1)
        ends = [edits(30, 30, 0.1), edits(right, 60 - right, 0.1)]
        return write(tmp_path / f"{name}-{seed}", setup, ends)

    runs = [chain("default", 1, 54), chain("default", 2, 48), chain("no_kl", 1, 30), chain("no_kl", 2, 36)]
    runs.append(chain("no_kl", 3, 0))  # the default has no third seed
    unfinished = Setup("lag_3", 1, "", cycles=12, users=1, requests=1)
    runs.append(write(tmp_path / "lag_3-1", unfinished, [edits(30, 30, 0.1), edits(30, 30, 0.1)]))
    by_id = {one["id"]: one for one in verdicts.verdicts("ablation", runs, workers=2)}
    lost = by_id["ablation.no_kl.edit_persistence"]
    assert (lost["value"], lost["runs"]) == (pytest.approx(66 / 120 - 102 / 120), 2)
    assert lost["by_seed"] == {"1": pytest.approx(-0.4), "2": pytest.approx(-0.2)}
    assert lost["spread"][0] < lost["value"] < lost["spread"][1] < 0
    assert by_id["ablation.no_kl.right_edits"]["value"] == pytest.approx((66 - 102) / 200)
    assert by_id["ablation.no_kl.tokens"]["value"] == 0
    assert not [one for one in by_id if "default" in one or "lag_3" in one]


def test_specs_say_what_is_wrong_with_them() -> None:
    naive = parse(spec_text("naive_filter"), "naive_filter")
    assert naive.accepted_exits.keys() == {"drop:invalid_tool_calls"}
    assert "invalid_tool_calls" not in naive.signals
    asking = parse(spec_text("naive_asking"), "naive_asking")
    assert asking.stabiliser is None
    assert not {"dissatisfied_followup", "clarified"} & asking.signals.keys()
    fixed = parse(spec_text("fixed"), "fixed")
    assert fixed.stabiliser is not None
    assert not fixed.accepted_exits


def test_every_seed_is_planned_for_every_variant() -> None:
    planned = setups(EXPERIMENTS["ablation"], Size(seeds=2, cycles=3))
    assert len({(one.name, one.seed) for one in planned}) == 2 * len(EXPERIMENTS["ablation"].variants)
    assert {one.lag for one in planned} == {0, 1, 3, 8}
