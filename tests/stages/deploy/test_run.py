"""deploy: who may pass, what moves, and that what is served decides."""

from __future__ import annotations

import pytest

from rtrl_cli.commands.deploy import text
from rtrl_cli.main import run
from stages import locks
from stages.deploy.run import DeployStage
from stages.errors import (
    DependencyDownError,
    GateRejectedError,
    InconclusiveError,
    InputMissingError,
    IntegrityError,
    LockedError,
    RtrlError,
    UsageError,
)
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.target.admin import Admin
from tests.stages.target.fixtures import Line


def test_traffic_alias_and_states_move_together(line: Line) -> None:
    report = line.report(line.b, line.a)
    result = line.deploy()
    assert (result.status, result.exit_code) == ("succeeded", 0)
    assert line.live == line.served == line.b.digest
    (deployment,) = line.store.deployments.history("auto")
    assert (deployment.state, deployment.previous, deployment.report) == (
        "live",
        line.a.digest,
        report.digest,
    )
    assert deployment.run_id == result.run_id
    assert not deployment.override
    assert line.gateway.swaps[0] == {
        "line": "auto",
        "checkpoint": line.b.digest,
        "path": str(line.b.path),
        "deployment": deployment.id,
        "drain_timeout_s": 60.0,
    }
    assert result.metrics["changed"]
    assert result.envelope()["inputs"] == {"checkpoint": line.b.ref, "report": report.ref}


def test_the_next_deployment_retires_the_last(line: Line) -> None:
    line.report(line.b, line.a)
    line.deploy()
    line.report(line.c, line.b)
    line.deploy()
    assert line.states() == ["retired", "live"]
    assert line.live == line.served == line.c.digest


def test_what_is_served_already_is_no_work(line: Line) -> None:
    line.report(line.b, line.a)
    line.deploy()
    again = line.deploy(line.b.ref)
    assert (again.status, again.exit_code, again.metrics["changed"]) == ("noop", 0, False)
    assert len(line.gateway.swaps) == 1
    assert line.states() == ["live"]


def test_the_gateway_decides_not_the_registry(line: Line) -> None:
    line.report(line.b, line.a)
    line.deploy()
    line.gateway.served["checkpoint"] = line.a.digest  # somebody put the old weights back
    repaired = line.deploy(line.b.ref)
    assert repaired.status == "succeeded"
    assert line.served == line.b.digest
    current = line.store.deployments.current("auto")
    assert current is not None
    assert current.previous == line.a.digest  # a rollback still leads to what was there before b


@pytest.mark.parametrize(
    ("verdict", "kind", "code"), [("regressed", GateRejectedError, 3), ("inconclusive", InconclusiveError, 4)]
)
def test_the_gate_is_obeyed(line: Line, verdict: str, kind: type[RtrlError], code: int) -> None:
    line.report(line.c, line.a, verdict)
    with pytest.raises(kind, match=verdict) as caught:
        line.deploy()
    assert caught.value.code == code
    assert "--override" in caught.value.hint
    assert line.gateway.swaps == []
    assert line.states() == []


def test_a_pass_against_an_older_checkpoint_is_none(line: Line) -> None:
    line.report(line.b, line.a)
    line.report(line.c, line.a)
    line.deploy(line.b.ref)
    with pytest.raises(GateRejectedError, match="no report compares"):
        line.deploy(line.c.ref)


def test_the_newest_report_about_a_candidate_decides(line: Line) -> None:
    line.report(line.b, line.a)
    line.report(line.b, line.a, "regressed")
    with pytest.raises(GateRejectedError, match="regressed"):
        line.deploy(line.b.ref)


def test_a_passing_candidate_is_found_behind_a_rejected_newer_one(line: Line) -> None:
    line.report(line.b, line.a)
    line.report(line.c, line.a, "regressed")
    assert line.deploy().inputs["checkpoint"].digest == line.b.digest


def test_a_report_by_other_rules_than_the_settings_is_named(line: Line) -> None:
    """One eval with a margin of its own, to see what it says, and the next deploy took it for the gate's."""
    ours = line.workspace.settings.eval.model_dump(mode="json")
    line.report(line.b, line.a, **ours)
    assert line.deploy().warnings == []
    loose = line.report(line.c, line.b, **{**ours, "suites": ["snippets"], "margins": {"snippets.acc": 0.9}})
    assert line.deploy().warnings == [
        f"{loose.ref} passed by other rules than `[eval]` has now: suites, margins"
    ]


def test_a_pass_after_rejections_of_the_same_pair_says_so(line: Line) -> None:
    """Another `eval.requests`, or `--force`, is another try at five per cent."""
    first = line.report(line.b, line.a, "regressed")
    line.report(line.c, line.a, "regressed")
    line.report(line.b, line.a, "inconclusive")
    newest = line.report(line.b, line.a)
    assert line.deploy(line.b.ref).warnings == [
        f"{newest.ref} passed as try 3: by {first.ref} the same pair had regressed"
    ]


def test_override_wants_a_reason_and_is_recorded(line: Line) -> None:
    with pytest.raises(UsageError, match="--reason"):
        line.deploy(line.c.ref, override=True)
    result = line.deploy(line.c.ref, override=True, reason="outage")
    current = line.store.deployments.current("auto")
    assert current is not None
    assert (current.override, current.reason) == (True, "outage")
    assert result.warnings == ["deployed without a passing report: outage"]


def test_an_override_that_was_not_needed_is_none(line: Line) -> None:
    line.report(line.b, line.a)
    result = line.deploy(line.b.ref, override=True, reason="to be sure")
    assert result.metrics["override"] is False
    assert result.warnings == []


def test_a_mismatch_fails_the_deployment_and_leaves_the_alias(line: Line) -> None:
    line.report(line.b, line.a)
    error = {"code": "swap_failed", "message": "still answers as the parent"}
    line.gateway.refuse = (409, {"error": error})
    with pytest.raises(IntegrityError, match="parent") as caught:
        line.deploy()
    assert "log" in caught.value.hint
    assert line.live == line.served == line.a.digest
    assert line.states() == ["failed"]
    line.gateway.refuse = None
    assert line.deploy().status == "succeeded"
    assert line.states() == ["failed", "live"]


def test_an_engine_that_is_down_is_exit_13(line: Line) -> None:
    line.report(line.b, line.a)
    line.gateway.refuse = (503, {"error": {"message": "the engine is starting"}})
    with pytest.raises(DependencyDownError, match="starting"):
        line.deploy()
    assert line.states() == ["failed"]


def test_when_the_alias_cannot_follow_traffic_goes_back(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.report(line.b, line.a)

    def full(*_arguments: object, **_named: object) -> None:
        raise DependencyDownError("disk full")

    monkeypatch.setattr(line.store, "move_alias", full)
    with pytest.raises(DependencyDownError, match="disk full"):
        line.deploy()
    assert [swap["checkpoint"] for swap in line.gateway.swaps] == [line.b.digest, line.a.digest]
    assert line.live == line.served == line.a.digest
    assert line.states() == ["failed"]


def test_a_line_that_is_not_there_gets_nothing(line: Line) -> None:
    """A misspelt line has nothing live, so that no gate spoke for or against it."""
    misspelt = line.workspace.with_overrides(["workspace.line=atuo"])
    for offline in (False, True):
        with pytest.raises(InputMissingError, match="nothing was ever deployed on line 'atuo'") as caught:
            run_stage(misspelt, line.store, DeployStage(offline=offline), [line.b.ref])
        assert "auto" in caught.value.hint
    line.store.move_alias("other", "live", line.a.digest, reason="another line of this workspace")
    other = line.workspace.with_overrides(["workspace.line=other"])
    with pytest.raises(UsageError, match="started for line auto, not other"):
        run_stage(other, line.store, DeployStage(override=True, reason="x"), [line.b.ref])
    assert line.gateway.swaps == []
    assert line.store.deployments.history("atuo") == line.store.deployments.history("other") == []


def test_without_a_gateway_only_offline(line: Line) -> None:
    line.report(line.b, line.a)
    with pytest.raises(UsageError, match="running"):
        line.deploy(offline=True)
    line.gateway.close()  # as if killed: serve.json is stale
    with pytest.raises(DependencyDownError, match="nothing is being served") as caught:
        line.deploy()
    assert "--offline" in caught.value.hint
    result = line.deploy(offline=True)
    assert result.metrics["changed"]
    assert line.live == line.b.digest
    assert line.states() == ["live"]
    assert line.deploy(line.b.ref, offline=True).status == "noop"


def test_offline_says_that_the_share_of_the_settings_is_none(line: Line) -> None:
    """`deploy.canary_share = 0.1` was dropped without a word, and the next serve served it to everybody."""
    line.report(line.b, line.a)
    line.gateway.close()
    shared = line.workspace.with_overrides(["deploy.canary_share=0.1"])
    told = run_stage(shared, line.store, DeployStage(offline=True)).warnings
    assert [
        each for each in told if "deploy.canary_share is 0.1, and --offline serves it to everybody" in each
    ]
    line.report(line.a, line.b)
    asked = DeployStage(offline=True, canary=0)  # somebody said so
    assert run_stage(shared, line.store, asked, [line.a.ref]).warnings == []


def test_two_deployments_of_a_line_do_not_cross(line: Line) -> None:
    line.report(line.b, line.a)
    with (
        locks.hold(line.store.lock_path("target-auto"), what="target-auto", run="deploy-other"),
        pytest.raises(LockedError, match="deploy-other") as caught,
    ):
        line.deploy()
    assert caught.value.code == 11


def test_dry_run_changes_nothing(line: Line) -> None:
    from stages.deploy.run import DeployStage
    from stages.runner import run_stage

    line.report(line.b, line.a)
    result = run_stage(line.workspace, line.store, DeployStage(), dry_run=True)
    assert result.inputs["checkpoint"].digest == line.b.digest
    assert line.gateway.swaps == []
    assert line.states() == []


def test_a_dry_run_says_what_would_be_served(line: Line) -> None:
    report = line.report(line.b, line.a)
    result = run_stage(line.workspace, line.store, DeployStage(), dry_run=True)
    assert result.metrics["plan"] == {
        "checkpoint": line.b.ref,
        "from": line.a.ref,
        "report": report.ref,
        "override": False,
        "reason": f"{report.ref} passed",
        "changed": True,
    }
    shown = text(result)
    assert f"would serve  {line.b.ref} (now {line.a.ref})" in shown
    assert report.ref in shown
    assert (line.live, line.gateway.swaps, line.states()) == (line.a.digest, [], [])
    line.deploy()
    again = run_stage(line.workspace, line.store, DeployStage(), [line.b.ref], dry_run=True)
    assert text(again) == f"{line.b.ref} is live already"
    back = text(run_stage(line.workspace, line.store, RollbackStage(reason="slow"), dry_run=True))
    assert f"would serve  {line.a.ref} (now {line.b.ref})" in back
    assert "slow" in back


def test_a_share_of_0_is_everybody_also_where_the_settings_name_another(line: Line) -> None:
    """A hotfix for all reached 30 % of the users: a flag that was given as 0 was none."""
    line.report(line.b, line.a)
    settings = ["deploy.canary_share=0.3"]
    result = run_stage(line.workspace, line.store, DeployStage(canary=0), overrides=settings)
    assert "share" not in result.metrics
    assert (line.live, line.states()) == (line.b.digest, ["live"])


def test_a_canary_of_which_nothing_can_be_known_in_time_is_told(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held at its horizon and ended, as if nobody had used it."""
    monkeypatch.setattr(Admin, "open_canary", lambda *_, **__: {"verification": {}})
    monkeypatch.setattr(Admin, "flush_spool", lambda _: 1)
    line.report(line.b, line.a)
    for horizon, told in (("3600", 0), ("10770", 1)):  # 60 s of grace come on top
        settings = ["deploy.shadow_requests=0", f"collect.horizon_s={horizon}"]
        result = run_stage(line.workspace, line.store, DeployStage(canary=0.5), [line.b.ref], settings)
        about = [each for each in result.warnings if "collect.horizon_s" in each]
        assert len(about) == told
        line.rollback()
    assert "10830 s after their end" in about[0]


def test_a_dry_run_says_for_whom(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    """It read as if all users got what would be a canary."""
    line.report(line.b, line.a)
    setting = ["--set", "deploy.canary_share=0.3"]
    told = []
    for flags in (["--canary", "0.2"], setting, [*setting, "--canary", "0"], []):
        assert run(["deploy", "--dry-run", "-w", str(line.workspace.root), *flags]) == 0
        told.append(capsys.readouterr().out.splitlines()[0])
    serve, now = f"would serve  {line.b.ref}", f"(now {line.a.ref})"
    assert (
        told
        == [f"{serve} for {share} of the users {now}" for share in ("20%", "30%")] + [f"{serve} {now}"] * 2
    )


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_promotion_wants_what_serves(line: Line, dry_run: bool) -> None:
    """It failed for want of a gateway, with the hint to give --offline; its dry run would serve."""
    with pytest.raises(UsageError, match="--promote does not go with --offline"):
        run_stage(
            line.workspace, line.store, DeployStage(promote=True, offline=True), force=True, dry_run=dry_run
        )


def test_a_dry_run_names_the_canary_that_would_end(line: Line) -> None:
    deployments = line.store.deployments
    made = deployments.create("auto", line.b.digest, by="t", reason="t", previous=line.a.digest)
    deployments.transition(made.id, "staged", "verifying")
    deployments.transition(made.id, "verifying", "canary", canary={"share": 0.1})
    for stage, word in (
        (DeployStage(promote=True, override=True, reason="so"), "promote"),
        (RollbackStage(), "end"),
    ):
        shown = text(run_stage(line.workspace, line.store, stage, dry_run=True))
        assert [row.split()[-1] for row in shown.splitlines() if f"would {word}" in row] == [made.id]


@pytest.mark.parametrize("by", ["deploy", "rollback"])
def test_what_is_live_is_served_again_and_goes_back_to_where_it_did(line: Line, by: str) -> None:
    """The gateway served something else; `rtrl rollback` found nothing that was live before."""
    for each, before in ((line.b, line.a), (line.a, line.b)):
        line.report(each, before)
        line.deploy(each.ref)
    line.gateway.served["checkpoint"] = line.b.digest
    again = line.deploy(line.a.ref) if by == "deploy" else line.rollback(line.a.ref)
    assert (again.metrics["changed"], line.live, line.served) == (True, line.a.digest, line.a.digest)
    line.rollback()
    assert line.live == line.served == line.b.digest
