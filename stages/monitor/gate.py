"""Alarms and the gate: an open alarm blocks it until somebody acknowledges it with a reason.

The alarms that count are those of what is live and of the candidate, which was trained on what the alarm is
about. Not for: raising alarms (`charts.py`), the gate's own tests (`evals/gate.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from stages.errors import GateRejectedError, InputMissingError, IntegrityError, RtrlError, UsageError
from stages.monitor.standing import ACKNOWLEDGED, ENTITY, SEEN, Standing, acknowledged, of_line, standing
from stages.who import who

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact
    from stages.workspace import Workspace


def alarms_of(store: Store, line: str, checkpoints: Iterable[Artifact | None]) -> list[Standing]:
    """The alarms of these checkpoints, acknowledged ones too; None is left out."""
    return standing(store.dir, line, [one.digest for one in checkpoints if one is not None])


def alarmed(
    workspace: Workspace, store: Store, candidate: Artifact, live: Artifact | None
) -> RtrlError | None:
    """Why the monitors let no candidate through; None when they do, or `monitor.block` is off.

    A line state that cannot be read is a reason too: an alarm may stand in it.
    """
    if not workspace.settings.monitor.block or live is None or candidate.digest == live.digest:
        return None
    try:
        found = alarms_of(store, workspace.settings.workspace.line, (live, candidate))
    except IntegrityError as damaged:
        return damaged
    waiting = [one.alarm for one in found if one.acknowledged is None]
    if not waiting:
        return None
    ids = " ".join(alarm["id"] for alarm in waiting)
    more = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return GateRejectedError(
        f"alarm {waiting[0]['id']}{more} waits for somebody to look at it: {waiting[0]['text']}",
        hint=f'`rtrl monitor` shows it; then `rtrl monitor ack {ids} --reason "..."`, or `rtrl rollback`',
    )


def acknowledge(
    store: Store, line: str, ids: Sequence[str], *, reason: str, by: str = "", dry_run: bool = False
) -> list[Standing]:
    """Put on record that somebody has looked at these alarms (ids, or beginnings of them).

    Returns those acknowledged now; one that was already is left as it is, also when gc has removed the line
    state that it stood in. One that another's acknowledgement covers gets its own.

    Raises:
        UsageError: (2) no reason, or a beginning that several alarms have.
        InputMissingError: (5) no such alarm.
        IntegrityError: (12) no such alarm in the line states that can be read.
    """
    from stages.registry.states import record

    if not reason.strip():
        raise UsageError("acknowledging an alarm needs a reason", hint='--reason "why"')
    (known, unread), done = of_line(store.dir, line), acknowledged(store.dir)
    gone = done - {one.alarm["id"] for one in known}
    asked = [name for name in dict.fromkeys(ids) if name not in gone]
    found = [_one(known, unread, name) or _missing(store, line, name) for name in asked]
    new = [one for one in found if one.acknowledged is None or one.acknowledged.alarm != one.alarm["id"]]
    if new and not dry_run:
        with store.write("alarm") as session:
            for one in new:
                seen = {name: one.alarm[name] for name in SEEN}
                data = {"line": line, "reason": reason, "alarm": one.alarm["text"], "seen": seen}
                record(session, ENTITY, one.alarm["id"], "", ACKNOWLEDGED, by=by or who(), data=data)
    return new


def _one(known: Sequence[Standing], unread: Sequence[IntegrityError], name: str) -> Standing | None:
    found = [one for one in known if name and one.alarm["id"].startswith(name)]
    if not found:
        if name and unread:
            raise unread[0]
        return None
    if len(found) > 1:
        raise UsageError(f"{name} stands for {len(found)} alarms", hint="write more of it")
    return found[0]


def _missing(store: Store, line: str, name: str) -> NoReturn:
    """Raises InputMissingError, which names the line that has such an alarm, if one has."""
    for other in store.lines() if name else ():
        if any(one.alarm["id"].startswith(name) for one in of_line(store.dir, other)[0]):
            hint = f"line {other} has one: give --line {other}"
            raise InputMissingError(f"line {line} has no alarm {name!r}", hint=hint)
    raise InputMissingError(f"there is no alarm {name!r}", hint="`rtrl monitor` lists them")
