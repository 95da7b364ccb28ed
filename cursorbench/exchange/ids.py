"""Test ids of a SWE-bench row against those that were found stable here.

Not here: finding them (`cursorbench/builder/validate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from cursorbench.builder.paths import runs_tests, targets_of
from cursorbench.builder.unfit import Unfit
from cursorbench.builder.validate import Stable
from cursorbench.exchange.rows import Row
from cursorbench.graders.infrastructure import tests_folder


def targets(row: Row, files: Iterable[str]) -> tuple[str, ...]:
    """What the test command runs: the row's test files, and those that its ids name."""
    split = (name.partition("::") for name in (*row.fail_to_pass, *row.pass_to_pass))
    named = {path for path, found, _ in split if found}
    modules = {path for path in named if runs_tests(path)}
    otherwise = {path for path in named - modules if path.endswith(".py") and tests_folder(path)}
    return targets_of(sorted({*files, *modules}), otherwise)


def narrowing(row: Row, facts: dict[str, Any]) -> Callable[[Stable], Stable]:
    """What holds the ids that validation found against the row's; notes in `facts` what is left out."""

    def narrow(found: Stable) -> Stable:
        telling, missing = matched(row.fail_to_pass, found.fail_to_pass)
        wavering = (*found.unstable, *found.date_dependent)
        wrong = [name for name in missing if name not in wavering] or ([] if telling else list(missing))
        if wrong:
            why = _why(wrong[0], found)
            raise Unfit("ids_not_reproduced", f"{len(wrong)} of {len(row.fail_to_pass)}: {wrong[0]} {why}")
        staying, gone = matched(row.pass_to_pass, found.pass_to_pass)
        notes = [
            f"{len(left)} of {len(claimed)} ids of {column} {what}"
            for left, claimed, column, what in (
                (missing, row.fail_to_pass, "FAIL_TO_PASS", "waver here"),
                (gone, row.pass_to_pass, "PASS_TO_PASS", "do not hold here"),
            )
            if left
        ]
        if notes:
            facts["note"] = ", ".join(notes)
        return replace(found, fail_to_pass=telling, pass_to_pass=staying)

    return narrow


def matched(wanted: Sequence[str], found: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(ids of ours that the row's name, ids of the row's that name none).

    A row's id that ends inside brackets was cut at a blank when it was made (`test_a[x y]` as `test_a[x`);
    it names all of ours that go on so.
    """
    known, named, missing = set(found), set(), []
    for name in wanted:
        cut = "[" in name and not name.endswith("]")
        ours = {name} & known or {one for one in found if cut and one.startswith(f"{name} ")}
        named |= ours
        if not ours:
            missing.append(name)
    return tuple(sorted(named)), tuple(missing)


def _why(name: str, found: Stable) -> str:
    kinds = {
        "passes on the base, too": found.pass_to_pass,
        "wavers": found.unstable,
        "passes at some dates only": found.date_dependent,
        "fails with the patch": found.broken,
        "is skipped on the base": found.skipped,
    }
    return next((why for why, names in kinds.items() if name in names), "was not run")
