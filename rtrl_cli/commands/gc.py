"""`rtrl gc`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cursorbench.errors import UsageError
from rtrl_cli import options
from rtrl_cli.output import envelope, message, show, size, table
from rtrl_cli.stage import open_store
from stages.who import who
from stages.wording import count

if TYPE_CHECKING:
    from stages.collect.retention import Retention
    from stages.registry.gc import Plan
    from stages.registry.store import Store
    from stages.workspace import Workspace

Retired = Annotated[
    list[str] | None,
    typer.Option(
        "--retired",
        metavar="LINE",
        help="A line that the settings no longer name: no captured record is kept for its sake. "
        "May be repeated.",
    ),
]


def command(
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it the plan is shown.")] = False,
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, max=36500, help="Keep whatever is younger than this.")
    ] = 7.0,
    keep_spool_days: Annotated[
        float,
        typer.Option("--keep-spool-days", min=0, max=36500, help="Keep captured records younger than this."),
    ] = 30.0,
    keep_log_days: Annotated[
        float | None,
        typer.Option(
            "--keep-log-days",
            min=0,
            max=36500,
            help="Keep what was collected from session logs or telemetry younger than this; default all.",
        ),
    ] = None,
    retired: Retired = None,
    pin: Annotated[
        str | None, typer.Option("--pin", metavar="REF", help="Keep REF whatever happens.")
    ] = None,
    unpin: Annotated[str | None, typer.Option("--unpin", metavar="REF", help="Undo --pin.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for --pin.")] = "",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Remove artifacts, and old parts of the spool, that nothing needs. Without --yes, only say which."""
    from stages.registry import ballast
    from stages.workspace import Workspace

    removing = {"--yes": yes, "--keep-log-days": keep_log_days is not None, "--retired": bool(retired)}
    _refuse_mixed(pin, unpin, reason, removing)
    with ballast.given(Workspace.find(workspace).store_dir):
        found, store = open_store(workspace)
        if pin is None and unpin is None:
            kept = _Kept(keep_days, keep_log_days, keep_spool_days, tuple(retired or ()))
            _collect(found, store, kept, yes=yes, as_json=as_json)
            return
        known = _pins(store, found.settings.workspace.line, pin, unpin, reason)
        if not known:
            message(f"{unpin} was not pinned")
        show(as_json, envelope("gc", "succeeded", metrics={"pinned": pin, "unpinned": unpin}), str)


def _refuse_mixed(pin: str | None, unpin: str | None, reason: str, removing: Mapping[str, bool]) -> None:
    """Raise UsageError (2) where a flag would be dropped: what pins removes nothing."""
    if pin is not None and not reason.strip():
        raise UsageError("--pin needs a reason", hint='give --reason "..."')
    if pin is None and reason:
        raise UsageError("--reason is why something is pinned", hint="name it with --pin")
    named = ", ".join(name for name, given in removing.items() if given)
    if named and (pin is not None or unpin is not None):
        raise UsageError(
            f"--pin and --unpin remove nothing, and {named} does", hint="run the two one after the other"
        )


class _Kept(NamedTuple):
    """How long artifacts, those of logs among them, and captured records are kept, in days; None for ever.
    The lines that keep no records."""

    days: float
    log_days: float | None
    spool_days: float
    retired: tuple[str, ...]


def _collect(found: Workspace, store: Store, kept: _Kept, *, yes: bool, as_json: bool) -> None:
    """Of artifacts, spool and what was received: the plan, or with `yes` what was removed."""
    from stages.collect import retention
    from stages.inbox.reader import delete_segments
    from stages.registry import gc

    retention.require_retired(found, store, kept.retired)
    by = who()
    ages = (kept.days, kept.log_days)
    plan = gc.collect(store, *ages, by=by) if yes else gc.plan(store, *ages)
    decide = retention.delete if yes else retention.plan
    segments = decide(found, store, kept.spool_days, time.time(), kept.retired)
    old = retention.received(found, store, kept.spool_days, time.time())
    received = [
        (f"received segment {int(path.stem)}", path.stat().st_size, path.stat().st_mtime) for path in old
    ]
    if yes:
        delete_segments(old)
    _show(plan, segments, received, yes=yes, as_json=as_json)


def _pins(store: Store, line: str, pin: str | None, unpin: str | None, reason: str) -> bool:
    """Pin and unpin; False when what is to be unpinned was not pinned."""
    from stages.registry import pins

    if pin is not None:
        pins.pin(store, store.resolve(pin, line).digest, by=who(), reason=reason)
    return unpin is None or pins.unpin(store, store.resolve(unpin, line).digest, by=who())


def _show(
    plan: Plan,
    segments: Retention,
    received: list[tuple[str, int, float]],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    rows = [(f"{row.kind}@v{row.version}", size(row.bytes or 0), row.created_at[:19]) for row in plan.remove]
    begun = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(row.created / 1000)) for row in segments.remove]
    rows += [
        (f"spool segment {row.id}", size(row.bytes), at)
        for row, at in zip(segments.remove, begun, strict=True)
    ]
    rows += [(name, size(n), time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))) for name, n, at in received]
    freed = plan.bytes + segments.bytes + sum(n for _, n, _ in received)
    rows += [(f"rebuilt weights {folder.name[:12]}", size(bytes_), "") for folder, bytes_ in plan.rebuilt]
    done = "removed" if yes else "would_remove"
    metrics = {
        done: [row[0] for row in rows],
        "bytes": freed,
        "kept": len(plan.keep),
        "kept_because": Counter(plan.keep.values()),
        "spool_kept": segments.kept.total(),
        "spool_kept_because": segments.kept,
    }
    show(
        as_json,
        envelope("gc", "succeeded" if rows else "noop", metrics=metrics),
        lambda: table(("REMOVED" if yes else "WOULD REMOVE", "SIZE", "MADE"), rows),
    )
    _say(plan, segments, len(received), freed, done, hint=bool(rows) and not yes)


def _say(plan: Plan, segments: Retention, received: int, freed: int, done: str, *, hint: bool) -> None:
    from stages.registry.gc import COLLECTED

    message(
        f"{done.replace('_', ' ')} {len(plan.remove)} artifacts, {len(segments.remove)} spool segments "
        f"and {received} segments of received records, {size(freed)}; "
        f"kept {len(plan.keep)} and {segments.kept.total()}"
    )
    if collected := Counter(plan.keep.values())[COLLECTED]:
        message(
            f"{count(collected, 'artifact')} of these {COLLECTED}, and perhaps nowhere else any more: "
            "`--keep-log-days DAYS` lets go of older ones"
        )
    if hint:
        message("`rtrl gc --yes` removes them", kind="hint")
