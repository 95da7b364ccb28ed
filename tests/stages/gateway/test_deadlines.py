"""Deadlines of a connection, without a loop. Over the wire: tests/security/test_patience.py."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import cast
from unittest.mock import Mock

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from stages.gateway.accepting import Acceptor
from stages.gateway.protocol import HEADER_SLACK, GuardedProtocol, Phase
from stages.gateway.taking import Counted


def waiting(
    phase: Phase, transport: Mock, deadline: float = math.inf, send: float = math.inf
) -> GuardedProtocol:
    """A connection in the middle of something, its transport and flow made up."""
    made = GuardedProtocol.__new__(GuardedProtocol)
    made.transport = made.below = Counted(transport)
    made.flow, made.cycle = Mock(read_paused=False), None
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value, made._taken = 0, 0
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


@pytest.fixture
def reset(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Called when a connection is cut off."""
    made = Mock()
    monkeypatch.setattr(GuardedProtocol, "reset", made)
    return made


def unsent(connection: GuardedProtocol, given: int, taken: int) -> None:
    below = cast(Counted, connection.below)
    below.given, below.get_write_buffer_size.return_value = given, given - taken


def test_who_takes_nothing_has_them_too(reset: Mock) -> None:
    slow = waiting(Phase.ANSWER, Mock(), send=5.0)
    unsent(slow, 100_000, 0)
    slow.look(6.0, stood=1.5)
    reset.assert_not_called()
    slow.look(6.5, stood=0.0)
    reset.assert_called_once()


def test_who_takes_a_little_at_a_time_is_not_cut_off(reset: Mock) -> None:
    """Also while more is added than it takes: it was, unless it took nearly all within the time-out."""
    slow = waiting(Phase.ANSWER, Mock())
    for second in range(0, 500, 50):
        unsent(slow, 100_000 * (second + 1), 1000 * second)
        slow.look(second, stood=0.0)
    reset.assert_not_called()
    slow.look(450 + 59.9, stood=0.0)
    reset.assert_not_called()
    slow.look(450 + 60.0, stood=0.0)  # gateway.send_timeout_s
    reset.assert_called_once()


def test_a_connection_without_a_request_begins_to_wait_when_its_answer_is_taken(reset: Mock) -> None:
    transport = Mock()
    slow = waiting(Phase.IDLE, transport, deadline=75.0)
    slow.loop = Mock(time=lambda: 74.0)
    unsent(slow, 100_000, 90_000)
    slow.look(74.0, stood=0.0)
    unsent(slow, 100_000, 100_000)
    slow.look(148.9, stood=0.0)
    transport.close.assert_not_called()
    slow.look(149.0, stood=0.0)
    transport.close.assert_called_once()


@pytest.mark.parametrize(("left", "patience"), [(0, 5.0), (1000, 5.0), (100_000, 60.0)])
def test_a_closing_connection_has_less_time_for_little(reset: Mock, left: int, patience: float) -> None:
    closing = waiting(Phase.IDLE, Mock())
    cast(Mock, closing.transport).is_closing.return_value = True
    unsent(closing, 100_000 + left, 100_000)
    closing.look(0.0, stood=0.0)
    closing.look(patience - 0.1, stood=0.0)
    reset.assert_not_called()
    closing.look(patience, stood=0.0)
    reset.assert_called_once()


async def test_what_comes_behind_too_many_headers_is_not_read() -> None:
    """40,000 headers in one piece, as many as a read brings, took 35 ms of everybody's time."""
    transport = Mock(**{"get_extra_info.return_value": None, "is_closing.return_value": False})
    config = Config(Mock(), http=GuardedProtocol, ws="none", log_config=None)
    config.load()
    connection = GuardedProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    connection.connection_made(transport)
    transport.abort.side_effect = lambda: transport.configure_mock(**{"is_closing.return_value": True})
    connection.data_received(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 40_000)
    assert len(connection.headers) == connection.limits.max_headers * HEADER_SLACK + 1
    transport.write.assert_not_called()
    transport.abort.assert_called()


def test_who_makes_room_for_a_new_connection() -> None:
    """Of who has most; first who never asked, or has not to the end; then who has waited longest."""
    acceptor = Acceptor.__new__(Acceptor)
    acceptor._loop, acceptor._peers = Mock(time=lambda: 100.0), Counter({"many": 3, "one": 1, "other": 1})
    asked = Mock(response_complete=True)
    made = {
        name: Mock(idle=True, phase=phase, cycle=cycle, since=since, peer=peer, left=Mock())
        for name, phase, cycle, since, peer in (
            ("kept", Phase.IDLE, asked, 40.0, "one"),
            ("slow", Phase.HEAD, asked, 90.0, "other"),
            ("many kept", Phase.IDLE, asked, 50.0, "many"),
            ("many silent", Phase.IDLE, None, 95.0, "many"),
            ("many slow", Phase.HEAD, asked, 94.0, "many"),
            ("just there", Phase.IDLE, None, 99.8, "many"),
        )
    }
    acceptor._protocols = left = list(made.values())
    order = []
    while acceptor._make_room(""):
        (gone,) = [each for each in left if each.transport.abort.called]
        left.remove(gone)
        acceptor._peers[gone.peer] -= 1
        order.append(next(name for name, each in made.items() if each is gone))
    assert order == ["many slow", "many silent", "slow", "kept", "many kept"]
