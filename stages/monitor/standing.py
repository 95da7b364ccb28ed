"""Which alarms of a line stand, and which were acknowledged by whom and why. Light: SQLite and JSON alone.

Alarms are in the line states of a checkpoint, so a rollback takes them back with it; acknowledgements are
events of the registry (entity `alarm`), and stay. Each `distill` of what a checkpoint did begins from the
same history, so the newest line state knows nothing of an alarm that an earlier one raised: all are read.
For `rtrl status`, the gate, `rtrl monitor`, and gc, which keeps what an alarm stands in.
Not for: raising alarms (`charts.py`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages.errors import IntegrityError
from stages.registry.objects import path_in
from stages.registry.schema import FILE, address

ENTITY = "alarm"
ACKNOWLEDGED, TOLD = "acknowledged", "told"
_STATE_FILE = "state.json"  # of a line_state artifact
SEEN = ("behaviour", "direction", "checkpoint", "at", "value", "usual", "score")
FARTHER = 1.25  # an alarm so many times as far from usual as an acknowledged one is not asked about again
_NEWEST = 2000  # line states that are looked through, so that `rtrl status` waits for no large store


class Said(NamedTuple):
    """One entry in the record of an alarm (its id): what (`ACKNOWLEDGED`, `TOLD`), who, when (ISO), why, for
    which line, and what was seen of it (`SEEN` of the alarm; nothing in entries of before it was noted)."""

    what: str
    by: str
    at: str
    reason: str
    alarm: str
    line: str
    seen: dict[str, Any]


class Standing(NamedTuple):
    """An alarm (fields of `history.Alarm`, as a dict) and who acknowledged it, or one before it that it is
    hardly more than (`_as_far`); None: nobody yet."""

    alarm: dict[str, Any]
    acknowledged: Said | None
    told: bool

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        said = self.acknowledged
        told = said and {"by": said.by, "at": said.at, "reason": said.reason, "alarm": said.alarm}
        return {**self.alarm, "acknowledged": told}


def standing(store_dir: Path, line: str, checkpoints: Sequence[str] | None = None) -> list[Standing]:
    """All alarms in the line states of these checkpoints (digests), oldest first, each once.

    None stands for what is served: the live one and an open canary's. Raises IntegrityError (12) when a line
    state cannot be read, as nobody can tell whether an alarm is in it, and sqlite3.Error when the registry
    cannot.
    """
    with contextlib.closing(_connect(store_dir)) as connection:
        digests = _served(connection, line) if checkpoints is None else checkpoints
        return _alarms(store_dir, connection, line, digests)


def of_line(store_dir: Path, line: str) -> tuple[list[Standing], list[IntegrityError]]:
    """All alarms of a line, also of what it does not serve, and of a checkpoint of another line that a
    population began with; and why line states cannot be read, in which there may be more."""
    unread: list[IntegrityError] = []
    with contextlib.closing(_connect(store_dir)) as connection:
        return _alarms(store_dir, connection, line, [None], unread), unread


def monitors(store_dir: Path, line: str) -> dict[str, Any]:
    """`line_state.monitors` of the newest line state of the live checkpoint; {} without one."""
    with contextlib.closing(_connect(store_dir)) as connection:
        digests = _live(connection, line)
        return next(_monitors(store_dir, connection, line, digests[0]), {}) if digests else {}


def acknowledged(store_dir: Path) -> set[str]:
    """Ids of all alarms that somebody has acknowledged, also of those whose line state gc has removed."""
    with contextlib.closing(_connect(store_dir)) as connection:
        said = _said(connection)
    return {alarm for alarm, each in said.items() if any(one.what == ACKNOWLEDGED for one in each)}


def waiting(store_dir: Path, states: Iterable[str]) -> set[str]:
    """Those of these line states (digests) with an alarm that nobody has acknowledged, or that cannot be
    read: whether one is in them nobody can tell."""
    done, found = acknowledged(store_dir), set()
    for digest in states:
        try:
            alarms = _monitors_in(store_dir, digest).get("alarms", [])
        except IntegrityError:
            found.add(digest)
            continue
        if any(alarm["id"] not in done for alarm in alarms):
            found.add(digest)
    return found


def _alarms(
    store_dir: Path,
    connection: sqlite3.Connection,
    line: str,
    checkpoints: Sequence[str | None],
    unread: list[IntegrityError] | None = None,
) -> list[Standing]:
    """Those in the line states of these checkpoints, oldest first, each once. `unread`: as `_monitors`."""
    alarms: dict[str, dict[str, Any]] = {}
    for digest in checkpoints:
        for found in _monitors(store_dir, connection, line, digest, unread):
            alarms |= {alarm["id"]: alarm for alarm in found.get("alarms", [])}
    said = _said(connection)
    ordered = sorted(alarms.values(), key=lambda alarm: (alarm["at"], alarm["id"]))
    every = [one for each in said.values() for one in each if one.what == ACKNOWLEDGED and one.line == line]
    return [_standing(alarm, said.get(alarm["id"], []), every) for alarm in ordered]


def _as_far(alarm: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether this alarm says what a known one said: the same behaviour of the same checkpoint, moved the
    same way, and hardly farther from what is usual.

    Until something is deployed each `distill` of a checkpoint looks at more of the same use, from the same
    history, and a lasting shift alarms anew: else an acknowledgement were good for nothing from then on.
    """
    same = all(alarm[name] == known[name] for name in ("behaviour", "direction", "checkpoint"))
    if alarm["behaviour"] == "divergence":  # its values are of two scales
        return same and alarm["score"] <= FARTHER * known["score"]
    moved, before = (abs(one["value"] - one["usual"]) for one in (alarm, known))
    return same and moved <= FARTHER * before


def _connect(store_dir: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(address(store_dir / FILE), uri=True, timeout=30)
    connection.row_factory = sqlite3.Row
    return connection


def _served(connection: sqlite3.Connection, line: str) -> list[str]:
    query = """SELECT artifact.digest FROM deployment JOIN artifact ON artifact.id = deployment.artifact_id
               WHERE deployment.line = ? AND deployment.state = 'canary'"""
    canary = [row["digest"] for row in connection.execute(query, (line,))]
    return [*_live(connection, line), *canary]


def _live(connection: sqlite3.Connection, line: str) -> list[str]:
    query = """SELECT artifact.digest FROM alias JOIN artifact ON artifact.id = alias.artifact_id
               WHERE alias.line = ? AND alias.name = 'live'"""
    return [row["digest"] for row in connection.execute(query, (line,))]


def _monitors(
    store_dir: Path,
    connection: sqlite3.Connection,
    line: str,
    checkpoint: str | None,
    unread: list[IntegrityError] | None = None,
) -> Iterator[dict[str, Any]]:
    """`monitors` of the line's states of a checkpoint (None: of all), newest first.

    Why one cannot be read is raised, or, where there is a list for it, put into `unread`.
    """
    query = """SELECT digest FROM (SELECT digest, meta FROM artifact WHERE kind = 'line_state' AND line = ?1
                                   AND state = 'committed' ORDER BY version DESC LIMIT ?2)
               WHERE ?3 IS NULL OR json_extract(meta, '$.checkpoint') = ?3"""
    for row in connection.execute(query, (line, _NEWEST, checkpoint)).fetchall():
        try:
            found = _monitors_in(store_dir, row["digest"])
        except IntegrityError as error:
            if _removed(connection, row["digest"]):
                continue
            if unread is None:
                raise
            unread.append(error)
            continue
        if found:
            yield found


def _monitors_in(store_dir: Path, line_state: str) -> dict[str, Any]:
    """`monitors` of one line state; {} where it has none. Raises IntegrityError when it cannot be read."""
    path = path_in(store_dir, line_state) / _STATE_FILE
    try:
        found: dict[str, Any] = json.loads(path.read_bytes()).get("monitors", {})
        if "schema" not in found:
            return {}
        if any({"id", "text", *SEEN} - alarm.keys() for alarm in found.get("alarms", [])):
            raise ValueError("an alarm in it is not whole")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise IntegrityError(
            f"{path} cannot be read, and alarms may stand in it: {error}", hint="rtrl verify --full"
        ) from error
    return found


def _removed(connection: sqlite3.Connection, line_state: str) -> bool:
    """Whether gc has removed it since it was found."""
    query = "SELECT 1 FROM artifact WHERE digest = ? AND state = 'committed'"
    return connection.execute(query, (line_state,)).fetchone() is None


def _said(connection: sqlite3.Connection) -> dict[str, list[Said]]:
    found: dict[str, list[Said]] = {}
    query = "SELECT entity_id, to_state, by, at, data FROM event WHERE entity = ? ORDER BY seq"
    for row in connection.execute(query, (ENTITY,)):
        data = json.loads(row["data"])
        about = (data.get("reason", ""), row["entity_id"], data.get("line", ""), data.get("seen", {}))
        entry = Said(row["to_state"], row["by"], row["at"], *about)
        found.setdefault(row["entity_id"], []).append(entry)
    return found


def _standing(alarm: dict[str, Any], said: Sequence[Said], every: Sequence[Said]) -> Standing:
    """`said` of this alarm; `every` acknowledgement of its line."""
    own = (one for one in said if one.what == ACKNOWLEDGED)
    covers = (one for one in every if one.seen and one.seen["at"] <= alarm["at"] and _as_far(alarm, one.seen))
    acknowledged = next(own, None) or next(covers, None)
    return Standing(alarm, acknowledged, any(one.what == TOLD for one in said))
