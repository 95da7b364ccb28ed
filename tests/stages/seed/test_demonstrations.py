"""Demonstrations: what they say happened is what the harness does, and the mixture is the one declared."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from cursorbench.harness.chat import assistant_message
from evals.population.episode import begin
from evals.population.judge import Verdict, judge_text
from evals.population.people import day_of
from stages.seed import edits
from stages.seed.corpus import branch, draw_cases, make_row
from stages.seed.demonstrations import SKILLED, Manner, demonstrate
from stages.seed.format import ASSISTANT, END, TOOL

CASES = [case for cases in day_of("train", 5, 60, 450) for case in cases]


def play(case, segments, root):
    """Let the harness answer what the demonstration says; returns the episode and what it heard."""
    episode = begin(case, root)
    heard = []
    for text, spoken in segments:
        if spoken:
            before = len(episode.loop.messages)
            episode.loop.receive(assistant_message(text.removesuffix(END), episode.loop.turns))
            heard += [m["content"] for m in episode.loop.messages[before:] if m["role"] == "tool"]
    return episode, heard


@pytest.mark.parametrize("manner", [Manner(), SKILLED], ids=["mixed", "skilled"])
def test_tools_answer_as_demonstrated(tmp_path, manner):
    random = Random(1)
    for case in CASES:
        segments = demonstrate(case, manner, random)
        episode, heard = play(case, segments, tmp_path)
        said = [text for text, spoken in segments if not spoken and text != ASSISTANT]
        assert said == [f"{TOOL}{text}{END}" for text in heard]
        assert episode.loop.stop is not None
        episode.close()


def test_the_mixture_is_the_declared_one(tmp_path):
    random = Random(2)
    found = Counter()
    for case in CASES:
        episode, _ = play(case, demonstrate(case, Manner(), random), tmp_path)
        found[str(episode.react().outcome)] += 1
        episode.close()
    shares = {name: count / len(CASES) for name, count in found.items()}

    def declared(*names):
        drawn = [Manner().shares(case) for case in CASES]
        return sum(each.get(name, 0.0) for each in drawn for name in names) / len(CASES)

    assert shares["right"] == pytest.approx(declared("right"), abs=0.06)
    assert shares["asked"] == pytest.approx(declared("ask"), abs=0.06)
    assert shares["wrong"] == pytest.approx(declared("wrong_value", "wrong_place", "guess"), abs=0.08)
    assert shares["junk"] == pytest.approx(declared("broken") / 2, abs=0.03)


def test_edits_are_what_their_names_say():
    random = Random(3)
    clear = [case for case in CASES if case.kind in ("operator", "constant", "rename")]
    verdicts = {name: Counter() for name in ("right", "wrong_value", "wrong_place")}
    for case in clear:
        for name, edit in (
            ("right", edits.right(case)),
            ("wrong_value", edits.wrong_value(case, random)),
            ("wrong_place", edits.wrong_place(case, random)),
        ):
            now = case.before
            for old, new in edit:
                assert now.count(old) == 1
                now = now.replace(old, new)
            verdicts[name][judge_text(case, now)] += 1
        for old, _ in edits.stale(case, random):
            assert old not in case.before
    assert set(verdicts["right"]) == {Verdict.RIGHT}
    assert verdicts["wrong_value"][Verdict.RIGHT] == verdicts["wrong_place"][Verdict.RIGHT] == 0
    assert verdicts["wrong_value"][Verdict.WRONG_VALUE] > 0.9 * len(clear)
    assert verdicts["wrong_place"][Verdict.WRONG_PLACE] > 0.7 * len(clear)


def test_a_row_shares_its_beginning():
    def encode(texts):
        return [list(text.encode()) for text in texts]

    row = make_row(Random(4), 3, Manner(), encode)
    assert bytes(row.beginning).decode().startswith("<|system|>")
    assert len(row.branches) == len(row.spoken) == 3
    for ids, spoken in zip(row.branches, row.spoken, strict=True):
        assert len(ids) == len(spoken)
        assert bytes(ids).decode().endswith(END)
        assert spoken[-1]
        assert not spoken[0]


def test_cases_of_a_row_are_about_one_file():
    cases = draw_cases(Random(5), 6)
    assert len({case.before for case in cases}) == 1
    assert all(spoken in (True, False) for case in cases for _, spoken in branch(case, Manner(), Random(6)))
