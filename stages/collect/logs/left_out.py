"""What a collect of session logs left out, and where it stands: in its metrics, warnings and errors.

Of each reason the first places are named; `quarantine.parquet` has all (`write.py`). Not for: why something
cannot be read (`cursorbench/sessions`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorbench.sessions.items import Place
from stages.errors import InconclusiveError
from stages.wording import count

NAMED = 3  # places of each reason
_FETCH = (
    "git -C {} fetch origin 'refs/entire/*:refs/entire/*' 'refs/notes/ai*:refs/notes/ai*' "
    "'refs/heads/entire/*:refs/remotes/origin/entire/*'"
)


def where(place: Place) -> str:
    """A place as text, whatever bytes are in its file's name."""
    return f"{place.file}:{place.line}".encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class LeftOut:
    """Counts, and the first places: `PATH:LINE`, or `PATH` for a whole file.

    Attributes:
        records: how many were quarantined, by reason.
        places: where the first of them stand, by reason.
        unknown: how many files are of no known kind.
        unknown_at: the first of them.
        without_logs: git repositories among the paths in which no branch, ref or note holds any.
    """

    records: Mapping[str, int]
    places: Mapping[str, Sequence[str]]
    unknown: int
    unknown_at: Sequence[str]
    without_logs: Sequence[Path] = ()

    def metrics(self) -> dict[str, Any]:
        """The places, for the run's record."""
        places = {reason: list(self.places[reason]) for reason in self.records if self.places.get(reason)}
        return {"quarantined_at": places, "unknown_files_at": list(self.unknown_at)}

    def warnings(self) -> list[str]:
        """What was quarantined, for people."""
        return [
            f"{count(n, 'record')} quarantined: {reason}{_in_brackets(self.places.get(reason, ()), n)}"
            for reason, n in self.records.items()
        ]

    def unknown_files(self, noun: str = "") -> str:
        """How many files no reader knows, and the first ones; "" for none."""
        if not self.unknown:
            return ""
        number = count(self.unknown, noun) if noun else str(self.unknown)
        return f"{number} of no known kind of session log: {_listed(self.unknown_at, self.unknown)}"

    def nothing(self, files: int, received: Mapping[str, int] | None = None) -> InconclusiveError:
        """That so many files hold no episode, and why.

        Args:
            received: what of the gateway's records was left out, where these were read and no files.
        """
        left = [
            f"{n} quarantined: {reason}{_in_brackets(self.places.get(reason, ()), n)}"
            for reason, n in self.records.items()
        ]
        if received is not None:
            told = ["nothing that the gateway received has an answer of another system's agent"]
            if own := received.get("own_session"):
                told.append(f"{count(own, 'record')} of sessions that it answered itself")
            hint = "of its own answers the spool has all: `rtrl collect`; docs/http.md says what is received"
            return InconclusiveError("; ".join([*told, *left]), hint=hint)
        told = [f"{count(files, 'file')} with no answer of an agent", *left, self.unknown_files()]
        return InconclusiveError("; ".join(filter(None, told)), hint=self._hint())

    def _hint(self) -> str:
        if self.without_logs:
            fetch = _FETCH.format(shlex.quote(str(self.without_logs[0])))
            return f"a clone lacks what Entire and git-ai keep beside the branches: `{fetch}`"
        if self.unknown:
            return "name the kind with --from; docs/sources.md lists the kinds"
        return "docs/sources.md says what is read of each kind"


def _in_brackets(places: Sequence[str], number: int) -> str:
    return f" ({_listed(places, number)})" if places else ""


def _listed(places: Sequence[str], number: int) -> str:
    return ", ".join([*places, *(["..."] if number > len(places) else [])])
