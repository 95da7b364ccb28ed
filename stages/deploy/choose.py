"""Which checkpoint a plain `rtrl deploy` means, and whether the gate lets it through. Reads only.

A report counts when its `baseline` is the checkpoint that is live now: a pass against an older one says
nothing about today. Of several reports about the same pair the newest decides.
"""

from __future__ import annotations

import contextlib
import json

from pydantic import BaseModel

from stages.errors import GateRejectedError, InconclusiveError, InputMissingError, RtrlError
from stages.populations import FIRST
from stages.registry.store import Store
from stages.stage import Artifact

RULES = ("suites", "margins", "alpha", "infra_limit", "drift", "drift_margins")  # of `[eval]`: what passes
OVERRIDE = 'or take the responsibility: --override --reason "..."'


def newest_reports(store: Store, line: str, live: Artifact) -> dict[str, Artifact]:
    """By candidate digest, the newest report against `live`; newest first."""
    found: dict[str, Artifact] = {}
    for report in store.all_of("report", line, where={"baseline": live.digest}):
        found.setdefault(str(report.meta.get("candidate")), report)
    return found


def default_candidate(store: Store, line: str, live: Artifact | None) -> Artifact:
    """The newest checkpoint that passed against `live`; without one the line's newest checkpoint.

    Raises InputMissingError (exit 5) when the line has no checkpoint.
    """
    if live is not None:
        for digest, report in newest_reports(store, line, live).items():
            passed = store.artifact(digest) if report.meta.get("verdict") == "pass" else None
            if passed is not None and passed.digest != live.digest:
                return passed
    newest = store.latest("checkpoint", line)
    if newest is None:
        raise InputMissingError(f"line {line} has no checkpoint", hint=FIRST)
    return newest


def report_for(store: Store, line: str, candidate: Artifact, live: Artifact | None) -> Artifact | None:
    """The newest report on `candidate` against `live`."""
    return newest_reports(store, line, live).get(candidate.digest) if live is not None else None


def objection(candidate: Artifact, live: Artifact | None, report: Artifact | None) -> RtrlError | None:
    """Why the gate does not let the candidate through; None when it does."""
    if live is None or candidate.digest == live.digest:
        return None
    if report is None:
        return GateRejectedError(
            f"no report compares {candidate.ref} with {live.ref}, which is live",
            hint=f"run `rtrl eval --input {candidate.ref}`, {OVERRIDE}",
        )
    verdict = report.meta.get("verdict")
    if verdict == "pass":
        return None
    message = f"{report.ref} found {candidate.ref} {verdict} against {live.ref}"
    hint = f"`rtrl show {report.ref}` says why; {OVERRIDE}"
    return (InconclusiveError if verdict == "inconclusive" else GateRejectedError)(message, hint=hint)


def other_rules(store: Store, rules: BaseModel, report: Artifact) -> list[str]:
    """A warning where a report was decided by other rules than `[eval]` has now (`--set`, say)."""
    with contextlib.suppress(InputMissingError):  # of a store of before runs were kept with it
        then, now = json.loads(store.producer(report.digest).config), rules.model_dump(mode="json")
        if changed := [name for name in RULES if name in then and then[name] != now[name]]:
            return [f"{report.ref} passed by other rules than `[eval]` has now: {', '.join(changed)}"]
    return []


def tried_before(store: Store, line: str, report: Artifact) -> list[str]:
    """A warning where earlier reports on the same pair found it regressed: every try has its own 5 %."""
    pair = {name: report.meta.get(name) for name in ("baseline", "candidate")}
    tries = store.all_of("report", line, where=pair, removed=True)
    earlier = [each for each in tries if each.version < report.version]
    lost = [each.ref for each in reversed(earlier) if each.meta.get("verdict") == "regressed"]
    if not lost:
        return []
    nth = len(earlier) + 1
    return [f"{report.ref} passed as try {nth}: by {', '.join(lost)} the same pair had regressed"]
