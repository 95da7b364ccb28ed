"""Flags that commands of `rtrl bench` share, and the table of those that make tasks from commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rtrl_cli import options

LONGEST_S = 365 * 86_400.0  # as a task's own settings take it
MOST_ATTEMPTS = 1000  # as of `eval.attempts`

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="SUITE",
        help="The suite's folder; one that was begun goes on.",
        show_default=False,
        parser=options.path,
    ),
]
Lock = Annotated[
    Path | None,
    typer.Option(
        "--lock", metavar="FILE", help="Locked requirements with hashes, for all tasks.", parser=options.path
    ),
]
Environment = Annotated[
    Literal["python", "host"],
    typer.Option("--environment", help="python: of the lock; host: what is installed beside rtrl."),
]
Python = Annotated[
    str,
    typer.Option(
        "--python",
        metavar="X.Y",
        help="Default: the one that runs rtrl; auto: of this machine's the one of each base's days.",
    ),
]
TestCommand = Annotated[
    str,
    typer.Option(
        "--test-command",
        metavar="WORDS",
        help="Default: pytest. Writes junit to {report}; {tests} becomes the test files.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="S", help="Seconds of one run of the tests.", min=1, max=LONGEST_S),
]
Sandbox = Annotated[str, typer.Option("--sandbox", metavar="NAME", help="auto, bubblewrap or docker.")]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="Of environments. Default: ~/.cache/rtrl/environments.",
        parser=options.path,
    ),
]
