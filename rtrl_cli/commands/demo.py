"""`rtrl demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, is_quiet, message, show

if TYPE_CHECKING:
    from stages.demo.run import View


Users = Annotated[
    int,
    typer.Option("--users", min=0, max=options.MOST_DRAWN, help="Simulated users; 0: the recipe's number."),
]
Requests = Annotated[
    int, typer.Option("--requests", min=0, max=options.MOST_DRAWN, help="Requests a cycle; 0: the recipe's.")
]
Replay = Annotated[
    int,
    typer.Option(
        "--replay",
        min=2,
        max=options.MOST_DRAWN,
        help="Held-out requests for the first and the last checkpoint.",
    ),
]


def command(
    directory: Annotated[
        Path,
        typer.Option(
            "--dir", metavar="<path>", help="Workspace to make, or to go on with.", parser=options.path
        ),
    ] = Path("demo"),
    cycles: Annotated[int, typer.Option("--cycles", min=1, help="Cycles of use and learning.")] = 4,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=options.MAX_SEED, help="Of the users and of training.")
    ] = 0,
    users: Users = 0,
    requests: Requests = 0,
    replay: Replay = 1500,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the whole loop on a tiny model: users, rewards, training, gate, deployment, cycle after cycle.

    Makes a workspace, serves its model, and lets simulated users work with it over HTTP. After each
    cycle the next checkpoint is served. Ends with the same held-out users on the first and the last
    one, a plot, and what to try next. Started again it goes on where it was.
    """
    from stages.demo.run import Wish, run_demo

    wish = Wish(directory.expanduser().resolve(), seed, cycles, users, requests, replay)
    view = _view(cycles)
    try:
        found = run_demo(wish, view)
    finally:
        if close := getattr(view, "close", None):
            close()
    show(
        as_json,
        envelope("demo", "succeeded", metrics=found, duration_s=found["seconds"]),
        lambda: _text(found),
    )
    for line in _next(directory):
        message(line)


def _view(cycles: int) -> View:
    from rtrl_cli.demo_view import LiveView, PlainView
    from stages.demo.run import SilentView

    if is_quiet():
        return SilentView()
    return LiveView(cycles) if sys.stderr.isatty() else PlainView(cycles)


def _text(found: dict[str, Any]) -> str:
    from stages.demo.table import summary

    return f"{summary(found)}\nplot: {found['plot']}"


def _next(directory: Path) -> list[str]:
    return [
        "",
        "what to type next:",
        f"  rtrl status -w {directory}                    what is live, what ran, these figures again",
        f"  rtrl show report@latest -w {directory}        the figures; report@vN: why the gate said so",
        f"  rtrl lineage checkpoint@live -w {directory}   what the served checkpoint was made from",
        f"  rtrl serve -w {directory}                     serve it: an OpenAI-compatible API",
        f"  rtrl demo --dir {directory} --cycles N        go on for more cycles",
    ]
