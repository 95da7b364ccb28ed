"""The flags that several commands share, one definition each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cursorbench.errors import UsageError
from rtrl_cli.output import be_quiet
from stages.durations import WAIT_S


def path(text: str) -> Path:
    """A path that somebody typed; Path("") would be the current folder. Raises UsageError."""
    if not text:
        raise UsageError("a path is empty", hint="name a file or folder; the current folder is `.`")
    return Path(text)


def name(text: str) -> str:
    """A name that somebody typed; "" would be taken for none. Raises UsageError."""
    if not text:
        raise UsageError("a name is empty", hint="give one, or leave the flag away")
    return text


Workspace = Annotated[
    Path | None,
    typer.Option(
        "-w",
        "--workspace",
        metavar="<path>",
        help="Workspace folder; default $RTRL_WORKSPACE, else found upwards.",
        parser=path,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[  # for all commands alike: `output.message` and `make_progress` heed it, no command need
    bool,
    typer.Option("--quiet", "-q", callback=be_quiet, help="No progress and no messages but errors."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a setting; repeatable."),
]
Line = Annotated[
    str | None,
    typer.Option(
        "--line", metavar="NAME", help="A population's line, in place of the workspace's own.", parser=name
    ),
]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="REF", help="Input to use in place of the newest that fits; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Resolve everything, change nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Run even when the same run has a result already.")]
LockTimeout = Annotated[
    float | None,
    typer.Option("--lock-timeout", metavar="SECONDS", min=0, help="How long to wait for a lock."),
]
MAX_SEED = 2**63 - 1  # as the registry keeps it
MOST_DRAWN = 1_000_000  # people or requests, as of `eval.requests`: all are drawn before the first is asked
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of this run; default workspace.seed."),
]
FromRun = Annotated[
    str | None,
    typer.Option("--from-run", metavar="RUN", help="Repeat a recorded run into a scratch store."),
]
Watch = Annotated[bool, typer.Option("--watch", help="Look again and again.")]
EVERY_S = 60.0
Every = Annotated[
    float | None,
    typer.Option(
        "--every", min=1, max=WAIT_S, help=f"Seconds between two looks of --watch; default {EVERY_S:.0f}."
    ),
]
REFS = "checkpoint@live, KIND@vN, KIND@latest, sha256:PREFIX"
Ref = Annotated[str, typer.Argument(metavar="REF", help=f"{REFS}.")]
RefOrId = Annotated[str, typer.Argument(metavar="REF", help=f"{REFS}; also a run or deployment id.")]


def pause(watch: bool, every: float | None) -> float | None:
    """Seconds between two looks; None for one look alone. Raises UsageError."""
    if every is not None and not watch:
        raise UsageError("--every is of --watch: else there is one look", hint="give --watch as well")
    return (every or EVERY_S) if watch else None


def settings(overrides: Sequence[str] | None, line: str | None) -> list[str]:
    """What `--set` and `--line` say, as `section.key=value` texts."""
    return [*([f"workspace.line={line}"] if line is not None else []), *(overrides or ())]
