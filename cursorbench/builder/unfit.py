"""Why a candidate makes no task, as an exception: raised wherever it is seen, caught in one place."""

from __future__ import annotations


class Unfit(Exception):
    """A reason against a candidate, one of the words in docs/bench-build.md, and what it was in this case."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail
