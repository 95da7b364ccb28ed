"""SIGKILL in the middle of a switch; the next command brings traffic and registry together."""

from __future__ import annotations

import signal

import pytest

from tests import processes
from tests.stages.target.fixtures import Line


def command(line: Line, *arguments: str, fault: str = "") -> int:
    root = str(line.workspace.root)
    return processes.rtrl(*arguments, "-w", root, "--quiet", env={"RTRL_FAULT": fault}).returncode


@pytest.mark.parametrize("fault", ["switch.staged.after", "switch.swap.after", "switch.alias.after"])
def test_deploy_goes_on_where_it_was_killed(line: Line, fault: str) -> None:
    line.report(line.b, line.a)
    assert command(line, "deploy", fault=fault) == -signal.SIGKILL
    assert command(line, "deploy", "--input", line.b.ref) == 0
    assert line.live == line.served == line.b.digest
    assert line.states().count("live") == 1
    assert set(line.states()) <= {"live", "failed"}


@pytest.mark.parametrize(
    "fault",
    ["switch.staged.after", "switch.swap.after", "switch.rolling_back.after", "switch.alias.after"],
)
def test_rollback_goes_on_where_it_was_killed(line: Line, fault: str) -> None:
    line.report(line.b, line.a)
    line.deploy()
    assert command(line, "rollback", fault=fault) == -signal.SIGKILL
    # after the alias moved the rollback is done: the same target again is no work, not a step further
    assert command(line, "rollback", "--to", line.a.ref) == 0
    assert line.live == line.served == line.a.digest
    assert line.states()[0] == "rolled_back"
    assert line.states().count("live") == 1


def test_the_gateway_hears_first_what_a_deploy_is_about_to_serve(line: Line) -> None:
    """Before the gate decides; with flags that make it another deploy, nothing is said."""
    line.report(line.b, line.a)
    assert command(line, "deploy", "--input", line.c.ref) == 3
    assert command(line, "deploy", "--input", line.c.ref, "--dry-run") == 3
    assert command(line, "deploy") == 0
    assert line.gateway.prepared == [
        {"line": "auto", "checkpoint": line.c.ref, "override": False},
        {"line": "auto", "checkpoint": "", "override": False},
    ]
    assert line.served == line.b.digest
