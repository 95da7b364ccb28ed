"""A signal that ends the program, as the command line has it, for tests in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from stages import interrupts

END = signal.SIGUSR1


def ring() -> None:
    """The program is to end."""
    os.kill(os.getpid(), END)


@contextmanager
def heard() -> Iterator[None]:
    """The signal is an end within; an alarm of the test runner's is left as it was."""
    before = {number: signal.getsignal(number) for number in (END, signal.SIGALRM)}

    def on(*_: object) -> None:
        interrupts.raise_now(lambda: SystemExit(143))

    signal.signal(END, on)
    try:
        yield
    finally:
        interrupts.over()
        for number, handler in before.items():
            signal.signal(number, handler)
