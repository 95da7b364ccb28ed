"""`rtrl forget USER`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, message, pairs, show, table
from rtrl_cli.stage import open_store
from stages.who import who
from stages.wording import count

if TYPE_CHECKING:
    from stages.forget.forget import Forgotten

_NAMED = 10  # names that a warning has


def command(
    user: Annotated[
        str,
        typer.Argument(
            metavar="USER",
            help="The user's exact name, as clients gave it to the gateway.",
            parser=options.name,
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the registry's events.")] = "",
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Destroy a user's keys: what was sealed for them can no longer be read, here or in any backup.

    Lists the checkpoints trained on the user; their weights stay as they are. Exit 5: no such user.
    """
    from stages.forget.forget import forget

    started = time.monotonic()
    found, store = open_store(workspace)
    result = forget(found, store, user, by=who(), reason=reason, dry_run=dry_run)
    warnings = _warnings(result)
    document = envelope(
        "forget",
        "noop" if dry_run or result.noop else "succeeded",
        metrics=result.metrics(),
        warnings=warnings,
        duration_s=round(time.monotonic() - started, 3),
    )
    show(as_json, document, lambda: _text(result))
    for warning in warnings:
        message(warning, kind="warning")
    message(_done(result))


def _text(result: Forgotten) -> str:
    lines: dict[str, object] = {"user": result.user}
    lines["keys to destroy" if result.dry_run else "keys destroyed"] = result.destroyed
    for key in result.before:
        lines[f"key {key.epoch} destroyed before"] = key.forgotten
    lines["generations in the spool"] = result.spool_generations
    lines["batches of received telemetry"] = result.received_batches
    if result.alike:
        lines["not forgotten, alike"] = ", ".join(result.alike)
    held = [(one.ref, one.generations, one.events, one.episodes) for one in result.holdings.artifacts]
    learned = [
        (one.ref, one.line, "not known" if one.episodes is None else one.episodes, one.through[:19] or "-",
         ", ".join(one.marks) or "-")
        for one in result.holdings.checkpoints
    ]  # fmt: skip
    exported = [
        (one.folder, one.layout, one.experience, one.by, one.at[:19], "there" if one.there else "not seen")
        for one in result.holdings.exports
    ]
    blocks = [
        pairs(lines),
        table(("ARTIFACT", "GENERATIONS", "EVENTS", "EPISODES"), held),
        table(("TRAINED ON THE USER", "LINE", "EPISODES", "THROUGH", "IS"), learned),
        table(("EXPORTED UNSEALED TO", "LAYOUT", "OF", "BY", "AT", "IS"), exported),
    ]
    return "\n\n".join(block for block in blocks if block)


def _warnings(result: Forgotten) -> list[str]:
    found = []
    if result.waiting_shared:
        found.append(
            f"{result.waiting_shared} events wait for their generation under API keys that others use too; "
            "they may be this user's, and are given up after gateway.pending_hours"
        )
    if exported := len(result.holdings.exports):
        found.append(
            f"{exported} exports hold the user's data unsealed, and forgetting does not reach them: "
            "delete the folders, or their rows of this user, and whatever was copied from them"
        )
    if logs := result.sources.logs:
        found.append(
            f"session logs of the user stay where they are, and forgetting does not reach them: {_some(logs)}"
        )
    if names := result.sources.names:
        found.append(
            f"the same sessions are held under other names, too, which are not forgotten: {_some(names)}"
        )
    for run in result.holdings.training:
        found.append(f"{run} is training on the user's episodes now; forget again to list its checkpoint")
    if result.holdings.unreadable:
        found.append(f"could not be read: {', '.join(result.holdings.unreadable)}; see `rtrl verify --full`")
    if result.restored:
        found.append(f"an older vault was put back: forget again {', '.join(result.restored)}")
    return found


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more (--json has all)" if more > 0 else "")


def _done(result: Forgotten) -> str:
    if result.dry_run:
        return f"would destroy {count(result.destroyed, 'key')}; nothing was changed"
    if result.destroyed:
        return f"{result.user} is forgotten"
    if result.before:
        again = "; now on record" if result.recorded else ""
        return f"nothing to do: {result.user} was forgotten on {result.before[-1].forgotten}{again}"
    return f"nothing to do: nothing was ever sealed for {result.user}"
