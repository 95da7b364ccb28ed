"""What `[eval]` names and is not there: told by a dry run, and before a cycle begins."""

from __future__ import annotations

import pytest

from evals.cases import Metric, SuiteSpec
from evals.suites.lm_eval_task import LmEvalSuite
from stages.cycle import record
from stages.cycle.run import CHECKED, load_stages, plan_cycle, run_cycle
from stages.cycle.stub import chain
from stages.errors import DependencyDownError, InputMissingError, RtrlError, UsageError
from stages.eval.config import EvalConfig
from stages.eval.suites import check
from stages.runner import run_stage
from tests.stages.eval.bench import Bench


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        (['eval.suites=["nope"]'], UsageError, "no suite 'nope'"),
        (['eval.suites=["harness", "harness"]'], UsageError, "names a suite twice"),
        (['eval.margins={"harness.nope": 0.1}'], UsageError, "nobody measures 'harness.nope'"),
        (['eval.drift_margins={"nope.tokens": 0.1}'], UsageError, "nobody measures 'nope.tokens'"),
        (['eval.margins={"harness.edit_rate": 5}'], UsageError, "no loss is as large as the margin of 5"),
        (['eval.drift_margins={"harness.edit_rate": 1.1}'], UsageError, "between 0 and 1"),
        (['eval.suites=["cursorbench:nope"]'], InputMissingError, "nope"),
        (['eval.suites=["perplexity:nope"]'], InputMissingError, "nope"),
        (['eval.suites=["behaviour"]', "eval.probes=nope"], InputMissingError, "nope"),
        (['eval.suites=["behaviour"]', "eval.probes=rtrl.toml"], UsageError, "rtrl.toml, line 2"),
        (["eval.lm_eval_include=nope"], UsageError, "nope"),
        (['eval.suites=["lm_eval:nope"]'], UsageError, "no task"),
    ],
)
def test_what_the_settings_misname_is_told_before_anything_runs(
    bench: Bench, settings: list[str], kind: type[RtrlError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dry run told it, and a cycle only after its training: the next one trained anew."""

    def unknown(_: LmEvalSuite) -> None:
        raise UsageError("lm-eval has no task of that name", hint="lm-eval lists them")

    monkeypatch.setattr(LmEvalSuite, "require_known", unknown)  # the harness lists its own for 12 s
    workspace, stages = bench.workspace.with_overrides(settings), chain()
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    with pytest.raises(kind, match=said) as caught:
        run_stage(workspace, bench.store, bench.stage, dry_run=True)
    assert caught.value.hint or kind is InputMissingError
    with pytest.raises(kind, match=said):
        run_cycle(workspace, bench.store, stages={**stages, "eval": bench.stage})
    assert stages["collect"].runs == 0
    assert record.read(workspace.run_dir, "auto") is None
    with pytest.raises(kind, match=said):
        plan_cycle(workspace, bench.store)


@pytest.mark.parametrize("names", [("failure",), ("case",), ("acc", "acc.weight")])
def test_no_metric_is_called_like_a_column_of_the_attempts(
    bench: Bench, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate of failures of a task of somebody's own: a bug, once the first attempts were made."""
    metrics = tuple(Metric(name, "lower", 0.05, "", "of a task of one's own") for name in names)
    monkeypatch.setattr(LmEvalSuite, "spec", SuiteSpec("lm_eval:own", metrics, 1, "document"))
    monkeypatch.setattr(LmEvalSuite, "require_known", lambda _: None)
    bench.checkpoint(0.1, 0.2001, bench.live.digest)
    workspace = bench.workspace.with_overrides(['eval.suites=["lm_eval:own"]'])
    with pytest.raises(UsageError, match=f"no metric can be called '{names[-1]}'") as caught:
        run_stage(workspace, bench.store, bench.stage)
    assert caught.value.code == 2


def test_a_cycle_asks_only_the_stages_that_it_has_left(bench: Bench) -> None:
    """A typo that comes too late to matter, and one whose mending the interrupted cycle waits for."""
    typo = bench.workspace.with_overrides(['eval.suites=["nope"]'])
    stages = chain()

    def down() -> None:
        raise DependencyDownError("engine died")

    stages["train"].before = down
    assert run_cycle(bench.workspace, bench.store, stages=stages).exit_code == 13
    with pytest.raises(UsageError, match="no suite"):
        run_cycle(typo, bench.store, stages={**stages, "eval": bench.stage})
    stages["train"].before, stages["deploy"].before = lambda: None, down
    result = run_cycle(bench.workspace, bench.store, stages=stages)
    assert (result.exit_code, result.resumed_at) == (13, "train")
    assert plan_cycle(typo, bench.store).resumed_at == "deploy"


def test_a_dry_run_loads_every_stage_that_checks() -> None:
    assert {name for name, stage in load_stages().items() if hasattr(stage, "check")} == set(CHECKED)


def test_the_metrics_of_lm_eval_are_loaded_for_a_margin_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def spec(suite: LmEvalSuite) -> SuiteSpec:
        loaded.append(suite.name)
        return SuiteSpec(suite.name, (), 1, "document")

    monkeypatch.setattr(LmEvalSuite, "spec", property(spec))
    check(EvalConfig(), bench.workspace.root)
    assert loaded == []
    with pytest.raises(UsageError, match=r"nobody measures 'snippets\.nope'"):
        check(EvalConfig(margins={"snippets.nope": 0.1}), bench.workspace.root)
    assert loaded == ["snippets"]
