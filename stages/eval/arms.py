"""The attempts of one checkpoint at one suite: made now, resumed from a killed run, or reused.

Attempts are reused only under an equal key (checkpoint, suite, engine, code) and after a share of
them has been made again and agrees. Which earlier report may be asked is `known.py`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from evals.cases import Attempt, SuiteSpec
from evals.reuse import DISAGREE_P, disagreement, least
from evals.suites.base import Subject, Suite
from stages.eval.kept import Kept
from stages.stage import Progress


@dataclass(frozen=True)
class Reuse:
    """What became of stored attempts: reused or not, how many were made again, and how they compare.

    Attributes:
        p: smallest two-sided p value of stored against repeated attempts over the gated metrics.
        note: one line for the report.
    """

    report: str
    reused: bool
    rerun: int
    p: float
    note: str


def make(
    suite: Suite,
    subject: Subject,
    cases: Sequence[str],
    kept: Kept,
    progress: Progress,
    *,
    first: int = 0,
    what: str = "",
) -> list[Attempt]:
    """All attempts of a checkpoint at some cases of a suite.

    Args:
        first: number of the first attempt.
        kept: the batches made so far, which survive a killed run; only cases missing there are tried.
        what: for people, why these cases.
    """
    wanted = set(cases)
    found = [one for one in kept.read() if one.case in wanted]
    done = {one.case for one in found}
    missing = [case for case in cases if case not in done]
    if missing:
        title = f"{suite.spec.name}: {subject.checkpoint[7:19]} {what}".rstrip()
        progress.start(title, len(cases) * suite.spec.attempts)
        progress.advance(len(found))
    for start in range(0, len(missing), suite.batch):
        batch = suite.run(subject, missing[start : start + suite.batch], progress.advance, first)
        kept.append(batch)
        found += batch
    return found


def reuse(
    suite: Suite,
    subject: Subject,
    spec: SuiteSpec,
    stored: Sequence[Attempt],
    report: str,
    *,
    share: float,
    seed: int,
    kept: Kept,
    progress: Progress,
) -> tuple[list[Attempt] | None, Reuse]:
    """Stored attempts, if a share of them made again agrees, which takes their place; None when they do not,
    or too few could be made to tell.

    So what the checkpoint once did is renewed with every eval, whatever came of it: it stays live because
    candidates fail, and they fail the likelier the better it once did. Cases that the infrastructure lost
    then are tried again too. What was made again is in `kept`, as in `make`.

    Args:
        seed: decides which cases, so another one for each candidate.
    """
    cases = list(suite.cases())
    lost = sorted({one.case for one in stored if one.failure})
    wanted = least(spec, share)
    if len(cases) < wanted:  # all of them would be made again, to no avail, and then anew
        note = f"a check of {report} takes {wanted} cases, and there are {len(cases)}: all made again"
        return None, Reuse(report, False, 0, 1.0, note)
    count = min(len(cases), max(math.ceil(share * len(cases)), wanted))
    chosen = set(Random(f"{seed}:{spec.name}").sample(cases, count)) | set(lost)
    again = make(suite, subject, [case for case in cases if case in chosen], kept, progress, what="again")
    p = disagreement(again, stored, spec)
    checked = len({one.case for one in again if not one.failure})
    if chosen and checked < max(1, wanted):
        note = (
            f"only {checked} cases of {report} could be made again as a check, and {max(1, wanted)} have to "
            "be: all made again"
        )
        return None, Reuse(report, False, checked, p, note)
    if p <= DISAGREE_P:
        note = (
            f"{report}'s attempts did not agree with {len(chosen)} made again (p = {p:.2g}): all made again"
        )
        return None, Reuse(report, False, len(chosen), p, note)
    merged, renewed = _renewed(stored, again, lost)
    note = (
        f"{len(merged) - renewed} attempts of {report}, {len(chosen)} made again agree (p = {p:.2g}) and "
        f"{renewed} took their place"
    )
    return merged, Reuse(report, True, len(chosen), p, note)


def _renewed(
    stored: Sequence[Attempt], again: Sequence[Attempt], lost: Sequence[str]
) -> tuple[list[Attempt], int]:
    """Stored attempts, those made again in their place, and how many these are.

    Where the infrastructure lost one that was made again, the stored ones stay, unless it had lost these.
    """
    cases = ({one.case for one in again} - {one.case for one in again if one.failure}) | set(lost)
    new = [one for one in again if one.case in cases]
    return [one for one in stored if one.case not in cases] + new, len(new)
