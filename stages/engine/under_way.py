"""How many tokens an engine had sampled for each request, when it stands still between two weights.

`Watch` is part of the worker, `Sampled` is its answer. Not here: what is made of it
(`stages/gateway/turns.py`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.errors import IntegrityError

REMEMBERED = 4096  # requests that have ended, of which their client may not have heard yet
GENERATION = re.compile(r"gen_[0-9a-f]{32}")  # in the engine's name of a request, which is ours and more


@dataclass(frozen=True)
class Sampled:
    """What a `Watch` has counted, by generation.

    Attributes:
        told: whether the engine said anything.
    """

    told: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    finished: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Sampled:
        """From a worker's `Watch.counts`."""
        counts = {_generation(name): int(count) for name, count in answer.get("sampled", {}).items()}
        return cls(bool(answer), counts, frozenset(map(_generation, answer.get("finished", ()))))

    def require(self) -> None:
        """Raises IntegrityError (12) when the engine does not say."""
        if not self.told:
            raise IntegrityError(
                "the engine does not tell which tokens it has sampled",
                hint='set gateway.in_flight = "finish"',
            )

    def of_generation(self, generation: str) -> int | None:
        """Its tokens; None when it was complete, 0 when the engine had not begun with it."""
        return self.counts.get(generation, None if generation in self.finished else 0)


def _generation(name: str) -> str:
    found = GENERATION.search(name)
    return found[0] if found else name


class Watch:
    """Of one model runner, from now on: it is told of ended requests with each step.

    Attributes:
        finished: ids of requests that have ended, the last REMEMBERED.
    """

    def __init__(self, runner: Any) -> None:
        self.finished: deque[str] = deque(maxlen=REMEMBERED)
        self._runner = runner
        really = runner.execute_model

        def execute_model(scheduled: Any, *arguments: Any, **named: Any) -> Any:
            self.finished.extend(scheduled.finished_req_ids)
            return really(scheduled, *arguments, **named)

        runner.execute_model = execute_model

    def counts(self) -> dict[str, Any]:
        """`sampled`: tokens by request that has begun; `finished`: ids of those that have ended.

        A request that is in neither has no token yet. Empty where the runner does not tell.
        """
        known = getattr(self._runner, "requests", None)
        if known is None:
            return {}
        sampled = {name: len(state.output_token_ids) for name, state in known.items()}
        return {"sampled": sampled, "finished": list(self.finished)}
