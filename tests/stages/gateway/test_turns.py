"""Answers that go on under new weights: each token is recorded with the checkpoint that sampled it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.config import EngineConfig
from stages.engine.under_way import Sampled, Watch
from stages.engine.update import EngineControl, GoesOn
from stages.errors import IntegrityError
from stages.gateway.errors import SwapError
from stages.gateway.served import Checkpoint
from stages.gateway.stub_script import logprob
from stages.gateway.stub_weights import salt_of
from stages.gateway.swapper import Swapped, Swapper
from stages.gateway.turns import DEFECT, UNPROVEN, Turns, defect_of, spans_of
from stages.records import Span
from tests.stages.gateway.rig import Rig, running, until, url_of


def test_spans_by_hand() -> None:
    assert spans_of("a", [], 5) == (Span(0, 5, "a"),)
    assert spans_of("a", [(2, "b")], 5) == (Span(0, 2, "a"), Span(2, 5, "b"))
    assert spans_of("a", [(0, "b")], 5) == (Span(0, 5, "b"),), "it had not begun"
    assert spans_of("a", [(5, "b")], 5) == (Span(0, 5, "a"),), "it ended with the turn"
    assert spans_of("a", [(2, "b"), (2, "a")], 5) == (Span(0, 5, "a"),), "there and back"
    assert spans_of("a", [(1, "b"), (3, "c")], 5) == (Span(0, 1, "a"), Span(1, 3, "b"), Span(3, 5, "c"))
    assert spans_of("a", [(9, "b")], 5) == (Span(0, 5, "a"),), "cut before the engine had told all"
    assert spans_of("a", [(2, "b")], 0) == ()


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"))), st.integers(0, 9))
def test_spans_cover_all_tokens(turns: list[tuple[int, str]], tokens: int) -> None:
    turns.sort(key=lambda turn: turn[0])
    found = spans_of("a", turns, tokens)
    samplers = [one.checkpoint for one in found for _ in range(one.start, one.end)]
    expected = [([c for at, c in turns if at <= token] or ["a"])[-1] for token in range(tokens)]
    assert samplers == expected
    assert all(one.checkpoint != two.checkpoint for one, two in itertools.pairwise(found))


def test_turns_meet_those_under_way_that_are_not_complete() -> None:
    turns = Turns()
    for name in ("begun", "waits", "complete", "gone"):
        turns.begin(name)
    turns.end("gone")
    counts: dict[str, int | None] = {"begun": 3, "complete": None}
    assert turns.turn(lambda name: counts.get(name, 0)) == 2
    turns.settle("b")
    assert (turns.end("begun"), turns.end("waits"), turns.end("complete")) == ([(3, "b")], [(0, "b")], [])
    assert (turns.end("gone"), turns.turn(lambda _: 1)) == ([], 0)


def test_what_ends_before_the_new_weights_are_proven_has_tokens_of_unproven_ones() -> None:
    turns = Turns()
    for name in ("early", "late", "cut"):
        turns.begin(name)
    assert turns.turn(lambda _: 3) == 3
    assert turns.end("early") == [(3, UNPROVEN)]
    turns.settle("b")
    assert turns.end("late") == [(3, "b")]
    turns.turn(lambda _: 5)
    turns.settle(UNPROVEN)
    turns.turn(lambda _: 7)
    turns.settle("a")
    assert turns.end("cut") == [(3, "b"), (5, UNPROVEN), (7, "a")], "what was not proven then never is"


def test_tokens_of_unproven_weights_are_a_defect() -> None:
    assert defect_of(spans_of("a", [(2, UNPROVEN), (4, "a")], 5)) == DEFECT
    assert defect_of(spans_of("a", [(5, UNPROVEN)], 5)) == ""


def test_a_watch_counts_what_a_runner_has_sampled() -> None:
    class State:
        def __init__(self, tokens: int) -> None:
            self.output_token_ids = [7] * tokens

    class Runner:
        requests: dict[str, State]

        def execute_model(self, scheduled: Any, more: int) -> int:
            return more

    one, two, three = (f"gen_{digit * 32}" for digit in "123")
    runner, step = Runner(), type("Step", (), {"finished_req_ids": {f"cmpl-{two}-0-ab"}})
    runner.requests = {f"chatcmpl-{one}-0a1b2c3d": State(4)}
    watch = Watch(runner)
    assert runner.execute_model(step, 5) == 5
    told = Sampled.of(json.loads(json.dumps(watch.counts())))
    assert [told.of_generation(name) for name in (one, two, three)] == [4, None, 0]
    assert told.told
    assert not Sampled.of({}).told
    del runner.requests
    assert watch.counts() == {}


class Keeping:
    """The stub behind its control, as `Supervisor` has it."""

    def __init__(self, rig: Rig) -> None:
        self.control = EngineControl(
            url_of(rig.engine_listener), "k", EngineConfig(program="stub"), rig.root / "a"
        )
        self.fails = False

    def can_keep(self, path: Path) -> bool:
        return self.control.tells

    def sampled(self, generation: str) -> int | None:
        return self.control.sampled(generation)

    async def update(self, path: Path, *, keep: GoesOn | None = None) -> Any:
        found = await self.control.update(path, keep=keep)
        if self.fails and keep:
            raise IntegrityError("as the test wants")
        return found


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[tuple[Rig, Keeping, Swapper]]:
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        sums = {"w": {"sha256": name, "numel": 4}}
        document = {"schema": "rtrl-fingerprint/1", "probes": [[1, 2, 3]], "tensors": sums}
        document["logprobs"] = {"parent": None, "child": [[-1.0, -2.0 - ord(name)]]}
        (folder / "served_fingerprint.json").write_text(json.dumps(document))
    async with running(tmp_path) as rig:
        rig.stub.weights.path, rig.stub.weights.salt = tmp_path / "a", salt_of(tmp_path / "a")
        engine = Keeping(rig)
        await engine.control.verify(tmp_path / "a")
        yield rig, engine, Swapper(rig.served, engine.update, 1.0, keeper=engine)
        await engine.control.close()


async def swap(rig: Rig, swapper: Swapper, name: str = "b") -> Swapped:
    return await swapper.swap(Checkpoint(f"sha256:{name}", rig.root / name))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_goes_on_and_each_token_has_its_sampler(
    keeping: tuple[Rig, Keeping, Swapper], stream: bool
) -> None:
    rig, _, swapper = keeping
    rig.stub.load_seconds = 0.1
    asked = asyncio.create_task(rig.chat(f"stub:tokens=20 {rig.hold(4)}", stream=stream))
    await until(lambda: rig.sampled(4))
    swapping = asyncio.create_task(swap(rig, swapper))
    await until(lambda: rig.served.gate.closed)
    waits = asyncio.create_task(rig.chat("x"))
    done = await swapping
    assert (done.went_on, not asked.done()) == (1, True), "nobody waited for it"
    rig.let_go()
    assert [(await each).status_code for each in (asked, waits)] == [200, 200]
    first, second = sorted(rig.generations(), key=lambda each: -each.output_tokens)
    if first.output_tokens != 21:
        first, second = second, first
    assert [span.checkpoint for span in first.spans] == ["sha256:aaa", "sha256:b"]
    assert (first.defect, first.spans[-1].end, len(second.spans)) == ("", first.output_tokens, 1)
    assert second.spans[0].checkpoint == "sha256:b"
    _, tokens = rig.payload(first.id)
    salts = {"sha256:aaa": salt_of(rig.root / "a"), "sha256:b": salt_of(rig.root / "b")}
    for span in first.spans:
        for index in range(span.start, span.end):
            token = int(tokens.output[index])
            expected = logprob(index, token, salts[span.checkpoint])
            assert tokens.logprobs[index] == pytest.approx(expected, abs=1e-6), index


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_that_ends_before_the_new_weights_are_proven_is_no_old_ones(
    keeping: tuple[Rig, Keeping, Swapper], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The engine goes on when they are loaded; the proof takes seconds, in which answers end."""
    rig, engine, swapper = keeping
    engine.fails = fails
    asked = asyncio.create_task(rig.chat(f"stub:tokens=20 {rig.hold(4)}"))
    await until(lambda: rig.sampled(4))
    real = engine.control.judged

    async def judged(*arguments: Any) -> Any:
        if not asked.done():
            rig.let_go()
            await asked
        return await real(*arguments)

    monkeypatch.setattr(engine.control, "judged", judged)
    if fails:
        with pytest.raises(SwapError):
            await swap(rig, swapper)
    else:
        assert (await swap(rig, swapper)).went_on == 1
    assert (await asked).status_code == 200
    (generation,) = rig.generations()
    assert [(span.start > 0, span.checkpoint) for span in generation.spans] == [
        (False, "sha256:aaa"),
        (True, UNPROVEN),
    ]
    assert generation.defect == DEFECT


async def test_an_answer_with_tokens_of_unproven_weights_is_cut_and_marked(
    keeping: tuple[Rig, Keeping, Swapper],
) -> None:
    rig, engine, swapper = keeping
    engine.fails = True
    asked = asyncio.create_task(rig.chat(rig.hold(4), stream=True))
    await until(lambda: rig.sampled(4))
    with pytest.raises(SwapError, match="the previous weights are served"):
        await swap(rig, swapper)
    assert "weights_updating" in (await asked).text
    (generation,) = rig.generations()
    assert (generation.finish_reason, generation.spans[0].checkpoint) == ("abort", "sha256:aaa")
    assert generation.defect in ("", DEFECT), "as far as it was heard"
    assert (rig.served.engine, rig.served.checkpoint.digest) == ("ready", "sha256:aaa")
    engine.fails = False
    assert (await swap(rig, swapper)).went_on == 0


async def test_an_engine_that_does_not_tell_is_not_trusted(keeping: tuple[Rig, Keeping, Swapper]) -> None:
    rig, _, swapper = keeping
    rig.stub.steps.counts = dict  # type: ignore[method-assign]
    with pytest.raises(SwapError, match="does not tell which tokens"):
        await swap(rig, swapper)
