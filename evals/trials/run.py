"""Many trials of a suite at once: what is there is not made again, what dies costs itself, all is kept.

A run's folder holds its trials under the digest of everything that decides them, so the same command again,
after a kill -9 too, makes only what is missing, and trials that the infrastructure took. A cache folder,
shared by runs, gives trials made before under equal digests, after a share of them has been made again and
agrees. Not here: one trial (`attempt.py`), the figures (`summary.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random

import msgspec

from cursorbench.errors import DependencyDownError, RtrlError
from cursorbench.graders import rubric as rubrics
from cursorbench.graders.rubric import Rubric
from evals.cases import Attempt, Metric, SuiteSpec
from evals.reuse import DISAGREE_P, disagreement, least
from evals.trials import attempt as trials
from evals.trials import causes, workers
from evals.trials.attempt import Job
from evals.trials.plan import Plan, deployed_meanwhile, jobs_of, limit_s
from evals.trials.record import Folder, Record, put
from evals.trials.summary import Summary, losses, summarise
from evals.trials.workers import Lost, Raised

GIVE_UP = 10  # trials in a row that infrastructure took; more where more are made at once
SOLVED = SuiteSpec(
    "trials", (Metric("solved", "higher", 0.0, "share", "", bounds=(0.0, 1.0)),), 1, "as the task says"
)

Advance = Callable[[int, str], None]


@dataclass
class Ran:
    """What a run came to.

    Attributes:
        records: of all trials, task by task.
        made, resumed, reused: how many were made now, found in the run's folder, taken from the cache.
        notes: what a person should know.
    """

    records: list[Record]
    summary: Summary
    made: int = 0
    resumed: int = 0
    reused: int = 0
    notes: list[str] = field(default_factory=list)

    def rows(self) -> list[dict[str, object]]:
        """A line per trial for documents; all of it is in the trial's file."""
        return [
            {
                "task": one.task,
                "cluster": one.cluster,
                "attempt": one.attempt,
                "cause": one.cause,
                "passed": one.passed,
                "tokens": one.usage.tokens,
                "calls": one.usage.calls,
                "seconds": round(one.usage.seconds, 3),
                "flags": list(one.correctness.get("flags", ())),
                "key": one.key,
            }
            for one in self.records
        ]


def run(plan: Plan, advance: Advance = lambda n, note: None) -> Ran:
    """Make a run's trials and sum them up.

    Args:
        advance: told of trials that ended, with their cause.

    Raises:
        DependencyDownError: (exit 13) so many trials in a row found no engine or no sandbox that the rest
            would too. What was made is kept.
        RtrlError: what a trial raised for the user to mend.
    """
    return _Run(plan, advance).whole()


class _Run:
    def __init__(self, plan: Plan, advance: Advance) -> None:
        self._plan, self._advance = plan, advance
        self._folder = Folder(plan.setting.out)
        self._jobs = jobs_of(plan)
        self._found: dict[str, Record] = {}
        self._notes: list[str] = []
        self._lost_in_a_row = 0
        self._made = 0

    def whole(self) -> Ran:
        resumed = self._there()
        reused = self._reused()
        for record in self._results([job for job in self._jobs if job.key not in self._found]):
            self._keep(record)
        if self._plan.setting.quality:
            self._measure()
        if self._plan.rubric is not None:
            self._grade_by(self._plan.rubric)
        records = [
            self._as_asked(self._found[job.key])
            for job in sorted(self._jobs, key=lambda job: (job.name, job.attempt))
        ]
        self._notes += [f"moved aside: {what}" for what in self._folder.damaged]
        self._notes += [*losses(records), *deployed_meanwhile(self._plan)]
        said = summarise(records, self._plan.attempts)
        put(
            self._plan.setting.out / "summary.json",
            msgspec.json.encode({"conditions": asdict(self._plan.conditions), **said.to_json()}),
        )
        return Ran(records, said, self._made, resumed, reused, self._notes)

    def _as_asked(self, record: Record) -> Record:
        """A trial by this run's price table, and with quality only where it is asked for."""
        setting = self._plan.setting
        quality = record.quality if setting.quality else {}
        return msgspec.structs.replace(record, cost=trials.cost(setting, record.usage), quality=quality)

    def _there(self) -> int:
        """Take the trials of the run's folder; those that infrastructure took are made again."""
        for job in self._jobs:
            record = self._folder.read(job.key)
            if record is not None and not record.infrastructure:
                self._found[job.key] = record
        self._advance(len(self._found), "there already")
        return len(self._found)

    def _reused(self) -> int:
        """Take trials of the cache, when a share of them made again agrees."""
        if self._plan.cache is None:
            return 0
        cache = Folder(self._plan.cache)
        stored = {
            job.key: record
            for job in self._jobs
            if job.key not in self._found
            and (record := cache.read(job.key)) is not None
            and not record.infrastructure
        }
        self._notes += [f"cache, moved aside: {what}" for what in cache.damaged]
        if not stored:
            return 0
        names = sorted(stored)
        wanted = least(SOLVED, self._plan.rerun_share)
        count = min(len(names), max(math.ceil(self._plan.rerun_share * len(names)), wanted))
        chosen = set(Random(self._plan.seed).sample(names, count))
        again = self._again([job for job in self._jobs if job.key in chosen])
        pairs = [(record, stored[record.key]) for record in again if not record.infrastructure]
        p = disagreement([_attempt(one) for one, _ in pairs], [_attempt(one) for _, one in pairs], SOLVED)
        unchecked = len(pairs) < wanted
        if unchecked or p <= DISAGREE_P:
            why = f"{len(again)} trials of the cache made again did not agree (p = {p:.2g})"
            if unchecked:
                why = f"{len(pairs)} trials of the cache could be made again, and {wanted} have to be"
            self._notes.append(f"{why}: none is reused")
            for record in again:
                self._keep(record)
            return 0
        for name, record in stored.items():
            self._found[name] = record
            self._folder.write(record)
        self._advance(len(stored) - len(chosen), "from the cache")
        self._notes.append(
            f"{len(stored)} trials from the cache, {len(pairs)} made again agree (p = {p:.2g})"
        )
        return len(stored)

    def _again(self, jobs: Sequence[Job]) -> list[Record]:
        """Make trials a second time; kept apart, so that a killed run does not make them a third time.

        What infrastructure took the last time is made once more.
        """
        kept = {
            job.key: record
            for job in jobs
            if (record := self._folder.read(job.key, "again")) is not None and not record.infrastructure
        }
        found = list(kept.values())
        for record in self._results([job for job in jobs if job.key not in kept]):
            self._folder.write(record, "again")
            found.append(record)
        return found

    def _keep(self, record: Record) -> None:
        """Keep a trial, or the one that another run has put there meanwhile: both tell of what is there."""
        self._made += 1
        there = self._folder.read(record.key)
        if there is None or there.infrastructure:
            self._write(there := record)
        self._found[record.key] = there

    def _write(self, record: Record) -> None:
        self._folder.write(record)
        if self._plan.cache is not None and not record.infrastructure:
            Folder(self._plan.cache).write(record)

    def _results(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """Records as trials end; a worker that died or raised gives one too, or another try."""
        plan, waiting = self._plan, list(jobs)
        limit = self._limit_s()
        tries: Counter[str] = Counter()
        while waiting:
            again: list[Job] = []
            for number, result in workers.run(trials.attempt, waiting, plan.jobs, limit, plan.workers):
                job = waiting[number]
                tries[job.key] += 1
                if isinstance(result, Record):
                    record = result
                else:
                    record = _broken(job, result, tries[job.key])
                    if tries[job.key] <= causes.TABLE[record.cause].retries:
                        again.append(job)
                        continue
                yield record
                self._ended(record)
            waiting = again

    def _limit_s(self) -> float:
        return max(limit_s(task, self._plan.setting) for task in self._plan.tasks)

    def _measure(self) -> None:
        """Measure what trials that were made without it are to have of quality; no trial is made again."""
        plan, found = self._plan, self._found
        wanted = [
            (job, found[job.key]) for job in self._jobs if trials.lacks_quality(plan.setting, found[job.key])
        ]
        whole = [one for one in wanted if not one[1].diff_cut]
        missing = len(wanted) - len(whole)
        for _, result in workers.run(trials.measured, whole, plan.jobs, self._limit_s(), plan.workers):
            if isinstance(result, Record):
                found[result.key] = result
                self._write(result)
                continue
            error = result.error if isinstance(result, Raised) else None
            if isinstance(error, RtrlError) and not isinstance(error, DependencyDownError):
                raise error
            missing += 1
        if missing:
            self._notes.append(f"{missing} trials were made without quality, and it could not be measured")

    def _grade_by(self, rubric: Rubric) -> None:
        """Let the rubric's model grade what has no grade of it yet."""
        tasks = {task.name: task.instruction for task in self._plan.tasks}
        wanted = {
            name: (tasks[one.task], one.diff)
            for name, one in self._found.items()
            if not one.infrastructure and one.diff.strip()
        }
        graded = rubrics.grade(wanted, rubric, self._plan.setting.out / "votes")
        for name, grade in graded.items():
            self._found[name] = msgspec.structs.replace(
                self._found[name], rubric={"met": list(grade.met), "reason": grade.reason}
            )
        if missing := sum(1 for grade in graded.values() if grade.reason):
            self._notes.append(f"the rubric's model gave no grade for {missing} of {len(graded)} changes")

    def _ended(self, record: Record) -> None:
        """Count a trial that ended. Raises DependencyDownError when too many in a row found nothing."""
        self._lost_in_a_row = self._lost_in_a_row + 1 if record.infrastructure else 0
        self._advance(1, record.cause)
        if self._lost_in_a_row >= max(GIVE_UP, 2 * self._plan.jobs):
            raise DependencyDownError(
                f"{self._lost_in_a_row} trials in a row were lost to the infrastructure: {record.detail}",
                hint="mend it and run the same command again: what was made is kept",
            )


def _broken(job: Job, result: Lost | Raised, tries: int) -> Record:
    """The record of a trial whose worker gave none. Raises what the user has to mend."""
    if isinstance(result, Raised):
        if isinstance(result.error, RtrlError):
            raise result.error
        cause, detail = "grader_died", result.trace[-1000:]
    else:
        cause, detail = f"worker_{result.why}", causes.TABLE[f"worker_{result.why}"].what
    return Record(
        key=job.key,
        task=job.name,
        cluster=job.cluster,
        attempt=job.attempt,
        cause=cause,
        detail=detail,
        tries=tries,
    )


def _attempt(record: Record) -> Attempt:
    values: Mapping[str, tuple[float, float]] = {"solved": (float(bool(record.passed)), 1.0)}
    return Attempt(f"{record.task}#{record.attempt}", record.cluster, 0, values)
