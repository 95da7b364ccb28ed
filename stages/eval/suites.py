"""From the settings' names to suites, with the settings' margins in place of the suites' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from evals.cases import SuiteSpec
from evals.suites.base import Suite
from evals.suites.behaviour import ATTEMPTS as PROBE_ATTEMPTS
from evals.suites.behaviour import BehaviourSuite
from evals.suites.cursorbench import CursorBenchSuite
from evals.suites.harness import HarnessSuite
from evals.suites.held_out import documents
from evals.suites.lm_eval_task import LmEvalSuite
from evals.suites.perplexity import PerplexitySuite
from evals.suites.probes import SHIPPED, read
from stages.errors import UsageError
from stages.eval.config import EvalConfig

LM_EVAL = "lm_eval:"
CURSORBENCH = "cursorbench:"
PERPLEXITY = "perplexity:"
SNIPPETS = "rtrl_snippets"


def build(config: EvalConfig, root: Path, tips: Mapping[str, str]) -> list[tuple[Suite, SuiteSpec]]:
    """The suites of a comparison and their declarations.

    Args:
        config: names, sizes, margins.
        root: the workspace's folder; relative paths are below it.
        tips: the commit of each repository of a perplexity suite, by its name in the settings.

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
        elif name == "behaviour":
            suites.append(_behaviour(config, root))
        elif name.startswith(LM_EVAL):
            task = name.removeprefix(LM_EVAL)
            suites.append(LmEvalSuite(task, include=include, limit=config.lm_eval_limit))
        elif name.startswith(CURSORBENCH):
            suites.append(cursorbench_suite(name, config, root))
        elif name.startswith(PERPLEXITY):
            suites.append(_perplexity(name.removeprefix(PERPLEXITY), config, root, tips))
        else:
            hint = f"harness, snippets, behaviour, {LM_EVAL}TASK, {CURSORBENCH}FOLDER or {PERPLEXITY}FOLDER"
            raise UsageError(f"there is no suite {name!r}", hint=hint)
    specs = [suite.spec for suite in suites]
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("eval.suites names a suite twice")
    known = [f"{spec.name}.{metric.name}" for spec in specs for metric in spec.metrics]
    for setting, margins in (("margins", config.margins), ("drift_margins", config.drift_margins)):
        for name in margins:
            if name not in known:
                hint = f"one of {', '.join(known)}"
                raise UsageError(f"eval.{setting}: nobody measures {name!r}", hint=hint)
    return [(suite, with_margins(spec, config.margins)) for suite, spec in zip(suites, specs, strict=True)]


def cursorbench_suite(name: str, config: EvalConfig, root: Path) -> CursorBenchSuite:
    """The suite of tasks that a setting names; a relative folder is below the workspace's."""
    from evals.trials.planning import ENVIRONMENTS

    folder = root / name.removeprefix(CURSORBENCH)
    return CursorBenchSuite(folder, ENVIRONMENTS.expanduser(), config.attempts, config.temperature)


def _behaviour(config: EvalConfig, root: Path) -> BehaviourSuite:
    path = root / config.probes if config.probes else SHIPPED
    return BehaviourSuite(lambda: read(path), PROBE_ATTEMPTS * config.attempts, config.temperature)


def _perplexity(name: str, config: EvalConfig, root: Path, tips: Mapping[str, str]) -> PerplexitySuite:
    since = config.perplexity_since
    if since is None:
        hint = "--set eval.perplexity_since=2026-01-31, the first day that is held out"
        raise UsageError(f"{PERPLEXITY}{name} needs a date", hint=hint)
    path = (root / name).resolve()
    called = path.parent.name if path.name == ".git" else path.name.removesuffix(".git")
    return PerplexitySuite(
        f"{PERPLEXITY}{called}", lambda: documents(path, since, tips[name], config.perplexity_files)
    )


def with_margins(spec: SuiteSpec, margins: dict[str, float]) -> SuiteSpec:
    """The declaration with other margins for the metrics named `suite.metric`."""
    metrics = tuple(
        replace(metric, margin=margins.get(f"{spec.name}.{metric.name}", metric.margin))
        for metric in spec.metrics
    )
    return replace(spec, metrics=metrics)
