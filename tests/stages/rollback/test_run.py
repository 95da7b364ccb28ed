"""rollback: one step back each time, traffic first, with a record."""

from __future__ import annotations

import pytest

from stages.errors import DependencyDownError, InputMissingError, IntegrityError
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
