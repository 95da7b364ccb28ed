"""The benchmark as the gate runs it: tasks in real sandboxes, answers by a scripted model in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import UsageError
from cursorbench.harness.agent import AgentConfig
from cursorbench.harness.budget import Budget
from cursorbench.harness.chat import ChatRequest
from evals.suites.base import Answer, Subject
from evals.suites.cursorbench import CursorBenchSuite
from tests.cursorbench.suites import make_suite
from tests.evals.trials.scripted import answer, call


class NoTokens:
    """Agents are asked in chat alone."""

    context = 0

    def ranked(self, sequences: object) -> list[list[tuple[float, int]]]:
        raise NotImplementedError

    def continued(self, requests: object) -> list[str]:
        raise NotImplementedError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    for place in (folder, folder.parent):
        place.chmod(0o755)
    make_suite(folder / "words")
    return folder


def suite(home: Path, **more: Any) -> CursorBenchSuite:
    config = AgentConfig(budget=Budget(turns=3, wall_s=60))
    return CursorBenchSuite(home / "words", home / "cache", agent=config, **more)


def subject(models: dict[str, str], sizes: list[int]) -> Subject:
    """A checkpoint that answers each task as the scripted model named for it."""

    def complete(requests: list[ChatRequest]) -> list[Answer]:
        sizes.append(len(requests))
        return [one(request) for request in requests]

    def one(request: ChatRequest) -> Any:
        said = " ".join(str(message["content"]) for message in request.messages if message["role"] == "user")
        model = next(model for words, model in models.items() if words in said)
        if model == "gone":
            return None
        status, message, finish = answer(model, [dict(message) for message in request.messages])
        if status != 200:
            return {"finish_reason": "error", "error": "too long"}
        return {**message, "finish_reason": finish, "prompt_tokens": 7, "output_tokens": 3}

    return Subject("sha256:" + "0" * 64, Path(), complete, NoTokens())


def test_trials_go_in_lock_step_and_are_graded(home: Path) -> None:
    bench = suite(home)
    sizes: list[int] = []
    advanced: list[int] = []
    models = {"two blanks": "solver", "most frequent": "full", "splitting": "gone"}
    found = bench.run(subject(models, sizes), bench.cases(), advanced.append, first=2)
    by_case = {one.case: one for one in found}
    assert list(by_case) == ["word-debug", "word-feature", "word-refactor"]
    assert {one.attempt for one in found} == {2}
    solved, full, gone = found
    assert solved.values["solved"] == (1.0, 1.0)
    assert solved.values["output_tokens"] == (6.0, 1.0)
    assert solved.cluster == "words/counting"
    assert (full.values["solved"], full.detail["cause"]) == ((0.0, 1.0), "context_full")
    assert (gone.values, gone.failure.partition(":")[0]) == ({}, "engine_down")
    assert sizes == [3, 2]
    assert sum(advanced) == 3
    assert set(solved.values) == {metric.name for metric in bench.spec.metrics}


def test_a_context_that_holds_no_first_request_ends_the_eval(home: Path) -> None:
    """Both models solved nothing then, and the gate let the candidate pass."""

    room = 0

    def complete(requests: list[ChatRequest]) -> list[Answer]:
        return [
            {"content": "Yes?", "finish_reason": "stop"}
            if len(str(request.messages[1]["content"])) <= room
            else {"finish_reason": "error", "error": "longer than 256"}
            for request in requests
        ]

    bench, asked = suite(home), Subject("sha256:" + "0" * 64, Path(), complete, NoTokens())
    with pytest.raises(UsageError, match="first request of every case: longer than 256"):
        bench.run(asked, bench.cases()[:1], lambda n: None)
    room = 1  # this task's alone is too long
    (found,) = bench.run(asked, bench.cases()[:1], lambda n: None)
    assert (found.values["solved"], found.detail["cause"]) == ((0.0, 1.0), "context_full")


def test_a_trial_has_its_own_seconds_and_no_more(home: Path) -> None:
    """A model whose commands sleep held the gate for as long as it had calls; others lose nothing by it."""

    def complete(requests: list[ChatRequest]) -> list[Answer]:
        asked.append(len(requests))
        return [one(request) for request in requests]

    def one(request: ChatRequest) -> Any:
        messages = [dict(message) for message in request.messages]
        if any("two blanks" in str(message["content"]) for message in messages):
            return {**call("sleep 50"), "finish_reason": "stop"}
        return {**answer("solver", messages)[1], "finish_reason": "stop"}

    asked: list[int] = []
    config = AgentConfig(budget=Budget(turns=20, wall_s=5.0))
    bench = CursorBenchSuite(home / "words", home / "cache", agent=config)
    checkpoint = Subject("sha256:" + "0" * 64, Path(), complete, NoTokens())
    found = bench.run(checkpoint, bench.cases()[:2], lambda n: None)
    assert [one.detail["cause"] for one in found] == ["max_seconds", "solved"]
    assert asked == [2, 1]


def test_a_suite_declares_itself(home: Path) -> None:
    bench = suite(home, attempts=3)
    assert (bench.spec.name, bench.spec.attempts) == ("cursorbench:words", 3)
    assert [metric.name for metric in bench.spec.metrics if metric.gated] == ["solved"]
    assert bench.digest.startswith("sha256:")
    assert list(suite(home, split="dev").cases()) == ["word-refactor"]
    with pytest.raises(UsageError, match="no task"):
        bench.run(subject({}, []), ["nothing"], lambda n: None)
