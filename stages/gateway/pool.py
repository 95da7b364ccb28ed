"""Several engines that answer for the live arm: which one a request goes to.

Each engine is an `Arm` with a `ServedState` of its own, so that what is recorded with a generation is what
its own engine held, also while engines differ. A conversation stays with one engine (rendezvous hashing:
an engine more or less moves only its own conversations), since that engine has its beginning in the
prefix cache; when the engine is busier than the idlest by more than SLACK requests, the idlest gets it.

Not here: users' arms (`arms.py`), engines' weights (`rolling.py`), processes (`stages/serving/fleet.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages.gateway.arms import Arm
    from stages.gateway.attribution import Who
    from stages.gateway.request import Request

SLACK = 4  # requests: what recomputing a prompt costs in waiting for others
_OPENING = 2000  # characters of a conversation's first words


def conversation_key(who: Who, request: Request) -> str:
    """The same for all requests of a conversation: its session, else its user and how it began."""
    if who.session:
        return f"{who.user}\0{who.session}"
    return f"{who.user}\0{_opening(request.messages)[:_OPENING]}"


def _opening(messages: Sequence[Mapping[str, Any]]) -> str:
    first = next((message for message in messages if message.get("role") == "user"), None)
    return str(first.get("content")) if first is not None else ""


class Pool:
    """The engines of the live arm, at least one. For one event loop."""

    def __init__(self, first: Arm) -> None:
        self.members = [first]

    def pick(self, key: str) -> Arm:
        """The engine to ask for the conversation `key` now.

        Engines whose weights are changing, that are not ready, whose breaker is open, or that did not listen
        a moment ago are asked only when there is no other.
        """
        if len(self.members) == 1:
            return self.members[0]
        usable = [each for each in self.members if _usable(each)]
        if not usable:  # rather wait for one whose weights change than for one that is down
            usable = [each for each in self.members if each.served.gate.closed] or self.members
        own = max(usable, key=lambda each: _weight(key, each.served.name))
        idlest = min(usable, key=lambda each: each.served.gate.in_flight)
        busier = own.served.gate.in_flight - idlest.served.gate.in_flight
        return idlest if busier > SLACK else own

    def other(self, than: Arm) -> Arm | None:
        """Another engine that can be asked now."""
        usable = [each for each in self.members if each is not than and _usable(each)]
        return min(usable, key=lambda each: each.served.gate.in_flight, default=None)


def _usable(arm: Arm) -> bool:
    served = arm.served
    return served.engine == "ready" and not served.gate.closed and not served.health.breaker.avoided


def _weight(key: str, name: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
