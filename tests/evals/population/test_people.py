"""People and their requests: the same seed gives the same, the splits share nothing, held-out means new."""

from collections import Counter

import pytest

from evals.population.intents import KINDS
from evals.population.judge import Verdict, judge_text
from evals.population.people import DAY_S, FIRST_DAY, day_of, person


def everything(split, seed, users=60, requests=900, day=0):
    return [case for cases in day_of(split, seed, users, requests, day) for case in cases]


def test_the_same_seed_gives_the_same_day():
    assert everything("train", 3) == everything("train", 3)
    assert everything("train", 3) != everything("train", 4)
    assert everything("train", 3, day=0) != everything("train", 3, day=1)


def test_known_people_stay_when_the_population_grows():
    assert person("train", 0, 5) == day_of("train", 0, 200, 2000)[5][0].person


def test_this_is_the_population_that_was_measured():
    case = day_of("heldout", 0, 50, 300)[0][0]
    assert case.id == "heldout-0-0-0-0"
    assert case.text == EXPECTED


EXPECTED = """heat.py
STEP = 47

def scale_heat(force):
    return force // STEP

def split_heat(sample):
    if sample == 8:
        return 27
    return sample

def angle_force(mass):
    return mass > 86

make split_heat better"""


def test_every_request_is_handed_out_once():
    cases = everything("train", 0)
    assert len(cases) == 900
    assert len({case.id for case in cases}) == 900
    per_person = Counter(case.person.id for case in cases)
    assert max(per_person.values()) > 2 * min(per_person.values())


def test_held_out_requests_are_new():
    train = [case for day in range(3) for case in everything("train", 0, 150, 2000, day)]
    heldout = everything("heldout", 0, 250, 1500)
    assert {case.person.id for case in train}.isdisjoint(case.person.id for case in heldout)
    assert {case.text for case in train}.isdisjoint(case.text for case in heldout)
    assert len({case.before for case in heldout} & {case.before for case in train}) <= 1


def test_kinds_come_in_their_shares():
    counts = Counter(case.kind for case in everything("train", 0, 100, 4000))
    shares = [counts[kind] / 4000 for kind in KINDS]
    assert shares == pytest.approx([0.30, 0.28, 0.16, 0.16, 0.10], abs=0.03)


def test_every_wish_can_be_met_and_is_not_met_yet():
    for case in everything("train", 0):
        assert judge_text(case, case.before) is Verdict.UNCHANGED
        if case.intent.goal:
            assert judge_text(case, case.intent.goal) is Verdict.RIGHT
        assert case.intent.request in case.text
        assert (case.intent.clear != "") == (case.kind == "vague")


def test_a_day_is_a_day():
    for cases in day_of("train", 0, 20, 300, 2):
        times = [case.at for case in cases]
        assert all(FIRST_DAY + 2 * DAY_S < at < FIRST_DAY + 3 * DAY_S for at in times)
        by_session = Counter(case.session for case in cases)
        assert max(by_session.values()) <= 4
