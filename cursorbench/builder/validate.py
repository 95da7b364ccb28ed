"""Do the tests of a commit tell whether its change is there, every time they are run?

    stable(base runs, solution runs)   which test ids do, from outcomes alone
    by_date(found, ...)                which of the others the date decides
    validate(bench, ...)               makes the runs

A test id is kept that passes in every run with the solution, and in all or in none of the runs on the base:
`fail_to_pass` and `pass_to_pass`. An id that is missing on the base counts as failing there: a module that
cannot be imported yet reports none of its tests. So that one new import does not make all of a module's
tests look as if they told, those that pass on the base with its own test files count as passing there, as
long as others tell. One that is skipped on the base is not kept: whether it
would fail is not known. Where the date alone decides whether an id passes, that is told from other wavering
(`by_date`). Not for: what a run is (`runs.py`), grading (`cursorbench/graders/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cursorbench.builder.paths import told_by_tests
from cursorbench.builder.runs import USUAL, Bench, Conditions
from cursorbench.builder.unfit import Unfit
from cursorbench.graders import restoring
from cursorbench.graders.junit import Outcome
from cursorbench.graders.running import Ran

BASE_RUNS: Final = 3
LEAST_SOLUTION_RUNS: Final = 3
MOST_SOLUTION_RUNS: Final = 5
Need = Literal["needed", "not needed", "not known"]
_NAMED = 3  # ids in a message


@dataclass(frozen=True)
class Stable:
    """Test ids by what all runs said. Each sorted.

    Attributes:
        fail_to_pass, pass_to_pass: as ExpectedTests has them.
        unstable: an id that a run says otherwise of than another on the same files.
        broken: fail with the solution in every run.
        skipped: skipped on the base and passed with the solution.
        date_dependent: pass at some dates and not at others; not among the unstable.
    """

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    date_dependent: tuple[str, ...] = ()

    def known_before(self, passed: Collection[str]) -> Stable:
        """The same with what passed on the base with its own tests in pass_to_pass, if others tell."""
        telling = tuple(name for name in self.fail_to_pass if name not in passed)
        if not telling:
            return self
        kept = tuple(sorted({*self.pass_to_pass, *self.fail_to_pass} - set(telling)))
        return replace(self, fail_to_pass=telling, pass_to_pass=kept)

    def without(self, names: Collection[str]) -> Stable:
        """The same with these ids among the unstable ones."""
        return replace(
            self,
            fail_to_pass=tuple(name for name in self.fail_to_pass if name not in names),
            pass_to_pass=tuple(name for name in self.pass_to_pass if name not in names),
            unstable=tuple(sorted({*self.unstable, *names})),
        )


@dataclass(frozen=True)
class Validation:
    """What validation found.

    Attributes:
        runs: how many on the base and with the solution, under how different conditions.
        needed: by file of the solution, whether the tests fail without it.
        slowest_s: of the runs that ended.
        date: "moved", or why not.
    """

    tests: Stable
    runs: Mapping[str, int]
    needed: Mapping[str, Need]
    slowest_s: float
    date: str


Outcomes = Mapping[str, Outcome]


def stable(base: Sequence[Outcomes], solution: Sequence[Outcomes]) -> Stable:
    """Sort all ids of tests; `base` and `solution` are the runs, at least one each."""
    ids = sorted({name for run in (*base, *solution) for name in run if told_by_tests(name)})
    sorted_: dict[str, list[str]] = {"fail": [], "pass": [], "unstable": [], "broken": [], "skipped": []}
    for name in ids:
        before, after = ([run.get(name) for run in runs] for runs in (base, solution))
        passed, skipped = before.count("passed"), before.count("skipped")
        if 0 < after.count("passed") < len(after) or 0 < passed < len(before):
            kind = "unstable"
        elif "passed" not in after:
            kind = "broken" if any(one in ("failed", "error") for one in after) else ""
        elif passed:
            kind = "pass"
        elif skipped:
            kind = "skipped" if skipped == len(before) else "unstable"
        else:
            kind = "fail"
        if kind:
            sorted_[kind].append(name)
    return Stable(*(tuple(names) for names in sorted_.values()))


def by_date(
    found: Stable,
    base: Sequence[Outcomes],
    solution: Sequence[Outcomes],
    base_dates: Sequence[int],
    solution_dates: Sequence[int],
) -> Stable:
    """The same with those unstable ids apart whose passing hangs on the date and on nothing else seen.

    That is: at one date all runs agree, and the last run with the solution, which differs from the first in
    the date alone, says otherwise.

    Args:
        base_dates, solution_dates: of the runs, seconds from the true date.
    """

    def agree(name: str, runs: Sequence[Outcomes], dates: Sequence[int]) -> bool:
        said = {(date, run.get(name) == "passed") for date, run in zip(dates, runs, strict=True)}
        return len(said) == len(set(dates))

    if not solution_dates[-1]:
        return found
    first, last = solution[0], solution[-1]
    names = {
        name
        for name in found.unstable
        if (first.get(name) == "passed") != (last.get(name) == "passed")
        and agree(name, base, base_dates)
        and agree(name, solution, solution_dates)
    }
    return replace(
        found,
        unstable=tuple(name for name in found.unstable if name not in names),
        date_dependent=tuple(sorted(names)),
    )


def validate(
    bench: Bench,
    solution: str,
    without: Mapping[str, str],
    seed: str,
    said: Callable[[str], None] = lambda _: None,
) -> Validation:
    """Run base and solution under varying conditions, then the solution without each of its files.

    Args:
        solution: the patch; without: by file, the patch of all the others.
        seed: what orders are drawn from.
        said: told what is being run.

    Raises:
        Unfit: they do not tell, or not every time.
        SandboxError: infrastructure; nothing is known then.
    """
    bench = bench.checked()
    after = [_ran(bench, solution, USUAL, said, "solution")]
    if "passed" not in after[0].outcomes.values():
        raise Unfit("no_test_passes", _first_words(after[0]))
    before = [_ran(bench, "", USUAL, said, "base")]
    _telling(stable([before[0].outcomes], [after[0].outcomes]), _first_words(after[0]))  # mostly by now
    under = [bench.conditions(run, seed) for run in range(MOST_SOLUTION_RUNS)]
    for run in range(1, BASE_RUNS):
        before.append(_ran(bench, "", under[run], said, "base"))
    for run in range(1, MOST_SOLUTION_RUNS):
        found = stable([one.outcomes for one in before], [one.outcomes for one in after])
        if run >= LEAST_SOLUTION_RUNS and not found.unstable:
            break  # two more only where something wavers
        if run == MOST_SOLUTION_RUNS - 1:
            under[run] = _date_alone(found, [one.outcomes for one in after], under)
        after.append(_ran(bench, solution, under[run], said, "solution"))
    found = _sorted(before, after, under)
    if any(name not in before[0].outcomes for name in found.fail_to_pass):
        said("base with its own tests")
        old = bench.run("", USUAL, old_tests=True)
        found = found.known_before([name for name, outcome in old.outcomes.items() if outcome == "passed"])
    needed: dict[str, Need] = {}
    for path, patch in without.items():
        said(f"without {path}")
        needed[path] = _need(bench, patch, found)
    return Validation(
        tests=found,
        runs={"base": len(before), "solution": len(after), "without": len(needed)},
        needed=needed,
        slowest_s=max(one.done.seconds for one in (*before, *after)),
        date=f"not moved: {bench.clock.why_not}" if bench.clock.why_not else "moved",
    )


def _date_alone(found: Stable, solution: Sequence[Outcomes], under: Sequence[Conditions]) -> Conditions:
    """The usual conditions at the first date where an unstable id did as it does not at the true one."""
    for run, one in zip(solution[1:], under[1:], strict=False):
        if one.ahead_s and any(
            (run.get(name) == "passed") != (solution[0].get(name) == "passed") for name in found.unstable
        ):
            return replace(USUAL, ahead_s=one.ahead_s)
    return under[len(solution)]


def _ran(bench: Bench, solution: str, under: Conditions, said: Callable[[str], None], where: str) -> Ran:
    """One run that says something of its tests. Raises Unfit; date_dependent if it does at the true date."""
    try:
        return _once(bench, solution, under, said, where)
    except Unfit as error:
        if not under.ahead_s or error.reason == "does_not_apply":
            raise
        _once(bench, solution, replace(under, ahead_s=0), said, f"{where} at the true date")
        days = under.ahead_s // 86_400
        raise Unfit("date_dependent", f"{days} days ahead {error.reason}: {error.detail}") from error


def _once(bench: Bench, solution: str, under: Conditions, said: Callable[[str], None], where: str) -> Ran:
    said(where)
    try:
        ran = bench.run(solution, under)
    except restoring.PatchError as error:
        raise Unfit("does_not_apply", str(error)[:200]) from error
    if ran.done.ended != "exited":
        raise Unfit(f"run_{ran.done.ended}", f"{where}, after {ran.done.seconds:.0f} s")
    if ran.defect:
        raise Unfit("no_report", f"{where}: {ran.defect}; {_first_words(ran)}")
    return ran


def _sorted(before: Sequence[Ran], after: Sequence[Ran], under: Sequence[Conditions]) -> Stable:
    """What all runs say together, run n under the n-th conditions. Raises Unfit when no test tells."""
    base, solution = [one.outcomes for one in before], [one.outcomes for one in after]
    dates = [one.ahead_s for one in under]
    found = by_date(stable(base, solution), base, solution, dates[: len(base)], dates[: len(solution)])
    return _telling(found, _first_words(after[0]))


def _telling(found: Stable, words: str = "") -> Stable:
    """The same. Raises Unfit when no test tells; `words`: of a run with the solution."""
    if found.fail_to_pass:
        return found
    reasons = (
        ("date_dependent", found.date_dependent),
        ("unstable", found.unstable),
        ("fails_with_solution", found.broken),
        ("skipped_on_base", found.skipped),
    )
    for reason, names in reasons:
        if names:
            said = f"; {words}" if words and reason == "fails_with_solution" else ""
            raise Unfit(reason, f"{len(names)} ids, such as {', '.join(names[:_NAMED])}{said}")
    raise Unfit("passes_on_base", f"{len(found.pass_to_pass)} tests pass with and without the change")


def _need(bench: Bench, patch: str, found: Stable) -> Need:
    try:
        ran = bench.run(patch, USUAL)
    except restoring.PatchError:
        return "not known"
    if ran.done.ended != "exited" or ran.defect:
        return "needed"
    expected = (*found.fail_to_pass, *found.pass_to_pass)
    return "not needed" if all(ran.outcomes.get(name) == "passed" for name in expected) else "needed"


def _first_words(ran: Ran) -> str:
    """Of a run's output the line that most likely says what is wrong, for people; masked by who writes it."""
    lines = [line.strip() for line in ran.done.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E ", "ERROR", "error:", "Error"))]
    errors = [line for line in lines if ": error: " in line] if "usage: " in "".join(errors[:1]) else errors
    if not errors and lines and lines[0].startswith("Traceback "):
        errors = lines[-1:]
    counted = Counter(ran.outcomes.values())
    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counted.items()))
    return f"{told or f'status {ran.done.status}'}: {(errors or lines or [''])[0][:200]}"
