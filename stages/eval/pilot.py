"""A finished report as a pilot: what its live checkpoint's attempts say of a suite, for power.

Not here: the simulation that uses it (`evals/power.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from evals.cases import Metric, SuiteSpec
from evals.studies import pilot
from evals.worlds import Tasks
from stages.errors import InputMissingError, UsageError
from stages.eval import attempts as files
from stages.stage import Artifact


@dataclass(frozen=True)
class Pilot:
    """One gated share of a report: its name, its margin, and the suite as the pilot showed it."""

    name: str
    margin: float
    tasks: Tasks


def from_report(report: Artifact, of: str | None, tries: int | None) -> Pilot:
    """The live checkpoint's attempts at one metric.

    Args:
        of: `suite.metric`; None for the first gated one that is a share.
        tries: attempts at each case from now on; None for as many as the pilot had.

    Raises:
        UsageError: (exit 2) the report has no such metric.
        InputMissingError: (exit 5) it is no report of `rtrl eval`.
    """
    if report.meta.get("report") != "gate":
        raise InputMissingError(
            f"{report.ref} is no report of `rtrl eval`",
            hint="name one of its; `rtrl status` lists the newest",
        )
    known = {
        f"{suite}.{name}": (suite, name, figure)
        for suite, figures in report.meta["suites"].items()
        for name, figure in figures.items()
    }
    gated = [key for key, (_, _, figure) in known.items() if figure["gated"]]
    for key in [of] if of else gated:
        if key not in known:
            raise UsageError(f"{report.ref} has no {key}", hint=f"one of {', '.join(known)}")
        suite, name, figure = known[key]
        row = next(r for r in report.meta["attempts"] if (r["suite"], r["role"]) == (suite, "baseline"))
        spec = SuiteSpec(suite, (Metric(name, "higher", 0.0, "", ""),), 1, "")
        try:
            tasks = pilot(files.read(report.path / str(row["file"]), spec), name, tries)
        except (UsageError, InputMissingError):
            if of:
                raise
            continue
        return Pilot(key, float(figure["margin"]), tasks)
    raise InputMissingError(
        f"{report.ref} has no gated metric that is a share", hint="plan with --tasks, or of another report"
    )
