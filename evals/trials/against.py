"""A run beside an earlier one of another model: differences task by task, and whether they may be believed.

Only what was made under equal digests of harness, sandbox, graders and tasks is compared; the engine is what
differs. Trials that the infrastructure lost are left out, so a model that loses more of them than the other
would choose its own tasks: then, as above 1 % in either arm, the comparison is void. Not here: a verdict,
which is the gate's (`evals/gate.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.errors import InputMissingError, IntegrityError, UsageError
from evals.cases import Attempt, Metric, pair
from evals.gate import Rules, infrastructure
from evals.stats.inference import Inference
from evals.stats.intervals import Estimate
from evals.stats.paired import paired_sums
from evals.trials.conditions import Conditions
from evals.trials.plan import Plan, task_digests
from evals.trials.record import Folder, Record, key
from evals.trials.summary import INFRA_LIMIT

METRICS = (
    Metric("solved", "higher", 0.0, "share", "", bounds=(0.0, 1.0)),
    Metric("tokens", "lower", 0.0, "tokens", ""),
    Metric("seconds", "lower", 0.0, "s", ""),
)
ALPHA = 0.05


@dataclass(frozen=True)
class Against:
    """This run minus the other, over the tasks that both could try.

    Attributes:
        void: why the differences may not be believed, "" when they may.
        differences: by figure, with 95 % intervals clustered as the tasks say.
    """

    folder: str
    tasks: int
    void: str
    differences: dict[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def theirs(plan: Plan, folder: Path) -> list[Record]:
    """The trials of another run's folder that a plan's are held against.

    Raises:
        InputMissingError: (exit 5) there is no run, or none of one of these tasks.
        IntegrityError: (exit 12) its summary cannot be read.
        UsageError: (exit 2) it was made under other conditions than the engine's.
    """
    under = _conditions(folder)
    if differing := [name for name in plan.conditions.differing(under) if name != "engine"]:
        raise UsageError(
            f"{folder} was made with another {' and another '.join(differing)}",
            hint="run it again with this version and these settings",
        )
    there = Folder(folder)
    digests = task_digests(plan.tasks)
    wanted = [(task.name, number) for task in plan.tasks for number in range(plan.attempts)]
    found = [there.read(key(under.digest, digests[name], number)) for name, number in wanted]
    other = [record for record in found if record is not None]
    tried = {record.task for record in other}
    if lacking := [task.name for task in plan.tasks if task.name not in tried]:
        raise InputMissingError(
            f"{folder} has no trial of {len(lacking)} of these {len(plan.tasks)} tasks, such as {lacking[0]}",
            hint="not tried there, or another task now: run that one again too, or --task for what both have",
        )
    return other


def compare(plan: Plan, records: Sequence[Record], folder: Path) -> Against:
    """Compare a run's records with those of another run's folder. Raises as `theirs`."""
    here, known = [_attempt(one) for one in records], [_attempt(one) for one in theirs(plan, folder)]
    paired = pair(here, known, [metric.name for metric in METRICS])
    lost = infrastructure(here, known, Rules(alpha=ALPHA, infra_limit=INFRA_LIMIT))
    differences = {}
    for metric in METRICS:
        columns = paired.candidate[metric.name].columns, paired.baseline[metric.name].columns
        if not all(column[1].sum() > 0 for column in columns):
            continue
        data = paired_sums(*columns, paired.clusters)
        low, high = Inference(data, metric.limits).interval()
        ends = [None if abs(end) == float("inf") else end for end in (low, high)]
        differences[metric.name] = Estimate(data.mean, ends[0], ends[1], data.cases, data.clusters)
    return Against(str(folder), len(paired.cases), lost.objection, differences)


def _conditions(folder: Path) -> Conditions:
    try:
        said = msgspec.json.decode((folder / "summary.json").read_bytes())
        return Conditions(**said["conditions"])
    except FileNotFoundError as error:
        raise InputMissingError(
            f"{folder} has no finished run", hint="its --out, with a summary.json"
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        raise IntegrityError(f"{folder}/summary.json cannot be read: {error}") from error


def _attempt(record: Record) -> Attempt:
    if record.infrastructure:
        return Attempt(record.task, record.cluster, record.attempt, {}, failure=record.cause)
    told = float(not record.ambiguous)
    values = {
        "solved": (told * bool(record.passed), told),
        "tokens": (float(record.usage.tokens), 1.0),
        "seconds": (record.usage.seconds, 1.0),
    }
    return Attempt(record.task, record.cluster, record.attempt, values)
