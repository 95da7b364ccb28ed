"""Deadlines of a connection, without a loop. Over the wire: tests/security/test_patience.py."""

from __future__ import annotations

import math
from unittest.mock import Mock

import pytest

from stages.gateway.protocol import GuardedProtocol, Phase


def waiting(
    phase: Phase, transport: Mock, deadline: float = math.inf, send: float = math.inf
) -> GuardedProtocol:
    """A connection in the middle of something, its transport and flow made up."""
    made = GuardedProtocol.__new__(GuardedProtocol)
    made.transport, made.flow, made.cycle = transport, Mock(read_paused=False), None
    transport.is_closing.return_value = False
    made.phase, made.since, made.deadline, made.send_deadline = phase, 0.0, deadline, send
    return made


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.HEAD])
def test_seconds_in_which_nobody_was_listened_to_are_given_on_top(phase: Phase) -> None:
    transport = Mock()
    late = waiting(phase, transport, deadline=10.0)
    late.look(10.9, stood=1.0)
    transport.close.assert_not_called()
    late.look(11.1, stood=0.0)
    transport.close.assert_called_once()


def test_who_takes_nothing_has_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = Mock()
    monkeypatch.setattr(GuardedProtocol, "_reset", reset)
    slow = waiting(Phase.ANSWER, Mock(), send=5.0)
    slow.look(6.0, stood=1.5)
    reset.assert_not_called()
    slow.look(6.5, stood=0.0)
    reset.assert_called_once()
