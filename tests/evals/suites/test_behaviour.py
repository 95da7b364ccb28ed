"""Behaviour probes: what an answer counts as, and what a file of probes may hold."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import InputMissingError, RtrlError, UsageError
from cursorbench.harness.chat import ChatRequest, assistant_message
from evals.gate import Rules, decide
from evals.suites.base import Subject
from evals.suites.behaviour import BehaviourSuite
from evals.suites.probes import SHIPPED, Probe, read
from tests.evals.suites.test_cursorbench import NoTokens


def assistant_call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


PROBES = (
    Probe("edit", "use 2", {"a.py": "x = 1\n"}, "clear"),
    Probe("vague", "make it better", {"b.py": "y = 1\n", "c/d.py": "z = 1\n"}, "ambiguous"),
    Probe("own", "something of one's own", {}, ""),
)
EDIT = assistant_call("edit_file", path="a.py", old="x = 1", new="x = 2")


def subject(answers: dict[str, list[str | None]], seen: list[ChatRequest]) -> Subject:
    """Answers by the words of the request, one after the other."""
    left = {words: list(said) for words, said in answers.items()}

    def complete(requests: list[ChatRequest]) -> list[Any]:
        seen.extend(requests)
        return [one(request) for request in requests]

    def one(request: ChatRequest) -> Any:
        asked = next(str(m["content"]) for m in request.messages if m["role"] == "user")
        said = left[next(words for words in left if words in asked)].pop(0)
        if said is None:
            return None
        return {**assistant_message(said), "finish_reason": "stop", "output_tokens": 5}

    return Subject("sha256:" + "0" * 64, Path(), complete, NoTokens())


def run(answers: dict[str, list[str | None]], attempts: int = 1) -> list[Any]:
    suite = BehaviourSuite(lambda: PROBES, attempts)
    done: list[int] = []
    found = suite.run(subject(answers, []), suite.cases(), done.append, first=3)
    assert sum(done) == len(found)
    return found


def test_what_an_answer_counts_as() -> None:
    edit, vague, own = run(
        {"use 2": [EDIT, "Done."], "better": ["Faster, or shorter?"], "own": ['<tool_call>{"name": "edit_']}
    )
    assert (edit.values["edits_when_clear"], edit.values["asks_when_clear"]) == ((1, 1), (0, 1))
    assert edit.values["asks_when_ambiguous"] == (0, 0)
    assert (edit.values["turns"], edit.values["tokens"]) == ((2, 1), (10, 1))
    assert (vague.values["asks_when_ambiguous"], vague.values["ask_rate"]) == ((1, 1), (1, 1))
    assert vague.values["edits_when_clear"] == (0, 0)
    assert own.values["invalid_calls"] == (1, 1)
    assert own.values["edits_when_clear"] == own.values["asks_when_ambiguous"] == (0, 0)
    assert [one.attempt for one in (edit, vague, own)] == [3, 3, 3]
    assert [one.cluster for one in (edit, vague, own)] == ["edit", "vague", "own"]


def test_no_answer_is_the_infrastructure_and_no_zero() -> None:
    found = run({"use 2": [None], "better": ["?"], "own": ["yes"]})
    assert [one.failure for one in found] == ["no answer", "", ""]


def test_one_open_file_is_sent_and_several_are_there_to_be_found() -> None:
    seen: list[ChatRequest] = []
    suite = BehaviourSuite(lambda: PROBES[:2], 1, 0.7)
    suite.run(subject({"use 2": ["?"], "better": ["?"]}, seen), suite.cases(), lambda n: None)
    assert seen[0].messages[1]["content"] == "a.py\nx = 1\n\nuse 2"
    assert seen[1].messages[1]["content"] == "make it better"
    assert {request.temperature for request in seen} == {0.7}


def test_each_attempt_begins_with_the_files_as_they_were() -> None:
    found = run({"use 2": [EDIT, "a", EDIT, "b"], "better": ["?", "?"], "own": ["", ""]}, attempts=2)
    edits = [one.values["edits_when_clear"] for one in found if one.case == "edit"]
    assert edits == [(1, 1), (1, 1)]


def test_an_agent_that_only_asks_regresses() -> None:
    arms = []
    for said in ([EDIT, "Done."], ["Are you sure?"]):
        probes = [Probe(f"e{i}", f"use 2 ({i})", {"a.py": "x = 1\n"}, "clear") for i in range(24)]
        suite = BehaviourSuite(lambda probes=probes: probes, 2)  # type: ignore[misc]
        answers: dict[str, list[str | None]] = {f"({i})": [*said, *said] for i in range(24)}
        arms.append(suite.run(subject(answers, []), suite.cases(), lambda n: None))
    verdict = decide([(suite.spec, (arms[1], arms[0]))], Rules())
    assert verdict.verdict == "regressed"
    assert {one.metric.name for one in verdict.criteria if one.state == "regressed"} == {
        "edits_when_clear",
        "asks_when_clear",
    }


def test_without_clear_requests_only_calls_are_gated() -> None:
    gated = {one.name for one in BehaviourSuite(lambda: PROBES[2:]).spec.metrics if one.gated}
    assert gated == {"invalid_calls"}
    with pytest.raises(UsageError, match="no probe"):
        BehaviourSuite(lambda: PROBES).run(subject({}, []), ["nope"], lambda n: None)


def test_shipped_probes() -> None:
    found = read()
    kinds = Counter(probe.kind for probe in found)
    assert kinds["clear"] >= 20
    assert kinds["ambiguous"] >= 10
    assert SHIPPED.read_text().count("\n") == len(found)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nothing", "no JSON"),
        ("[]", "an object"),
        ('{"prompt": "a", "more": 1}', "an object"),
        ('{"prompt": " "}', "`prompt`"),
        ('{"prompt": "a", "files": {"a": 1}}', "`files`"),
        ('{"prompt": "a", "files": {"../a": "x"}}', "no path"),
        ('{"prompt": "a", "files": {"/etc/a": "x"}}', "no path"),
        ('{"prompt": "a", "files": {"a": "x", "a/b": "y"}}', "'a/b' stands there twice, or below a file"),
        ('{"prompt": "a", "files": {"a": "x", "./a": "y"}}', "'a' stands there twice"),
        (f'{{"prompt": "a", "files": {{"{"é" * 128}": "x"}}}}', "no path"),
        (r'{"prompt": "a", "files": {"a": "\ud800"}}', "surrogates not allowed"),
        (r'{"prompt": "a \ud800"}', "surrogates not allowed"),
        ('{"prompt": "a", "kind": "odd"}', "kind"),
        ('{"prompt": "a", "id": "1"}\n{"prompt": "b", "id": "1"}', "twice"),
    ],
)
def test_what_is_no_probe_is_refused_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "fine"}\n\n' + line)
    with pytest.raises(UsageError, match=why) as caught:
        read(path)
    assert "mine.jsonl, line " in caught.value.message


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        read(tmp_path / "none")
    packed = gzip.compress(b'{"id": "one", "prompt": "p"}')
    (tmp_path / "mine.jsonl.gz").write_bytes(packed)
    assert [probe.id for probe in read(tmp_path / "mine.jsonl.gz")] == ["one"]
    (tmp_path / "mine.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(InputMissingError, match="as probes: the compressed file is damaged"):
        read(tmp_path / "mine.jsonl.gz")


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_anything_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, row: object) -> None:
    path = tmp_path_factory.mktemp("probes") / "p.jsonl"
    path.write_text(json.dumps(row))
    with contextlib.suppress(RtrlError):
        assert read(path)
