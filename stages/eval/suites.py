"""From the settings' names to suites, with the settings' margins in place of the suites' own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evals.cases import SuiteSpec
from evals.suites.base import Suite
from evals.suites.harness import HarnessSuite
from evals.suites.lm_eval_task import LmEvalSuite
from stages.errors import UsageError
from stages.eval.config import EvalConfig

LM_EVAL = "lm_eval:"
SNIPPETS = "rtrl_snippets"


def build(config: EvalConfig, root: Path) -> list[tuple[Suite, SuiteSpec]]:
    """The suites of a comparison and their declarations.

    Args:
        config: names, sizes, margins.
        root: the workspace's folder; a relative `lm_eval_include` is below it.

    Raises:
        UsageError: (exit 2) an unknown or repeated suite, or a margin for a metric nobody measures.
    """
    include = root / config.lm_eval_include if config.lm_eval_include else None
    suites: list[Suite] = []
    for name in config.suites:
        if name == "harness":
            suites.append(
                HarnessSuite(config.requests, config.population_seed, config.attempts, config.temperature)
            )
        elif name == "snippets":
            suites.append(LmEvalSuite(SNIPPETS, name=name, limit=config.lm_eval_limit))
        elif name.startswith(LM_EVAL):
            task = name.removeprefix(LM_EVAL)
            suites.append(LmEvalSuite(task, include=include, limit=config.lm_eval_limit))
        else:
            raise UsageError(f"there is no suite {name!r}", hint=f"harness, snippets or {LM_EVAL}TASK")
    specs = [suite.spec for suite in suites]
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("eval.suites names a suite twice")
    return list(zip(suites, _with_margins(specs, config.margins), strict=True))


def _with_margins(specs: list[SuiteSpec], margins: dict[str, float]) -> list[SuiteSpec]:
    known = [f"{spec.name}.{metric.name}" for spec in specs for metric in spec.metrics]
    for name in margins:
        if name not in known:
            raise UsageError(f"eval.margins: nobody measures {name!r}", hint=f"one of {', '.join(known)}")
    return [
        replace(
            spec,
            metrics=tuple(
                replace(metric, margin=margins.get(f"{spec.name}.{metric.name}", metric.margin))
                for metric in spec.metrics
            ),
        )
        for spec in specs
    ]
