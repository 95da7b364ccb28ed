"""A killed eval goes on after the last batch it kept, and one that cannot read what it kept begins anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cursorbench.harness.chat import ChatRequest
from evals.suites.harness import HarnessSuite
from stages.eval import arms
from stages.eval.attempts import file_name
from stages.eval.kept import Kept, kept_name
from stages.eval.run import EvalStage
from stages.eval.stub import StubEngine
from stages.eval.subjects import Engines
from stages.eval.suites import build
from stages.progress import Silent
from tests.stages.eval.bench import STEADY, Bench, cases


def kept_at(folder: Path) -> Kept:
    """An arm's file; one that cannot be read fails the test."""
    folder.mkdir(exist_ok=True)
    return Kept(folder / "harness.candidate.jsonl", pytest.fail)


def test_every_suite_has_files_of_its_own() -> None:
    """`../shop.api` and `../shop-api` had one: the second was decided by the attempts of the first."""
    names = ["perplexity:shop.api", "perplexity:shop-api", "perplexity:shop/api", "perplexity-shop-api"]
    for called in (
        [kept_name(name, "candidate") for name in names],
        [file_name(name, "x") for name in names],
    ):
        assert len(set(called)) == len(names)
        assert not any("/" in one or ":" in one for one in called)
    long = ["perplexity:/home/иван/" + "документация/" * 30 + last for last in ("a", "b")]
    for name in (*long, long[0][:80], "x" * 300, os.fsdecode(b"bad\xff")):
        assert len(file_name(name, "candidate-2").encode()) < 240, "file systems take 255 bytes"
    assert len({file_name(name, "x") for name in long}) == 2


class Killed(BaseException):
    """What a signal does to a run."""


class Dying(StubEngine):
    """Answers so many batches, then the run is killed."""

    left = 10**9

    def chat(self, batch: list[ChatRequest], *, seed: int | None = None) -> list[dict[str, Any]]:
        if Dying.left == 0:
            raise Killed
        Dying.left -= 1
        return super().chat(batch, seed=seed)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HarnessSuite, "batch", 50)


@pytest.mark.usefixtures("small_batches")
def test_a_killed_arm_goes_on_after_the_last_batch_it_kept(bench: Bench, tmp_path: Path) -> None:
    suite, _ = build(bench.workspace.settings.eval, bench.workspace.root, {})[0]
    cases = suite.cases()
    with Engines(StubEngine, 0, lambda one: one.path) as engines:
        whole = arms.make(suite, engines.subject(bench.live), cases, kept_at(tmp_path / "whole"), Silent())
    kept = kept_at(tmp_path)
    Dying.left = 3
    with Engines(Dying, 0, lambda one: one.path) as engines, pytest.raises(Killed):
        arms.make(suite, engines.subject(bench.live), cases, kept, Silent())
    assert [one.case for one in kept.read()] == list(cases)[:150]
    with kept.path.open("ab") as file:
        file.write(b'[{"case": "torn')
    Dying.left = 10**9
    made: list[StubEngine] = []

    def start(folder: Path) -> StubEngine:
        made.append(Dying(folder))
        return made[-1]

    for _ in range(2):
        with Engines(start, 0, lambda one: one.path) as engines:
            assert arms.make(suite, engines.subject(bench.live), cases, kept, Silent()) == whole
    assert [engine.asked for engine in made] == [90]


def test_what_was_kept_of_other_cases_is_not_used(bench: Bench, tmp_path: Path) -> None:
    suite, _ = build(bench.workspace.settings.eval, bench.workspace.root, {})[0]
    some, others = list(suite.cases())[:5], list(suite.cases())[3:8]
    kept = kept_at(tmp_path)
    with Engines(StubEngine, 0, lambda one: one.path) as engines:
        arms.make(suite, engines.subject(bench.live), some, kept, Silent())
        found = arms.make(suite, engines.subject(bench.live), others, kept, Silent())
    assert sorted(one.case for one in found) == sorted(others)


@pytest.mark.usefixtures("small_batches")
def test_every_killed_eval_gets_further(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.stage = EvalStage(engine=lambda _, folder: Dying(folder))
    for _ in range(4):  # ten batches in all, three at a time
        Dying.left = 3
        try:
            ended = bench.eval(STEADY)
        except Killed:
            continue
    report = ended.outputs["report"]
    assert cases(report, "candidate") == cases(report, "baseline") == 240


@pytest.mark.usefixtures("small_batches")
def test_what_a_killed_eval_made_again_is_kept(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.eval(STEADY)
    third = bench.checkpoint(0.1, 0.2002, bench.live.digest)
    bench.stage = EvalStage(engine=lambda _, folder: Dying(folder))
    again = ["eval.rerun_share=0.5", *STEADY]
    Dying.left = 5 + 2  # the candidate's, then two of three batches of 120 made again
    with pytest.raises(Killed):
        bench.eval(again, checkpoint=third.digest)
    Dying.left = 1
    summary = (bench.eval(again, checkpoint=third.digest).outputs["report"].path / "summary.txt").read_text()
    assert "120 made again agree" in summary


BATCH = b'[{"case": "a", "cluster": "u", "attempt": 0, "values": {"m": [1, 1]}}]\n'


@pytest.mark.parametrize(
    "damage",
    [b"[{}]\n", b"\0\0\n", b"7\n", BATCH.replace(b"[1, 1]", b"[1]"), BATCH.replace(b"case", b"cale")],
)
def test_kept_attempts_that_cannot_be_read_are_none(tmp_path: Path, damage: bytes) -> None:
    said: list[str] = []
    kept = Kept(tmp_path / "kept", said.append)
    kept.path.write_bytes(BATCH + damage)
    assert kept.read() == []
    assert "cannot be read" in said[0]
    kept.path.write_bytes(BATCH)
    kept.append(kept.read())
    assert [one.case for one in kept.read()] == ["a", "a"]
    assert len(said) == 1


@pytest.mark.usefixtures("small_batches")
def test_an_eval_makes_again_what_was_kept_and_cannot_be_read(bench: Bench) -> None:
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    bench.stage = EvalStage(engine=lambda _, folder: Dying(folder))
    Dying.left = 3
    with pytest.raises(Killed):
        bench.eval(STEADY)
    (kept,) = bench.store.dir.glob("scratch/*/harness.candidate.jsonl")
    kept.write_bytes(b"\0" * kept.stat().st_size + b"\n")
    Dying.left = 10
    result = bench.eval(STEADY)
    assert cases(result.outputs["report"], "candidate") == 240
    assert any("cannot be read" in warning for warning in result.warnings)
