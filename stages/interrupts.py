"""A signal that ends a command ends it, whatever code in between makes of the error that it raises.

A handler raises in the midst of whatever runs. torch.distributed.checkpoint wraps every error in one of its
own, pydantic, zip writers and task groups some; `except Exception`, callbacks and `__del__` keep them.
So, in the main thread:

    raise_now   raises, and remembers what
    heeded      a block that met a signal ends with its error, whatever became of that within
    alarm       a block that may last so long, heeded
    again       what was swallowed is raised anew every AGAIN_S, unless an error is being handled: that is
                tidying up

`asyncio.run` ends its tasks with the error in hand, however long that takes. Only a task that the signal met
while it ran, and that itself waits for longer than AGAIN_S as it ends, is cancelled in that: a loop does not
tell it from one that swallowed the error, and would run on for hours.

Not for: what has a loop of its own and ends in order (`stages/serve.py`).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

AGAIN_S = 10.0
SIGNALLED = {129: "hung up", 130: "interrupted", 143: "terminated"}  # exit statuses, and how they are told

_met: list[BaseException] = []  # what signals raised, in this order


def endings() -> tuple[int, ...]:
    """Signals that ask for an end: a terminal that closes (not under `nohup`), as well."""
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hung_up)


def raise_now(make: Callable[[], BaseException]) -> NoReturn:
    """In a signal's handler: raise what `make` makes; from now on the timer is used to raise it again."""
    signal.signal(signal.SIGALRM, lambda *_: None if sys.exception() else raise_now(make))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
    _met.append(make())
    raise _met[-1]


def over() -> None:
    """Nothing is raised again from now on."""
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def heeded() -> Iterator[None]:
    """A block that no signal's error leaves as anything else, or not at all.

    Elsewhere than in the main thread, where no handler runs, it does nothing.
    """
    main, before = threading.current_thread() is threading.main_thread(), len(_met)
    try:
        yield
    except BaseException as error:
        if main and len(_met) > before and _met[-1] is not error:
            raise _met[-1]  # noqa: B904  its context is the other one
        raise
    if main and len(_met) > before:
        raise _met[-1]


@contextmanager
def alarm(after_s: float, make: Callable[[], BaseException]) -> Iterator[None]:
    """A heeded block in which `make`'s error is raised after so many seconds. In the main thread only."""
    rung: list[BaseException] = []

    def late() -> BaseException:
        rung.append(make())
        return rung[-1]

    before = signal.signal(signal.SIGALRM, lambda *_: raise_now(late))
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        with heeded():
            yield
    finally:
        over()
        signal.signal(signal.SIGALRM, before)
        _met[:] = [error for error in _met if error not in rung]  # told of, unlike a signal to the program
