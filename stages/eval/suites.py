"""From the settings' names to suites, with the settings' margins in place of the suites' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cursorbench.harness.agent import AgentConfig
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
from stages.eval.attempts import require_names
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
        UsageError: (exit 2) an unknown or repeated suite, a margin of what nobody measures, or one larger
            than any loss, or a metric's name that a report's files cannot have.
    """
    suites = _named(config, root, tips)
    for suite in suites:
        require_names(suite.spec)
    return [(suite, with_margins(suite.spec, config.margins)) for suite in suites]


def check(config: EvalConfig, root: Path) -> None:
    """Raise as `build` would, and where there is no such task, folder or probe, or one that cannot be tried
    here (SandboxError, exit 13).

    What a task of lm-eval measures, which takes seconds and may have to be downloaded, is asked for only
    where a margin names one of its metrics.
    """
    for suite in _named(config, root, {}):
        if isinstance(suite, CursorBenchSuite):
            suite.require_here()
        elif not isinstance(suite, LmEvalSuite):
            _ = suite.spec
        elif suite.name != "snippets":
            suite.require_known()


def _named(config: EvalConfig, root: Path, tips: Mapping[str, str]) -> list[Suite]:
    suites = [_suite(name, config, root, tips) for name in config.suites]
    called: dict[str, str] = {}
    for setting, suite in zip(config.suites, suites, strict=True):
        if other := called.get(suite.name):
            raise UsageError(
                f"eval.suites names a suite twice: {other!r} and {setting!r} are both called {suite.name!r}",
                hint="leave one of them away; what a suite of tasks is called its suite.toml says",
            )
        called[suite.name] = setting
    for setting, margins in (("margins", config.margins), ("drift_margins", config.drift_margins)):
        for name, margin in margins.items():
            _require_margin(setting, name, margin, suites)
    return suites


def _require_margin(setting: str, name: str, margin: float, suites: Sequence[Suite]) -> None:
    """Raise UsageError (exit 2) for a margin of what nobody measures, or that is larger than any loss."""
    meant = [suite for suite in suites if name.startswith(f"{suite.name}.")]
    known = {f"{suite.name}.{metric.name}": metric for suite in meant for metric in suite.spec.metrics}
    if name not in known:
        hint = f"one of {', '.join(known or [f'{suite.name}.METRIC' for suite in suites])}"
        raise UsageError(f"eval.{setting}: nobody measures {name!r}", hint=hint)
    if (bounds := known[name].bounds) and margin > bounds[1] - bounds[0]:
        raise UsageError(
            f"eval.{setting}: {name} lies between {bounds[0]:g} and {bounds[1]:g}: no loss is as large "
            f"as the margin of {margin:g}",
            hint="a share and not points: 0.05 for five in a hundred",
        )


def _suite(name: str, config: EvalConfig, root: Path, tips: Mapping[str, str]) -> Suite:
    if name == "harness":
        asked = config.attempts, config.temperature, config.max_tokens
        return HarnessSuite(config.requests, config.population_seed, *asked)
    if name == "snippets":
        return LmEvalSuite(SNIPPETS, name=name, limit=config.lm_eval_limit)
    if name == "behaviour":
        return _behaviour(config, root)
    if name.startswith(LM_EVAL):
        include = root / config.lm_eval_include if config.lm_eval_include else None
        return LmEvalSuite(name.removeprefix(LM_EVAL), include=include, limit=config.lm_eval_limit)
    if name.startswith(CURSORBENCH):
        return cursorbench_suite(name, config, root)
    if name.startswith(PERPLEXITY):
        return _perplexity(name.removeprefix(PERPLEXITY), config, root, tips)
    hint = f"harness, snippets, behaviour, {LM_EVAL}TASK, {CURSORBENCH}FOLDER or {PERPLEXITY}FOLDER"
    raise UsageError(f"there is no suite {name!r}", hint=hint)


def cursorbench_suite(name: str, config: EvalConfig, root: Path) -> CursorBenchSuite:
    """The suite of tasks that a setting names; a relative folder is below the workspace's."""
    from evals.trials.planning import ENVIRONMENTS

    folder = root / name.removeprefix(CURSORBENCH)
    agent = AgentConfig() if config.max_tokens is None else AgentConfig(max_tokens=config.max_tokens)
    return CursorBenchSuite(
        folder, ENVIRONMENTS.expanduser(), config.attempts, config.temperature, agent=agent
    )


def _behaviour(config: EvalConfig, root: Path) -> BehaviourSuite:
    path = root / config.probes if config.probes else SHIPPED
    attempts = PROBE_ATTEMPTS * config.attempts
    return BehaviourSuite(lambda: read(path), attempts, config.temperature, config.max_tokens)


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
