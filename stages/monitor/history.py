"""What the monitors of a line remember: windows, what is usual for each kind of request, alarms.

Plain data that goes into `line_state.monitors` and comes back, so that a rollback restores it. Numbers are
rounded: the state is carried through every cycle. Not for: what is made of it (`charts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from stages.errors import IntegrityError

SCHEMA: Final = "rtrl-monitors/1"
Numbers = dict[str, tuple[float, float]]


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """One behaviour in one cycle.

    `value`: as measured. `expected`: what history says of requests like this cycle's; the usual value where
    the requests are the usual ones. `adjusted`: `value` less what the requests explain. `se`: its standard
    error, clustered by user. `weight`: sum of the denominator, e.g. episodes. `mixed`: by how much the usual
    value moved since the behaviour's window before because other requests became usual.
    """

    value: float
    expected: float
    adjusted: float
    se: float
    weight: float
    mixed: float = 0.0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One cycle: when (ms, its newest episode), of which checkpoint, and its figures.

    `reward`, `user` and `told` are mean and standard error of the training reward, of what users told that
    was not trained on, and of all they told (see `behaviours.contentment`), None where nothing is known;
    `spec` says which reward it is (the spec's digest), as several are not compared. `cohort` is the share of
    its requests that is of another kind than usual. `read_to` is up to where its episodes were mature (ms)
    and captured (seq of the spool): a later window counts none of these again.
    """

    at: int
    checkpoint: str
    episodes: int
    users: int
    figures: dict[str, Figure]
    cohort: float = 0.0
    read_to: tuple[int, int] | None = None
    spec: str = ""
    reward: tuple[float, float] | None = None
    user: tuple[float, float] | None = None
    told: tuple[float, float] | None = None


class Reference(msgspec.Struct, kw_only=True):
    """What is usual for each kind of request (cell): a decayed count of episodes, and by behaviour the
    decayed sums over / under, whose ratio is the usual value. `rare` are decayed counts of episodes beside
    these, of when their cell was too rare for sums. `mixed`: see `Figure`, of the next window."""

    episodes: dict[str, float] = {}
    sums: dict[str, Numbers] = {}
    rare: dict[str, float] = {}
    mixed: dict[str, float] = {}


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A behaviour that moved beyond what its history explains, or a divergence.

    Attributes:
        id: stable: the same line, window (its newest episode, how many they are) and behaviour give the same.
        behaviour: its name; "divergence" for reward against what users tell.
        direction: up or down.
        at, checkpoint: of the window that alarmed first.
        since: `at` of the window from which on the scores add up.
        score: the sum of scores, `limit` what it had to pass.
        value, usual: of the behaviour in that window, and what was to be expected.
        text: in words.
    """

    id: str
    behaviour: str
    direction: Literal["up", "down"]
    at: int
    since: int
    checkpoint: str
    score: float
    limit: float
    value: float
    usual: float
    text: str


class History(msgspec.Struct, kw_only=True):
    """All of it, oldest first. `forgotten` counts the windows that are not in `windows` any more."""

    schema: Literal["rtrl-monitors/1"] = SCHEMA
    windows: list[Window] = []
    reference: Reference = msgspec.field(default_factory=Reference)
    alarms: list[Alarm] = []
    forgotten: int = 0

    def to_state(self) -> dict[str, Any]:
        """For `line_state.monitors`."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of_state(cls, monitors: Mapping[str, Any]) -> History:
        """From `line_state.monitors`; empty where there is none, or one from before there were charts.

        Raises IntegrityError on another form.
        """
        try:
            return msgspec.convert(monitors, cls) if "schema" in monitors else cls()
        except msgspec.ValidationError as error:
            raise IntegrityError(
                f"the line state's monitors cannot be read: {error}", hint="rtrl verify"
            ) from error
