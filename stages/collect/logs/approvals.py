"""Plans that a person approved with a fresh context, which Claude Code writes down as a refusal and a stop.

"Yes, clear context" under a plan ends its call (`ExitPlanMode`) in the words of a refusal without a reason,
with "[Request interrupted by user for tool use]" behind it, and the client sends "Implement the following
plan:" in a new session, or (2.1.12) in the same one. In the logs at hand (2.1.12 to 2.1.45) that was within
6 ms, in one session 0.5 s, of each of five such refusals; each plan that was refused had a reason. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from cursorbench.sessions import items as said
from stages.collect.logs.state import Happened
from stages.records import Event

_TOOL = "ExitPlanMode"
_WITHIN = 2000  # ms; some transcripts tell whole seconds


@dataclass
class Approvals:
    """When clients sent plans, of all sessions so far."""

    _sent: list[int] = field(default_factory=list)

    def sent(self, item: said.UserTurn) -> None:
        """A client sent a text; of what is no plan, or tells no time, nothing is remembered."""
        if item.automatic == "plan" and item.at:
            insort(self._sent, item.at)

    def settled(self, waiting: Iterable[Happened], counts: Counter[str]) -> Iterator[Happened]:
        """What happened in a turn: an approved plan is no refusal, and nobody stopped the agent there."""
        approved: int | None = None
        for one in waiting:
            event = one.event
            if _refused(event) and self._near(event.at):
                approved = event.at
                data = event.data | {"ok": True, "outcome": "ok"}
                one = msgspec.structs.replace(one, event=msgspec.structs.replace(event, data=data))  # noqa: PLW2901
                counts["plans_approved"] += 1
                counts -= Counter(tool_rejected=1)  # in place; none left is no key
            elif event.type == "interrupted" and approved is not None and event.at - approved <= _WITHIN:
                continue
            yield one

    def _near(self, at: int) -> bool:
        place = bisect_left(self._sent, at - _WITHIN)
        return place < len(self._sent) and self._sent[place] <= at + _WITHIN


def _refused(event: Event) -> bool:
    data = event.data
    return (
        event.type == "tool_result"
        and data.get("name") == _TOOL
        and data.get("outcome") == "rejected"
        and not data.get("reason")
    )
