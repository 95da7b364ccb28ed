"""`collect` from session logs: the same `interactions` as from the spool, with texts and without tokens.

Every episode of the logs is taken; each signal stays unknown until its own horizon has passed. Nothing of
it can be trained on, so it needs no checkpoint. Not for: the spool (`stages/collect/run.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cursorbench.sessions.items import Quarantined, Read
from stages import schemas
from stages.collect.config import CollectConfig
from stages.collect.logs.clock import ZONELESS, Clock
from stages.collect.logs.edits import KeptEdits
from stages.collect.logs.forgotten import sessions_of_forgotten
from stages.collect.logs.how_far import read
from stages.collect.logs.left_out import NAMED, LeftOut, where
from stages.collect.logs.source import Source, is_unknown
from stages.collect.logs.spill import Spill
from stages.collect.logs.state import Happened, Record
from stages.collect.logs.survival import Survivals, survivals
from stages.collect.logs.turns import Turns
from stages.collect.logs.vanished import Vanished, vanished
from stages.collect.logs.write import LogWriter
from stages.errors import InconclusiveError
from stages.inbox.reader import Left
from stages.inbox.records import Sender
from stages.stage import Outcome, Output, RunContext
from stages.vault import UserForgottenError, Vault
from stages.verdicts import Verdicts
from stages.wording import count

_BUFFER = 1024  # records whose users get their keys in one transaction
_METRICS = 50  # names of metrics that nothing was made of


def collect_logs(
    config: CollectConfig, facts: Mapping[str, Any], out_dir: Path, ctx: RunContext, *, again: bool
) -> Outcome:
    """Read, order into episodes, seal.

    Args:
        again: a recorded run is repeated: its logs must be those that it read. Else a log that has grown
            since it was listed is read as it is now.

    Raises:
        IntegrityError: (exit 12) the logs are not those that were listed.
        InconclusiveError: (exit 4) they hold no episode.
    """
    source = Source.recorded(facts, ctx.workspace)
    if again:
        source.unchanged(facts)
    line = ctx.workspace.settings.workspace.line
    vault = Vault.open(ctx.workspace.keys_dir)
    left = Left()
    try:
        stands = _survivals(config, source, facts, out_dir, vault, ctx)
        clock = stands.clock if source.zone is None else Clock(source.zone)
        unzoned = Clock()  # nobody and nothing tells the zone
        turns = Turns(
            line,
            source.user,
            source.repository,
            pseudonym=vault.pseudonym,
            clock=clock or unzoned,
            verdicts=Verdicts(config.metrics),
        )
        writer = LogWriter(out_dir / "interactions", vault, round(1000 * config.horizon_s))
        items = read(source, vault, left, "collect: reading session logs", ctx.progress)
        kinds, unknown = _take(source, items, vault, left, turns, writer, stands, ctx)
        writer.finish()
    finally:
        vault.close()
    if left.counts["damaged"]:
        writer.counts["quarantined:a received batch is damaged"] += left.counts["damaged"]
    found = _outcome(config, facts, writer, turns, kinds, _left_out(source, writer, unknown), stands, left)
    if unzoned.used:
        warning = "times of {} have no zone and were read as UTC: name it with --timezone"
        told = ", ".join(sorted(ZONELESS & kinds.keys()))
        found = replace(found, warnings=[*found.warnings, warning.format(told)])
    folder, keys_dir = out_dir / "interactions", ctx.workspace.keys_dir
    return _with_vanished(found, vanished(ctx.store, line, facts, folder, keys_dir))


def _take(
    source: Source,
    items: Iterable[tuple[str, Read, Sender]],
    vault: Vault,
    left: Left,
    turns: Turns,
    writer: LogWriter,
    stands: Survivals,
    ctx: RunContext,
) -> tuple[Counter[str], list[str]]:
    """Everything from the logs into the writer; items by kind, and files of no kind."""
    kinds: Counter[str] = Counter()
    unknown: list[str] = []
    pending: list[Record] = []
    away = frozenset[str]() if source.user else sessions_of_forgotten(ctx.store, vault)
    for kind, item, sender in items:
        if isinstance(item, Quarantined):
            if is_unknown(item):
                unknown.append(where(item.place))
            else:
                writer.quarantine(where(item.place), "", item.reason)
            continue
        kinds[kind] += 1
        for record in turns.add(kind, item, sender):
            pending += stands.after(record)
        if len(pending) >= _BUFFER:
            _write(writer, vault, pending, left.opened, away)
            pending = []
    ended = [one for record in turns.done() for one in stands.after(record)]
    _write(writer, vault, [*pending, *ended], left.opened, away)
    return kinds, unknown


def _left_out(source: Source, writer: LogWriter, unknown: list[str]) -> LeftOut:
    """What was counted of it, the first places as people know them."""
    counts = {
        name.removeprefix("quarantined:"): n
        for name, n in sorted(writer.counts.items())
        if name.startswith("quarantined:")
    }
    places = {reason: source.shown(first) for reason, first in writer.first.items()}
    return LeftOut(counts, places, len(unknown), source.shown(unknown[:NAMED]), source.without_logs())


def _with_vanished(found: Outcome, gone: Vanished | None) -> Outcome:
    """Said, and in no artifact: it depends on what the store holds."""
    if gone is None:
        return found
    warning = (
        f"{count(gone.sessions, 'session')} ({count(gone.episodes, 'episode')}) of {gone.ref}, "
        "the last collect of them, not in the logs any more: `rtrl report --all` has them"
    )
    counts = {"sessions": gone.sessions, "episodes": gone.episodes}
    return replace(found, metrics={**found.metrics, "vanished": counts}, warnings=[*found.warnings, warning])


def _survivals(
    config: CollectConfig,
    source: Source,
    facts: Mapping[str, Any],
    out_dir: Path,
    vault: Vault,
    ctx: RunContext,
) -> Survivals:
    """What the repository tells of the edits; nothing without one."""
    if source.repo is None:
        return Survivals()
    line = ctx.workspace.settings.workspace.line
    with Spill(out_dir) as spill:
        edits = KeptEdits(source.repo, all_of_it=bool(source.repository), spill=spill)
        # as the other reading has it: a verdict that is an event there is one here, or ids of edits differ
        verdicts = Verdicts(config.metrics)
        turns = Turns(
            line, source.user, source.repository, pseudonym=vault.pseudonym, edits=edits, verdicts=verdicts
        )
        what = "collect: reading the edits of session logs"
        for kind, item, sender in read(source, vault, Left(), what, ctx.progress):
            for _ in turns.add(kind, item, sender):
                pass
        for _ in turns.done():
            pass
        found = survivals(source.repo, facts["repo"]["head"], edits, ctx.progress, source.zone)
        return replace(found, warnings=(*found.warnings, *edits.warnings()))


def _write(
    writer: LogWriter,
    vault: Vault,
    records: list[Record],
    opened: Mapping[str, bytes],
    away: frozenset[str],
) -> None:
    """Seal records. Whoever was forgotten stays so: nothing of theirs is taken in again, only counted.

    Args:
        opened: by user, the head of a sealed batch that records came from: they go under its key or nowhere.
        away: users who are sessions of somebody forgotten.
    """
    heads = _heads(vault, {_user(record) for record in records}, opened, away)
    for record in records:
        user = _user(record)
        try:
            if user in heads:
                writer.add(record, like=heads[user])
                continue
        except UserForgottenError:  # while this collect runs
            del heads[user]
        if not isinstance(record, Happened):
            writer.counts["forgotten"] += 1


def _heads(
    vault: Vault, users: set[str], opened: Mapping[str, bytes], away: frozenset[str]
) -> dict[str, bytes]:
    """A blob under the key that takes each user's records; none for who was forgotten.

    What was received could be opened, so it came after any `forget` before: somebody is back.
    """
    heads = {user: opened[user] for user in users if user in opened}
    found = {user for user in users - heads.keys() - away if not vault.forgotten(user)}
    vault.ensure(found)
    made = {user: vault.seal(user, b"", b"") for user in found}
    return heads | {user: blob for user, blob in made.items() if not vault.forgotten(user)}


def _user(record: Record) -> str:
    return record.user if isinstance(record, Happened) else record.generation.user


def _outcome(
    config: CollectConfig,
    facts: Mapping[str, Any],
    writer: LogWriter,
    turns: Turns,
    kinds: Counter[str],
    left_out: LeftOut,
    stands: Survivals,
    left: Left,
) -> Outcome:
    found = {name: writer.counts[name] for name in ("episodes", "generations", "events", "derived_messages")}
    counted = {
        "files": facts["files"],
        "items": dict(sorted(kinds.items())),
        "said": dict(sorted(turns.counts.items())),
        "feedback_not_used": dict(turns.unused.most_common(_METRICS)),
        "quarantined": dict(left_out.records),
        "forgotten": writer.counts["forgotten"],
        "unknown_files": left_out.unknown,
        "persistence": dict(stands.figures),
        **({"received": dict(left.counts)} if "received" in facts else {}),
    }
    if not found["episodes"]:
        raise _nothing(counted, left_out)
    meta = {
        "schema": schemas.INTERACTIONS_SCHEMA,
        "checkpoint": "",
        "horizon_s": config.horizon_s,
        "source": dict(facts),
        "counts": found,
        **counted,
    }
    return Outcome(
        outputs={"interactions": Output("interactions", meta)},
        metrics={**found, **counted, **left_out.metrics()},
        warnings=[*stands.warnings, *_warnings(counted, left_out)],
    )


def _nothing(counted: Mapping[str, Any], found: LeftOut) -> InconclusiveError:
    """Why the logs hold no episode."""
    if counted["forgotten"]:
        return InconclusiveError(
            f"all {counted['forgotten']} answers are of users who were forgotten",
            hint="to take them in again on purpose, name another --user",
        )
    received = counted.get("received")
    read_none = received is None and not counted["files"] and not counted["items"]
    if read_none and not counted["quarantined"]:
        return InconclusiveError(
            "no files were found", hint="name session logs, or folders of them; docs/sources.md says where"
        )
    return found.nothing(counted["files"], received)


def _warnings(counted: Mapping[str, Any], left_out: LeftOut) -> list[str]:
    """What was left out, for people."""
    found = left_out.warnings()
    if again := counted.get("received", {}).get("forgotten"):
        found.append(f"{again} of the received batches left out: their users were forgotten")
    if counted["forgotten"]:
        found.append(f"{count(counted['forgotten'], 'answer')} left out: their users were forgotten")
    if unknown := left_out.unknown_files("file"):
        found.append(unknown)
    return found
