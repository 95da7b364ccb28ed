"""Attempts added to an inconclusive comparison, and losses since the anchor, through the real stage."""

from __future__ import annotations

import json

from stages.eval.stub import StubEngine
from stages.eval.subjects import Engines
from stages.stage import Artifact
from tests.stages.eval.bench import STEADY, Bench


def numbers(report: Artifact, role: str) -> list[int]:
    import pyarrow.parquet as pq

    return sorted(set(pq.read_table(report.path / f"harness.{role}.parquet")["attempt"].to_pylist()))


def test_inconclusive_comparisons_get_more_attempts_as_often_as_planned(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    result = bench.eval(["eval.looks=3", *STEADY])  # no stub edits: persistence stays undefined
    report = result.outputs["report"]
    assert result.status == "inconclusive"
    assert bench.engines[-1].asked == 3 * 480
    assert numbers(report, "candidate") == numbers(report, "baseline") == [0, 1, 2]
    assert "look 3 of 3" in (report.path / "summary.txt").read_text()
    assert json.loads((report.path / "verdict.json").read_text())["rules"]["look"] == {
        "number": 3,
        "planned": 3,
    }


def test_a_clear_case_needs_no_second_look(bench: Bench) -> None:
    bench.checkpoint(0.6, 0.2, bench.live.digest)
    report = bench.eval(["eval.looks=3"]).outputs["report"]
    assert report.meta["verdict"] == "regressed"
    assert bench.engines[-1].asked == 480
    assert "look 1 of 3" in (report.path / "summary.txt").read_text()


def test_stored_looks_of_the_live_checkpoint_are_used_again(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(["eval.looks=2", *STEADY])
    third = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    reused = bench.eval(["eval.looks=3", *STEADY], checkpoint=third.digest)
    assert bench.engines[-1].asked == 3 * 240 + 24 + 240  # candidate, check, the look nobody had made
    assert numbers(reused.outputs["report"], "baseline") == [0, 1, 2]


def test_each_look_has_random_numbers_of_its_own(bench: Bench) -> None:
    seeds: list[int | None] = []

    class Listening(StubEngine):
        def chat(self, batch, *, seed=None):  # type: ignore[no-untyped-def]
            seeds.append(seed)
            return super().chat(batch, seed=seed)

    with Engines(Listening, 5, lambda one: one.path) as engines:
        for look in (1, 1, 2):
            engines.subject(bench.live, look).complete_batch([])
    assert seeds == [5, None, 6]


def test_a_loss_since_the_anchor_is_a_regression(bench: Bench) -> None:
    second = bench.checkpoint(0.4, 0.2, bench.live.digest)
    bench.store.move_alias("auto", "live", second.digest, reason="test")
    third = bench.checkpoint(0.4, 0.2001, second.digest)
    result = bench.eval(STEADY)
    report = result.outputs["report"]
    assert report.meta["verdict"] == "regressed"
    assert report.meta["suites"]["harness"]["invalid_calls"]["state"] == "pass"
    assert report.meta["drift"]["harness"]["invalid_calls"]["state"] == "regressed"
    assert bench.engines[-1].asked == 3 * 240, "the anchor's attempts are made where none are stored"
    assert any("since the anchor" in reason for reason in report.meta["reasons"])
    assert "REGRESSED" in (report.path / "summary.txt").read_text()
    fourth = bench.checkpoint(0.4, 0.2002, second.digest)
    again = bench.eval(STEADY, checkpoint=fourth.digest)
    assert bench.engines[-1].asked == 240 + 24, "and then stored"
    assert again.inputs["anchor_attempts"].digest == report.digest
    assert third.digest != fourth.digest


def test_a_wider_margin_since_the_anchor(bench: Bench) -> None:
    second = bench.checkpoint(0.4, 0.2, bench.live.digest)
    bench.store.move_alias("auto", "live", second.digest, reason="test")
    bench.checkpoint(0.4, 0.2001, second.digest)
    wide = 'eval.drift_margins={"harness.invalid_calls": 0.5}'
    report = bench.eval([*STEADY, wide]).outputs["report"]
    assert report.meta["drift"]["harness"]["invalid_calls"]["state"] == "pass"
    assert report.meta["drift"]["harness"]["invalid_calls"]["margin"] == 0.5
    assert report.meta["verdict"] == "inconclusive"
