"""`rtrl verify`."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, error_message, message, pairs, show, size
from rtrl_cli.progress import make_progress
from rtrl_cli.stage import open_store
from stages.errors import UsageError
from stages.wording import count

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.vault_check import VaultCheck
    from stages.workspace import Workspace

_NAMED = 10  # users that a problem names
HINT = "restore what is damaged from a backup; docs/registry.md says how"
HINT_UNOWNED = "delete what is younger than a registry that was put back from a backup: docs/registry.md"
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", min=0, max=options.MAX_SEED, help="Which files a sample takes; default the day's."
    ),
]


class Depth(StrEnum):
    """How closely to look."""

    present = "present"
    sampled = "sampled"
    full = "full"


def command(
    depth: Annotated[
        Depth, typer.Option("--depth", help="All files there; some of their bytes; all of them.")
    ] = Depth.sampled,
    full: Annotated[bool, typer.Option("--full", help="Short for --depth full.")] = False,
    seed: Seed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Check registry, objects, spool and keys; clear up first what was killed. Exit 12: damage."""
    from stages.collect.older import WAY_OUT, problem_of
    from stages.inbox.reader import verify_inbox
    from stages.registry.verify import verify
    from stages.spool.verify import told, verify_spool

    started = time.monotonic()
    chosen = _chosen(depth, seed, full=full)
    found, store = open_store(workspace)
    deep = chosen is not Depth.present
    with make_progress() as progress:
        drawn_by = _of_the_day() if seed is None else seed
        result = verify(store, chosen.value, progress, seed=drawn_by)
        spool = verify_spool(found.spool_dir, deep=deep)
        received, damaged = verify_inbox(found.inbox_dir, deep=deep)
        vault = _check_keys(found, store, chosen)
    older = [f"{problem}; {WAY_OUT}" for problem in [problem_of(store, found.spool_dir)] if problem]
    problems = [*result.problems, *spool.problems, *older, *damaged, *vault.problems]
    metrics: dict[str, Any] = {
        "depth": chosen.value,
        "seed": drawn_by,
        "artifacts": result.artifacts,
        "files": result.files,
        "bytes_read": result.bytes_read,
        "rebuilt": result.rebuilt,
        "swept": result.swept.__dict__,
        "spool": spool.counts,
        "received": received,
        "keys": vault.keys,
        "problems": problems,
    }
    document = _document(metrics, spool.warnings, problems, time.monotonic() - started)
    lines = {**metrics, "bytes_read": size(result.bytes_read), "problems": len(problems)}
    lines |= {name: _counts(metrics[name]) for name in ("spool", "received")}
    lines["swept"] = sum(len(each) for each in result.swept.__dict__.values())
    show(as_json, document, lambda: pairs(lines))
    _say(spool.warnings, problems)
    told(found.spool_dir, spool)
    if problems:
        raise typer.Exit(12)


def _chosen(depth: Depth, seed: int | None, *, full: bool) -> Depth:
    """How closely the flags say. Raises UsageError (2) where one of them would have no effect."""
    if full and depth is Depth.present:
        raise UsageError("--full and --depth present exclude each other", hint="leave one away")
    chosen = Depth.full if full else depth
    if seed is not None and chosen is not Depth.sampled:
        raise UsageError(f"--seed draws a sample; --depth {chosen} takes none", hint="leave it away")
    return chosen


def _of_the_day() -> int:
    """A seed that is another one each day: what is read again and again leaves the rest unread for ever."""
    return datetime.now(UTC).toordinal()


def _check_keys(workspace: Workspace, store: Store, depth: Depth) -> VaultCheck:
    """After all else that is checked: what is sealed while this runs has a key by now."""
    from stages.sealed_users import samples, sealed_users
    from stages.vault_check import check_vault

    deep = depth is not Depth.present
    users = sealed_users(workspace, store, deep=deep)
    opened = samples(workspace, store, everywhere=depth is Depth.full) if deep else ()
    checked = check_vault(workspace.keys_dir, deep=deep, sealed_for=users, samples=opened)
    return checked if checked.problems else replace(checked, problems=_back_again(workspace, store))


def _back_again(workspace: Workspace, store: Store) -> list[str]:
    """What is wrong where keys/ was put back from a copy of before somebody was forgotten."""
    from stages.forget.forget import restored

    users = restored(workspace, store)
    named = ", ".join(users[:_NAMED]) + (f" and {len(users) - _NAMED} more" if len(users) > _NAMED else "")
    what = "keys/vault.db is of before these users were forgotten, and what they wrote can be read again"
    return [f"{what}: `rtrl forget` each of them again: {named}"] if users else []


def _document(
    metrics: dict[str, Any], warnings: list[str], problems: list[str], seconds: float
) -> dict[str, Any]:
    return envelope(
        "verify",
        "failed" if problems else "succeeded",
        metrics=metrics,
        warnings=warnings,
        duration_s=round(seconds, 3),
        error=_error(problems) if problems else None,
    )


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in found.items())


def _say(warnings: list[str], problems: list[str]) -> None:
    for warning in warnings:
        message(warning, kind="warning")
    for problem in problems:
        error_message(problem, _hint(problems) if problem is problems[-1] else "")


def _error(problems: list[str]) -> dict[str, Any]:
    return {
        "code": 12,
        "kind": "integrity",
        "message": f"{count(len(problems), 'problem')}: {problems[0]}",
        "hint": _hint(problems),
    }


def _hint(problems: list[str]) -> str:
    """Of what nothing is damaged nothing is to be restored."""
    from stages.registry.verify import UNOWNED

    return HINT_UNOWNED if all(problem.endswith(UNOWNED) for problem in problems) else HINT
