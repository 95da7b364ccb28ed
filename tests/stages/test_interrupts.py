"""A signal's error ends what it met, whatever stands in between."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stages import interrupts
from stages.errors import LateError
from tests.stages.signalled import heard, ring


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "AGAIN_S", 0.1)
    with heard():
        yield


class Swallows:
    """Python shows what a finaliser raises, and goes on."""

    def __del__(self) -> None:
        ring()


def wraps() -> None:
    """As torch.distributed.checkpoint does it."""
    failures: list[BaseException] = []
    try:
        ring()
    except BaseException as error:  # noqa: BLE001
        failures.append(error)
    raise RuntimeError(failures)


def keeps() -> None:
    with contextlib.suppress(BaseException):
        ring()


def wraps_in_turn() -> None:
    try:
        ring()
    finally:
        raise OSError("while it was tidied up")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("met", [ring, wraps, keeps, wraps_in_turn, Swallows])
def test_whatever_becomes_of_it_within_the_block_ends_with_it(met: Callable[[], object]) -> None:
    with pytest.raises(SystemExit) as caught, interrupts.heeded(), interrupts.heeded():
        met()
    assert caught.value.code == 143
    with interrupts.heeded():
        pass  # the next block has met nothing


def test_what_was_lost_while_it_was_tidied_up_is_still_told() -> None:
    with pytest.raises(SystemExit) as caught, interrupts.heeded():
        wraps_in_turn()
    assert isinstance(caught.value.__context__, OSError)


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError), interrupts.heeded():
        raise KeyError("mine")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("met", [keeps, Swallows])
def test_it_is_raised_again_where_it_was_swallowed(met: Callable[[], object]) -> None:
    def goes_on() -> None:
        met()
        time.sleep(30)

    begun = time.monotonic()
    with pytest.raises(SystemExit):
        goes_on()
    assert time.monotonic() - begun < 20


def test_tidying_up_may_last() -> None:
    done = []

    def tidies_up() -> None:
        try:
            ring()
        finally:
            time.sleep(0.5)  # five times as long as it takes to be raised again
            done.append("tidied up")

    with pytest.raises(SystemExit):
        tidies_up()
    assert done


async def tidies(done: list[str]) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.5)
        done.append("tidied up")


async def waits_beside(done: list[str]) -> None:
    task = asyncio.create_task(tidies(done))
    asyncio.get_running_loop().call_later(0.05, ring)
    await task


def test_asyncio_may_tidy_up_for_as_long_as_it_takes() -> None:
    """It does so in its loop, with the error in hand around that."""
    done: list[str] = []
    with pytest.raises(SystemExit), interrupts.heeded():
        asyncio.run(waits_beside(done))
    assert done


async def goes_on() -> None:
    keeps()
    await asyncio.sleep(30)


def test_it_is_raised_again_in_a_loop_where_it_was_swallowed() -> None:
    begun = time.monotonic()
    with pytest.raises(SystemExit):
        asyncio.run(goes_on())
    assert time.monotonic() - begun < 20


def test_a_block_in_another_thread_is_not_ended() -> None:
    ends: list[str] = []
    inside, rung = threading.Event(), threading.Event()

    def work() -> None:
        with interrupts.heeded():
            inside.set()
            rung.wait(20)
        ends.append("well")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(20)
    with pytest.raises(SystemExit):
        ring()
    rung.set()
    thread.join(20)
    assert ends == ["well"]


def swallow_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(Exception):
            time.sleep(seconds)


def test_an_alarm_ends_its_block_and_is_over_with_it() -> None:
    with pytest.raises(LateError), interrupts.heeded():  # noqa: SIM117
        with interrupts.alarm(0.05, lambda: LateError("late")):
            swallow_for(0.3)
    with interrupts.heeded(), interrupts.heeded():
        time.sleep(0.3)


def test_the_end_of_the_program_is_more_than_an_alarm() -> None:
    def work() -> None:
        try:
            swallow_for(0.2)
        finally:
            keeps()

    with pytest.raises(SystemExit), interrupts.alarm(0.05, lambda: LateError("late")):
        work()


def test_a_closed_terminal_is_an_end_but_under_nohup() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in interrupts.endings()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert signal.SIGHUP not in interrupts.endings()
    finally:
        signal.signal(signal.SIGHUP, before)
