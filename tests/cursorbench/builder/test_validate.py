"""Which test ids are kept, from outcomes written down by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.builder import validate
from cursorbench.builder.dates import Clock
from cursorbench.builder.runs import USUAL, Bench, Conditions, conditions
from cursorbench.builder.unfit import Unfit
from cursorbench.builder.validate import Outcomes, Stable, by_date, stable
from cursorbench.graders.junit import Outcome
from cursorbench.graders.running import Ran
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.protocol import Done, Environment

P: Outcome = "passed"
F: Outcome = "failed"


def test_sorted_by_hand() -> None:
    base: list[Outcomes] = [
        {"fixed": F, "kept": P, "flaky_before": P, "flaky_after": F, "broken": F, "skipped": "skipped"},
        {"fixed": "error", "kept": P, "flaky_before": F, "flaky_after": F, "broken": F, "skipped": "skipped"},
    ]
    solution: list[Outcomes] = [
        {"fixed": P, "kept": P, "flaky_before": P, "flaky_after": P, "broken": F, "skipped": P, "new": P},
        {"fixed": P, "kept": P, "flaky_before": P, "flaky_after": F, "broken": F, "skipped": P, "new": P},
    ]
    assert stable(base, solution) == Stable(
        fail_to_pass=("fixed", "new"),
        pass_to_pass=("kept",),
        unstable=("flaky_after", "flaky_before"),
        broken=("broken",),
        skipped=("skipped",),
    )


def test_examples_in_source_and_docs_are_no_tests() -> None:
    names = ["src/m.py::line:3,column:1", "README.md::line:1", "tests/t.py::test_a", "tests.t.T::test_b",
             "github.com/me/m/pkg::TestC", "pkg/m_test.go::TestD"]  # fmt: skip
    found = stable([{}], [dict.fromkeys(names, P)])
    assert found.fail_to_pass == tuple(sorted(names[2:]))


def test_what_the_grader_sees_fail_is_left_out() -> None:
    found = Stable(("a", "b"), ("c", "d"), ("e",)).without({"b", "d"})
    assert found == Stable(("a",), ("c",), ("b", "d", "e"))


def test_one_new_import_does_not_make_old_tests_tell() -> None:
    found = Stable(("a", "b", "new"), ("c",))
    assert found.known_before(["a", "b", "c"]) == Stable(("new",), ("a", "b", "c"))
    assert found.known_before([]) == found
    renamed = Stable(("a", "b"), ("c",))
    assert renamed.known_before(["a", "b", "c"]) == renamed


def test_a_module_that_cannot_be_imported_fails_all_its_tests() -> None:
    """On the base only its collection error is reported, which is gone afterwards."""
    base: list[Outcomes] = [{"tests.test_new": "error", "tests/test_old.py::test_a": P}]
    solution: list[Outcomes] = [{"tests/test_new.py::test_b": P, "tests/test_old.py::test_a": P}]
    found = stable(base, solution)
    assert found.fail_to_pass == ("tests/test_new.py::test_b",)
    assert found.pass_to_pass == ("tests/test_old.py::test_a",)
    assert not found.broken


def test_a_test_that_is_sometimes_not_there_wavers() -> None:
    assert stable([{"a": F}], [{"a": P}, {}]).unstable == ("a",)
    assert stable([{"a": "skipped"}, {"a": F}], [{"a": P}]).unstable == ("a",)


DAY = 86_400
DATES = [0, 403 * DAY, 131 * DAY, 0, 403 * DAY]  # the last differs from the first in the date alone


def runs(**said: str) -> list[Outcomes]:
    """By id a letter for each run."""
    words: dict[str, Outcome] = {"p": P, "f": F, "s": "skipped"}
    return [
        {name: words[letters[n]] for name, letters in said.items()}
        for n in range(len(next(iter(said.values()))))
    ]


def test_what_hangs_on_the_date_is_told_from_what_wavers() -> None:
    base = runs(year="fff", month="pfp", order="fff", chance="fff", base="pfp", good="fff", later="fff")
    solution = runs(
        year="pffpf", month="pfppf", order="pfffp", chance="pffpp", base="ppppp", good="ppppp", later="fppfp"
    )
    found = by_date(stable(base, solution), base, solution, DATES[:3], DATES)
    assert found.date_dependent == ("later", "month", "year")
    assert found.unstable == ("base", "chance", "order")
    assert found.fail_to_pass == ("good",)


def test_where_the_date_did_not_move_nothing_is_put_on_it() -> None:
    base, solution = runs(year="fff"), runs(year="pffpf")
    found = stable(base, solution)
    assert by_date(found, base, solution, [0] * 3, [0] * 5) == found
    assert found.unstable == ("year",)


def test_the_date_is_a_reason_of_its_own() -> None:
    with pytest.raises(Unfit) as found:
        validate._telling(Stable(unstable=("b",), date_dependent=("a",)))
    assert (found.value.reason, found.value.detail) == ("date_dependent", "1 ids, such as a")
    kept = Stable(fail_to_pass=("c",), date_dependent=("a",))
    assert validate._telling(kept) == kept


class OnlyAtTheTrueDate(Bench):
    """Runs that give no report at other dates, and at none where `never`."""

    never = False

    def run(self, solution: str, under: Conditions, *, old_tests: bool = False) -> Ran:
        bad = under.ahead_s or self.never
        return Ran(Done("exited", 1, "over", 0.0), {} if bad else {"a": P}, "no report" if bad else "")


class Never(OnlyAtTheTrueDate):
    never = True


def test_a_run_that_the_date_breaks_is_told_from_one_that_breaks(tmp_path: Path) -> None:
    bench = OnlyAtTheTrueDate(Bubblewrap("no"), Environment(tmp_path), None, (), {}, (), 1.0, Clock(None))
    ran = partial(validate._ran, bench, "", said=lambda _: None, where="base")
    assert ran(USUAL).outcomes == {"a": P}
    with pytest.raises(Unfit) as found:
        ran(replace(USUAL, ahead_s=403 * DAY))
    assert (found.value.reason, found.value.detail) == (
        "date_dependent",
        "403 days ahead no_report: base: no report; status 1: over",
    )
    bench = Never(Bubblewrap("no"), Environment(tmp_path), None, (), {}, (), 1.0, Clock(None))
    with pytest.raises(Unfit) as found:
        validate._ran(bench, "", replace(USUAL, ahead_s=403 * DAY), lambda _: None, "base")
    assert found.value.reason == "no_report"


def test_the_last_run_is_at_the_date_where_something_differed() -> None:
    under = [conditions(run, "s") for run in range(5)]
    for letters, ahead_s in (("pfpp", under[1].ahead_s), ("ppfp", under[2].ahead_s), ("pppp", 0)):
        solution = runs(a=letters)
        found = validate._date_alone(Stable(unstable=("a",)), solution, under)
        assert found == (replace(USUAL, ahead_s=ahead_s) if ahead_s else under[4])


RUNS = st.lists(
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["passed", "failed", "error", "skipped"])),
    min_size=1,
    max_size=5,
)


@given(RUNS, RUNS, st.randoms(use_true_random=False))
def test_the_order_of_runs_is_nothing(
    base: list[Outcomes], solution: list[Outcomes], draw: random.Random
) -> None:
    found = stable(base, solution)
    mixed = draw.sample(base, len(base)), draw.sample(solution, len(solution))
    assert stable(*mixed) == found
    kept = set(found.fail_to_pass) | set(found.pass_to_pass)
    assert all(run.get(name) == "passed" for run in solution for name in kept)
    assert all(run.get(name) != "passed" for run in base for name in found.fail_to_pass)


def test_what_is_said_of_a_runner_that_broke() -> None:
    """It said "Traceback (most recent call last):", and no more."""
    trace = "Traceback (most recent call last):\n  File 'a.py', line 1\nImportError: no such thing\n"
    said = validate._first_words(Ran(Done("exited", 1, trace, 0.0), defect="no report was written"))
    assert said == "status 1: ImportError: no such thing"


def test_what_is_said_of_options_that_pytest_does_not_know() -> None:
    """It said "ERROR: usage: pytest [options] ...", and not which option."""
    usage = (
        "ERROR: usage: pytest [options]\npytest: error: unrecognized arguments: --cov\n  inifile: tox.ini\n"
    )
    said = validate._first_words(Ran(Done("exited", 4, usage, 0.0), defect="no report was written"))
    assert said == "status 4: pytest: error: unrecognized arguments: --cov"


def test_what_a_linter_says_of_a_test_file_is_no_test() -> None:
    """The grader writes canaries into the file, and its style is another then."""
    base: Outcomes = {"tests/test_a.py::test_x": "failed", "tests/test_a.py::ruff": "failed"}
    items = ("ruff", "ruff::format", "mypy", "mypy-status", "BLACK", "FLAKE8", "flake-8", "PYLINT")
    told: Outcomes = {f"tests/test_a.py::{name}": "passed" for name in ("test_x", "test_ruff", *items)}
    found = stable([base], [told])
    assert found.fail_to_pass == ("tests/test_a.py::test_ruff", "tests/test_a.py::test_x")


def test_what_keeps_a_test_from_passing_is_told() -> None:
    """The ids alone were: whoever builds a suite could not tell a missing program from a broken change."""
    said = "E       FileNotFoundError: [Errno 2] No such file or directory: 'shop'\n"
    ran = Ran(Done("exited", 1, said, 0.1), {"kept": P, "broken": F})
    with pytest.raises(Unfit) as caught:
        validate._telling(stable([{"kept": P, "broken": F}], [ran.outcomes]), validate._first_words(ran))
    assert caught.value.reason == "fails_with_solution"
    assert str(caught.value.detail).startswith("1 ids, such as broken; 1 failed, 1 passed: E ")
    assert "No such file or directory: 'shop'" in caught.value.detail
