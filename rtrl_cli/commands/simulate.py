"""`rtrl simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cursorbench.errors import UsageError
from rtrl_cli import options
from rtrl_cli.output import envelope, number, pairs, show, table
from rtrl_cli.progress import make_progress

if TYPE_CHECKING:
    from evals.population.simulate import Summary

LAST_DAY = 36_500  # a hundred years: the gateway takes no time beyond the year 3000
MOST_AT_WORK = 4096  # each with a connection of its own

Users = Annotated[int, typer.Option("--users", min=1, max=options.MOST_DRAWN, help="People.")]
Requests = Annotated[
    int,
    typer.Option(
        "--requests", min=1, max=options.MOST_DRAWN, help="Requests of the day; follow-ups come on top."
    ),
]
PopulationSeed = Annotated[int, typer.Option("--seed", min=0, help="Which population.")]
Day = Annotated[
    int | None,
    typer.Option(
        "--day",
        min=0,
        max=LAST_DAY,
        help="Which day of their lives; default the next one.",
        show_default=False,
    ),
]
Split = Annotated[str, typer.Option("--split", metavar="train|heldout", help="People to train on, or not.")]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=MOST_AT_WORK, help="People at work at a time.")
]
Url = Annotated[str | None, typer.Option("--url", help="The gateway; default the one this workspace serves.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="<path>",
        help="File with the API key; default keys/default.key.",
        parser=options.path,
    ),
]


def command(
    users: Users = 200,
    requests: Requests = 1600,
    seed: PopulationSeed = 0,
    day: Day = None,
    split: Split = "train",
    concurrency: Concurrency = 48,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Let simulated people work with what is served for one virtual day, and report their reactions.

    They are clients of the HTTP contract like any other (docs/http.md).
    """
    if split not in ("train", "heldout"):
        raise typer.BadParameter("--split is train or heldout")
    import asyncio
    import time

    from evals.population.simulate import Traffic, simulate
    from stages import people_days

    where = people_days.place(workspace, url, key_file)
    lived = _next_day(where.run_dir, split, seed) if day is None else day
    traffic = Traffic(where.url, where.key, users, requests, seed, split, lived, concurrency)  # type: ignore[arg-type]
    with make_progress() as progress:
        progress.start(f"day {lived} of {users} people", requests)
        started = time.monotonic()
        summary = asyncio.run(simulate(traffic, progress.advance))
    if summary.episodes:  # else nobody has lived it, and it would be skipped
        people_days.lived(where.run_dir, split, seed, lived)
    seconds = round(time.monotonic() - started, 3)
    metrics = {**summary.to_json(), "users": users, "seed": seed, "split": split, "day": lived}
    document = envelope("simulate", "succeeded", metrics=metrics, duration_s=seconds)
    show(as_json, document, lambda: _text(summary, metrics, seconds))


def _next_day(run_dir: Path | None, split: str, seed: int) -> int:
    """The first day that these people have not lived yet. Raises UsageError: they have lived all."""
    from stages import people_days

    day = people_days.next_day(run_dir, split, seed)
    if day > LAST_DAY:
        raise UsageError(
            f"these people have lived their last day, {LAST_DAY}",
            hint="take others with --seed, or name an earlier --day",
        )
    return day


def _text(summary: Summary, metrics: dict[str, Any], seconds: float) -> str:
    rows = [
        (
            name,
            *(
                ("-",) * 3
                if found.value is None
                else (f"{found.value:.3f}", number(found.low), number(found.high))
            ),
        )
        for name, found in summary.figures.items()
    ]
    facts = {
        "day": f"{metrics['day']} of {metrics['users']} people ({metrics['split']}, seed {metrics['seed']})",
        "episodes": f"{summary.episodes} for {summary.planned} requests, {summary.refused} refused",
        "found": ", ".join(f"{name} {count}" for name, count in summary.outcomes.items()),
        "took": f"{seconds:.1f} s",
    }
    return table(("", "value", "low", "high"), rows) + "\n\n" + pairs(facts)
