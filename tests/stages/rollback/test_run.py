"""rollback: one step back each time, traffic first, with a record."""

from __future__ import annotations

import pytest

from stages.errors import DependencyDownError, InputMissingError, IntegrityError, UsageError
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.target.admin import Admin
from stages.workspace import Workspace
from tests.stages.target.fixtures import Line


@pytest.fixture
def deployed(line: Line) -> Line:
    """a -> b -> c, c is live."""
    line.report(line.b, line.a)
    line.deploy()
    line.report(line.c, line.b)
    line.deploy()
    return line


def test_the_previous_checkpoint_and_its_line_state_are_back(deployed: Line) -> None:
    result = deployed.rollback(reason="latency")
    assert (result.status, deployed.live, deployed.served) == (
        "succeeded",
        deployed.b.digest,
        deployed.b.digest,
    )
    assert deployed.states() == ["retired", "rolled_back", "live"]
    state = deployed.store.line_state_of(deployed.b.digest)
    assert result.metrics["line_state"] == state.ref
    current = deployed.store.deployments.current("auto")
    assert current is not None
    assert (current.reason, current.data["from"]) == ("latency", deployed.c.digest)
    ended = deployed.store.deployments.get(str(current.data["rollback_of"]))
    assert (ended.checkpoint, ended.data["rollback_reason"]) == (deployed.c.digest, "latency")


def test_a_second_rollback_goes_one_further_and_then_there_is_nothing(deployed: Line) -> None:
    deployed.rollback()
    deployed.rollback()
    assert deployed.live == deployed.served == deployed.a.digest
    with pytest.raises(InputMissingError, match="nothing was live") as caught:
        deployed.rollback()
    assert "--to" in caught.value.hint


def test_one_that_was_asked_for_what_another_took_back_goes_no_further(deployed: Line) -> None:
    """Also a canary's, whom the rules took away while somebody typed the command."""
    current = deployed.store.deployments.current("auto")
    assert current is not None
    deployed.rollback()
    late = deployed.rollback(asked=current.id)
    assert (late.status, late.metrics["changed"], late.metrics["taken_back"]) == ("noop", False, current.id)
    assert deployed.live == deployed.served == deployed.b.digest
    canary = deployed.store.deployments.create("auto", deployed.c.digest, by="me", reason="x")
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        deployed.store.deployments.transition(canary.id, before, after)
    deployed.store.deployments.end_canary(canary.id, "harm", by="ab")
    assert deployed.rollback(asked=canary.id).status == "noop"
    assert deployed.live == deployed.b.digest
    named = deployed.rollback("checkpoint@v1", asked=canary.id)  # who names it, means it
    assert (named.status, deployed.live) == ("succeeded", deployed.a.digest)


def test_one_that_was_asked_for_what_is_not_on_record_goes_back_all_the_same(deployed: Line) -> None:
    assert deployed.rollback(asked="deployment-unknown").status == "succeeded"
    assert deployed.live == deployed.b.digest


def test_a_promotion_that_is_being_loaded_is_undone_with_its_canary(deployed: Line) -> None:
    """Its command died, the gateway goes on with it. Where nothing of the kind is, nothing is loaded."""
    for engine, swaps in (("ready", []), ("unknown", [deployed.c.digest])):
        canary = deployed.store.deployments.create(
            "auto", deployed.b.digest, by="me", reason="x", previous=deployed.c.digest
        )
        for before, after in (("staged", "verifying"), ("verifying", "canary")):
            deployed.store.deployments.transition(canary.id, before, after)
        deployed.gateway.swaps.clear()
        deployed.gateway.served["engine"] = engine
        assert deployed.rollback().metrics["canary_ended"] == canary.id
        assert [(each["checkpoint"], each["cut"]) for each in deployed.gateway.swaps] == [
            (digest, True) for digest in swaps
        ]


def test_a_canary_that_the_gateway_ends_at_that_moment_is_ended(
    deployed: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine had died; the command said that the deployment was damaged (12)."""
    deployments = deployed.store.deployments
    canary = deployments.create("auto", deployed.b.digest, by="me", reason="x", previous=deployed.c.digest)
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        deployments.transition(canary.id, before, after)

    def close(*_: object, **__: object) -> str:
        deployments.end_canary(canary.id, "its engine: it ended", by="rtrl serve")
        return ""

    monkeypatch.setattr(Admin, "close_canary", close)
    result = deployed.rollback(reason="worse")
    assert (result.status, result.metrics["canary_ended"], deployed.live) == (
        "succeeded",
        canary.id,
        deployed.c.digest,
    )
    assert deployments.get(canary.id).data["rollback_reason"] == "its engine: it ended"


def test_deploy_rollback_deploy_changes_what_is_served_each_time(line: Line) -> None:
    line.report(line.b, line.a)
    served = [line.served]
    line.deploy()
    served.append(line.served)
    line.rollback(reason="too slow")
    served.append(line.served)
    again = line.deploy()
    served.append(line.served)
    assert served == [line.a.digest, line.b.digest, line.a.digest, line.b.digest]
    assert again.warnings == [f"{line.b.ref} had been rolled back before: too slow"]
    assert line.states() == ["rolled_back", "retired", "live"]
    line.rollback()
    assert line.served == line.a.digest


def test_to_names_any_checkpoint(deployed: Line) -> None:
    deployed.rollback(deployed.a.ref)
    assert deployed.live == deployed.served == deployed.a.digest
    assert deployed.states() == ["retired", "rolled_back", "live"]
    assert deployed.rollback(deployed.a.ref).status == "noop"


def test_from_one_that_was_never_live_it_goes_where_it_would_have_gone(line: Line) -> None:
    """Whoever named it found nothing to go back to, at a bad time."""
    line.report(line.b, line.a)
    line.deploy()
    line.rollback(line.c.ref, reason="b is worse")
    assert line.live == line.c.digest
    line.rollback(reason="so is c")
    assert line.live == line.served == line.a.digest
    with pytest.raises(InputMissingError, match="nothing was live"):
        line.rollback()


def test_one_that_was_never_live_wants_a_reason_and_is_on_record_as_an_override(line: Line) -> None:
    """What the gate called a loss went live so, with nothing on record that said it."""
    line.report(line.b, line.a)
    line.deploy()
    line.report(line.c, line.b, "regressed")
    with pytest.raises(UsageError, match="was never live") as caught:
        line.rollback(line.c.ref)
    assert f"rtrl deploy --input {line.c.ref}" in caught.value.hint
    assert line.live == line.served == line.b.digest
    done = line.rollback(line.c.ref, reason="b is worse")
    assert done.warnings == [f"{line.c.ref} was never live before, and no report was asked for: b is worse"]
    current = line.store.deployments.current("auto")
    assert current is not None
    assert (line.live, current.override) == (line.c.digest, True)
    back = line.rollback(line.a.ref)  # what the line began with was live, without a deployment
    assert (back.warnings, line.live) == ([], line.a.digest)


def test_other_lines_that_have_what_was_taken_back_are_named(deployed: Line) -> None:
    """Their users went on with it, each line with an engine of its own from then on, and nothing was said."""
    names = ("again", "born", "other", "quiet")
    (deployed.workspace.root / "rtrl.toml").write_text("".join(f"[populations.{name}]\n" for name in names))
    store, deployed.workspace = deployed.store, Workspace(deployed.workspace.root)
    child = deployed.checkpoint("child", deployed.c.digest)
    for name, live in (("again", deployed.b), ("born", deployed.c), ("other", child)):
        store.move_alias(name, "live", live.digest, reason="test")
    way = "`rtrl rollback --line {} --to checkpoint@v2 --reason ...` takes it back there, too"
    assert deployed.rollback().warnings == [
        f"checkpoint@v3 is live on line born: {way.format('born')}",
        f"checkpoint@v3 was trained on to checkpoint@v4, which is live on line other: {way.format('other')}",
    ]


def test_a_misspelt_line_is_refused(line: Line) -> None:
    """A line of that name went live, and what was to be taken back stayed."""
    settings = ["workspace.line=atuo"]
    with pytest.raises(InputMissingError, match="'atuo'") as caught:
        run_stage(line.workspace, line.store, RollbackStage(offline=True), [line.a.ref], settings)
    assert caught.value.hint == "did you mean 'auto'? lines here: auto"
    assert line.store.lines() == ["auto"]


def test_what_the_line_began_with_is_the_end_also_when_it_was_deployed_again(line: Line) -> None:
    """It has no deployment of its first time: rollbacks went to and fro between two for ever."""
    for each, before in ((line.b, line.a), (line.a, line.b)):
        line.report(each, before)
        line.deploy(each.ref)
    went = []
    for _ in range(2):
        line.rollback()
        went.append(line.live)
    assert went == [line.b.digest, line.a.digest]
    with pytest.raises(InputMissingError, match="nothing was live"):
        line.rollback()


def test_nothing_to_roll_back_to(line: Line) -> None:
    with pytest.raises(InputMissingError) as caught:
        line.rollback()
    assert caught.value.code == 5


def test_when_the_old_weights_do_not_load_everything_stays(deployed: Line) -> None:
    deployed.gateway.refuse = (409, {"error": {"message": "damaged"}})
    with pytest.raises(IntegrityError, match="damaged"):
        deployed.rollback()
    assert deployed.live == deployed.served == deployed.c.digest
    assert deployed.states() == ["retired", "live", "failed"]


def test_answers_in_flight_do_not_keep_the_old_weights(deployed: Line) -> None:
    assert all("cut" not in swap for swap in deployed.gateway.swaps), "a deploy waits, or gives up"
    deployed.rollback()
    swap = deployed.gateway.swaps[-1]
    assert (swap["cut"], swap["drain_timeout_s"]) == (True, 2)


def test_offline(deployed: Line) -> None:
    deployed.gateway.close()
    with pytest.raises(DependencyDownError):
        deployed.rollback()
    deployed.rollback(offline=True)
    assert deployed.live == deployed.b.digest
