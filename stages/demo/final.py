"""The question the demo answers: do the same held-out users fare better with the last checkpoint?

Both checkpoints answer the same requests of people nobody trained on and no gate asked, in one engine,
at the temperature of serving.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.stage import Artifact, Progress

if TYPE_CHECKING:
    from evals.cases import Attempt, SuiteSpec
    from stages.eval.subjects import ChatEngine
    from stages.registry.store import Store
    from stages.workspace import Workspace

OTHER_PEOPLE = 1_000_003  # held-out population seed of the replay, counted on from the gate's


def compare(
    workspace: Workspace,
    store: Store,
    first: Artifact,
    last: Artifact,
    *,
    requests: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Replay first and last.

    Returns:
        {"requests", "users", "first", "last", "figures": {metric: {"first", "last": estimates, "gain",
        "low", "high": of last - first, more is better, "apart": the two intervals do not touch}}}
    """
    from evals.suites.harness import HarnessSuite
    from stages.eval.run import start_engine
    from stages.eval.subjects import Engines

    config = workspace.settings.eval
    suite = HarnessSuite(requests, config.population_seed + OTHER_PEOPLE, temperature=config.temperature)
    cases = suite.cases()
    found: dict[str, list[Attempt]] = {}

    def start(folder: Path) -> ChatEngine:
        return start_engine(workspace, folder)

    with Engines(start, seed, store.checkpoint_folder) as engines:
        for role, checkpoint in (("first", first), ("last", last)):
            progress.start(f"held-out users with the {role} checkpoint, {checkpoint.ref}", len(cases))
            found[role] = suite.run(engines.subject(checkpoint), cases, progress.advance)
    users = len({one.cluster for one in found["first"]})
    return {
        "requests": len(cases),
        "users": users,
        "first": {"ref": first.ref, "digest": first.digest},
        "last": {"ref": last.ref, "digest": last.digest},
        "figures": figures(suite.spec, found["first"], found["last"]),
    }


def figures(spec: SuiteSpec, first: Sequence[Attempt], last: Sequence[Attempt]) -> dict[str, dict[str, Any]]:
    """Per metric both checkpoints' estimates, the paired gain, and whether the intervals are apart."""
    from evals.gate import Rules
    from evals.gate import compare as compare_arms

    result = compare_arms(spec, (last, first), Rules())
    return {
        one.metric.name: {
            "first": one.baseline.to_json(),
            "last": one.candidate.to_json(),
            "gain": one.gain,
            "low": one.low,
            "high": one.high,
            "apart": one.candidate.apart_from(one.baseline),
            "better": one.gain is not None and one.gain > 0,
        }
        for one in result.criteria
    }
