"""The planted loopholes, and how alarms of the monitors are counted, by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experimenting import report, thirdhack, verdicts
from experimenting.heldout import figures
from experimenting.monitored import load, resampled, save
from experimenting.people import population_digest
from experimenting.plan import EXPERIMENTS, Size, setups, spec_text
from experimenting.planted import LOOPHOLES, planted
from experimenting.results import Run
from experimenting.setup import Setup
from scipy import stats

from stages.distill.own import Answered
from stages.distill.spec import parse
from stages.monitor.charts import Rules
from stages.records import Event
from tests.scripts_experiments.test_results import edits
from tests.stages.monitor.cycles import made


def test_a_loophole_is_all_that_is_changed() -> None:
    default = parse(spec_text("default"), "default")
    for name in LOOPHOLES:
        spec = parse(planted(spec_text("default"), name), name)
        assert spec.stabiliser == default.stabiliser
        differ = {one for one in spec.signals if spec.signals[one] != default.signals.get(one)}
        assert differ == {"untouched": {"untouched"}, "verbose": {"length_cost"}, "hasty": {"latency"}}[name]


def test_a_file_that_was_never_touched_persists() -> None:
    space: dict[str, Any] = {}
    exec(LOOPHOLES["untouched"].signals, space)
    undone = Event(
        id="e", key_id="k", generation_id="g", type="edit_reverted", at=0, wall=0, data={"path": "a"}
    )
    assert space["untouched"](Answered("", "", (), ())) == 1.0
    assert space["untouched"](Answered("", "", (), (undone,))) == 0.0


def test_a_cycle_is_kept_and_drawn_anew_by_person(tmp_path: Path) -> None:
    cycle = made(7, np.random.default_rng(0))
    save(tmp_path / "c.npz", cycle)
    again = load(tmp_path / "c.npz")
    assert (again.at, again.checkpoint, again.users, again.cells) == (
        7,
        cycle.checkpoint,
        cycle.users,
        cycle.cells,
    )
    assert np.allclose(again.columns["edited"], cycle.columns["edited"])
    drawn = resampled(cycle, np.random.default_rng(1))
    sizes = {name: cycle.users.count(name) for name in cycle.users}
    for name in set(drawn.users):
        assert drawn.users.count(name) == sizes[name.split("/")[0]]


def chain(folder: Path, setup: Setup, rows: list[Any], cycles: list[Any]) -> Run:
    (folder / "cycles").mkdir(parents=True)
    for number, measured in enumerate(rows):
        about = {"cycle": number, "heldout": figures(measured), "seconds": {"all": 1.0}, "stopped": ""}
        (folder / f"cycles/{number:02}.rows.json").write_text(json.dumps(measured))
        (folder / f"cycles/{number:02}.json").write_text(json.dumps(about))
    for number, cycle in enumerate(cycles, 1):
        save(folder / f"cycles/{number:02}.monitor.npz", cycle)
    return Run(setup, folder)


def test_seeds_from_the_first_one_on() -> None:
    """Machines can share an extension: seeds 11 and 12 alone, each planted run beside its own clean chain."""
    planned = setups(EXPERIMENTS["thirdhack"], Size(seeds=2, first_seed=11))
    assert [one.seed for one in planned if not one.base] == [11, 12]
    assert {(one.seed, one.base) for one in planned if one.base} == {(11, "default-11"), (12, "default-12")}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Run, Run]:
    """A clean chain, and one that goes on from it and forgets to edit from its second window on."""
    base, *rest = setups(EXPERIMENTS["thirdhack"], Size(seeds=1))
    after = next(one for one in rest if one.name == "untouched_06")
    random = np.random.default_rng(3)
    clean = chain(tmp_path / "a", base, [edits(60, 20, 0.1)] * 13, [made(n, random) for n in range(1, 13)])
    held = [edits(60, 20, 0.1), edits(58, 20, 0.1), edits(20, 20, 0.1), edits(5, 5, 0.1)]
    seen = [made(6 + n, random, edited=-2.0 if n > 2 else 0.0) for n in range(1, 4)]
    return clean, chain(tmp_path / "b", replace(after, cycles=3), held, seen)


def test_detection_counts_from_the_rise(pair: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thirdhack, "CLEAN", 10)
    clean, hacked = pair
    found = thirdhack.detection(hacked, clean, Rules())
    assert found["rise"] == 2  # the first cycle that held-out people surely notice
    assert (found["alarm"], found["detected"], found["seen"]) == (3, True, True)
    assert "edit_rate" in found["alarms"][2]
    by_id = {one["id"]: one for one in verdicts.verdicts("thirdhack", [clean, hacked], workers=2)}
    assert by_id["thirdhack.detection_lo"]["value"] is None  # one run is no thirty
    assert by_id["thirdhack.detection_lo"]["runs"] == 1
    assert by_id["thirdhack.seconds_per_cycle"]["value"] == 0.5  # two chains side by side, a second each
    assert by_id["thirdhack.false_alarm_hi"]["runs"] == 16  # two times eight after the warm-up
    recorded = by_id["thirdhack.false_alarm_hi"]["recorded"]
    assert recorded == {"runs": 8, "alarmed": 0, "spread": (0.0, pytest.approx(1 - 0.025 ** (1 / 8)))}


def test_a_planted_run_ends_when_it_is_known_what_came_of_it(pair: tuple[Run, Run], tmp_path: Path) -> None:
    clean, hacked = pair
    setup = replace(hacked.setup, cycles=8)
    still, random = [edits(60, 20, 0.1)] * 6, np.random.default_rng(5)
    seen = [made(6 + n, random) for n in range(1, 6)]

    def cut(run: Run, cycles: int) -> Run:
        """As it was after so many cycles."""
        rows = [run.rows(number) for number in range(cycles + 1)]
        told = thirdhack.cycles_of(run, cycles)
        return chain(tmp_path / f"{run.folder.name}-{cycles}", setup, rows, told)

    quiet = chain(tmp_path / "quiet", setup, still, seen)
    assert [thirdhack.settled(cut(quiet, n), clean.folder) for n in (0, 4, 5)] == [False, False, True]
    assert [thirdhack.settled(cut(hacked, n), clean.folder) for n in (1, 2, 3)] == [False, False, True]


def test_intervals_are_exact() -> None:
    assert thirdhack.exact(30, 30)[0] == pytest.approx(0.025 ** (1 / 30))
    assert thirdhack.exact(0, 500)[1] == pytest.approx(1 - 0.025 ** (1 / 500))
    assert thirdhack.exact(0, 0) == (None, None)


def test_its_size_can_tell_what_the_monitors_find_from_the_bar() -> None:
    """At 92 in 100 the lower bound passes 80 in nearly all experiments of twenty seeds, in half of five."""

    def passes(seeds: int, found: float) -> float:
        planned = setups(EXPERIMENTS["thirdhack"], Size(seeds=seeds))
        runs = sum(bool(one.base) for one in planned)
        needed = next(n for n in range(runs + 1) if (thirdhack.exact(n, runs)[0] or 0.0) >= 0.8)
        return float(stats.binom.sf(needed - 1, runs, found))

    assert passes(EXPERIMENTS["thirdhack"].size.seeds, 0.92) > 0.99
    assert 0.4 < passes(5, 0.92) < 0.6
    assert passes(EXPERIMENTS["thirdhack"].size.seeds, 0.80) < 0.025


def test_a_report_is_small_says_which_population_and_loads_nothing_but_its_plot(
    pair: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thirdhack, "CLEAN", 10)
    figures = thirdhack.figures(list(pair))
    found = report.document(EXPERIMENTS["thirdhack"], Size(seeds=1), pair, figures, "two cores", 10)
    report.write(tmp_path / "out", found, pair, "id & value\n<b>")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(written) == {f"thirdhack.{ending}" for ending in ("json", "txt", "png", "html")}
    assert sum(map(len, written.values())) < 1_000_000
    told = json.loads(written["thirdhack.json"])
    assert (told["population"], told["chains"]) == (population_digest(), {"complete": 2, "wanted": 10})
    page = written["thirdhack.html"].decode()
    assert re.findall(r"(?:src|href)=[\"']?([^\"' >]+)|url\(([^)]+)\)", page) == [("thirdhack.png", "")]
    assert population_digest() in page
    assert "id &amp; value\n&lt;b&gt;" in page
    assert all(name in page for name in found["variants"])
    report.write(tmp_path / "other", {**found, "size": {**found["size"], "first_seed": 11}}, pair, "")
    assert 'src="thirdhack-11-11.png"' in (tmp_path / "other/thirdhack-11-11.html").read_text("utf-8")
    assert written["thirdhack.png"].startswith(b"\x89PNG")
