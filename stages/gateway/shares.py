"""Places that many ask for: who may have one, and whose turn is next.

Whoever asks alone may have all. Once somebody was refused, each API key is kept what it had, or was refused,
of late, up to an equal share of all places; of a key's places each user of it likewise, where it is shared.
So a key that asks without end has what the others leave, and they are refused at most until places that it
has are free again. Not here: what the places are (`admission.py`, `engine_transport.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from stages.gateway.key_file import ApiKey


class Whose(NamedTuple):
    """Who asks: an API key's id, and which of its users; "" while that is not known."""

    key: str = ""
    user: str = ""

    @classmethod
    def of(cls, key: ApiKey, user: str) -> Whose:
        """`user` through a shared key, else the key, whatever it names."""
        return cls(key.id, key.whose(user))


NOBODY = Whose()
MANY = 2  # times as many who ask as there are places


class _Wants:
    """Of several who share: how many places each has, and wanted at most in this time and the last."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}  # no Counter: looking up what is not in one takes ten times as long
        self._now: dict[str, int] = {}
        self._wanted: dict[str, int] = {}  # the larger of this time's and the last one's

    def take(self, one: str) -> None:
        """It has one more."""
        self.held[one] = self.held.get(one, 0) + 1
        self._want(one, self.held[one])

    def give_back(self, one: str) -> None:
        """It has one less."""
        self.held[one] -= 1
        if not self.held[one]:
            del self.held[one]

    def refused(self, one: str) -> None:
        """It wants one more than it has."""
        self._want(one, max(self._now.get(one, 0), self.held.get(one, 0)) + 1)

    def turn(self) -> bool:
        """A time is over. Whether anybody is still known."""
        self._wanted, self._now = self._now, {}
        for one, places in self.held.items():
            self._want(one, places)
        return bool(self._wanted)

    def left(self, places: int, free: int, one: str) -> int:
        """Of `free` of the `places` that they share: what is not kept for others than `one`, and no less than
        it lacks of an equal share. Nothing is kept where they are far more than the places."""
        wanted, held = self._wanted, self.held
        if len(wanted) > MANY * places:
            return free
        share = max(1, places // max(1, len(wanted) + (one not in wanted)))
        has = held.get(one, 0)
        kept = 0
        for name, wants in wanted.items():
            more = min(share, wants) - held.get(name, 0)
            if more > 0 and name != one:
                kept += more
        return min(free, max(share - has, free - kept))

    def _want(self, one: str, places: int) -> None:
        self._now[one] = max(self._now.get(one, 0), places)
        self._wanted[one] = max(self._wanted.get(one, 0), places)


class Shares:
    """So many places. One event loop only.

    Args:
        fair_s: how long what somebody wanted is kept, and up to as long again; 0: first come, first served.
    """

    def __init__(self, places: int, fair_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.places, self.taken = places, 0
        self._fair_s, self._clock = fair_s, clock
        self._keys, self._users = _Wants(), dict[str, _Wants]()
        self._since = clock()
        self._contested = self._was_contested = False

    def free(self, whose: Whose) -> bool:
        """Whether there is a place for it."""
        self._turn()
        left = self.places - self.taken
        if left > 0 and (self._contested or self._was_contested):
            left = self._keys.left(self.places, left, whose.key)
            users = self._users.get(whose.key)
            if users is not None and left > 0:
                left = users.left(self._keys.held.get(whose.key, 0) + left, left, whose.user)
        return left > 0

    def take(self, whose: Whose) -> None:
        """It has one of them, whether there was one for it or not."""
        self.taken += 1
        if self._fair_s:
            self._keys.take(whose.key)
            self._users.setdefault(whose.key, _Wants()).take(whose.user)

    def give_back(self, whose: Whose) -> None:
        """One that it took."""
        self.taken -= 1
        if self._fair_s:
            self._keys.give_back(whose.key)
            self._users[whose.key].give_back(whose.user)

    def refused(self, whose: Whose) -> None:
        """There was none for it: it may ask again."""
        if self._fair_s:
            self._contested = True
            self._keys.refused(whose.key)
            if whose.user:
                self._users.setdefault(whose.key, _Wants()).refused(whose.user)

    def _turn(self) -> None:
        # at most so many: by the smallest numbers that there are, all that passed is infinitely many
        times = int(min((self._clock() - self._since) / self._fair_s, 1e9)) if self._fair_s else 0
        for _ in range(min(times, 2)):
            self._was_contested, self._contested = self._contested, False
            self._keys.turn()
            self._users = {key: users for key, users in self._users.items() if users.turn()}
        self._since += times * self._fair_s


class Slots:
    """So many at a time; of those who wait, the key that has fewest of them is next, of such the one whose
    last turn is longest ago, and of it the user who has fewest. One event loop only."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self._held: Counter[Whose] = Counter()  # of a key, without a user, and of each of its users
        self._waiting: dict[asyncio.Future[None], Whose] = {}
        self._turns: dict[str, int] = {}  # keys by their last turn, while somebody waits

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def acquire(self, whose: Whose) -> None:
        """Returns when there is one; to be released."""
        if self.free:
            self.free -= 1
            self._count(whose, 1)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = whose
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(whose)
            raise
        finally:
            self._waiting.pop(turn, None)

    def release(self, whose: Whose) -> None:
        """One that was acquired."""
        self._count(whose, -1)
        waiting = [(turn, who) for turn, who in self._waiting.items() if not turn.done()]
        if not waiting:
            self.free += 1
            self._turns.clear()
            return
        turn, who = min(waiting, key=lambda each: self._standing(each[1]))
        self._turns[who.key] = max(self._turns.values(), default=0) + 1
        self._count(who, 1)
        turn.set_result(None)

    def _standing(self, whose: Whose) -> tuple[int, int, int]:
        return self._held[Whose(whose.key)], self._turns.get(whose.key, 0), self._held[whose]

    def _count(self, whose: Whose, by: int) -> None:
        for one in (Whose(whose.key), whose):
            self._held[one] += by
            if not self._held[one]:
                self._held.pop(one)  # in C
