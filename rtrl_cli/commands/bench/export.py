"""`rtrl bench export SUITE --out FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtrl_cli import options
from rtrl_cli.commands.bench.show import SuitePath
from rtrl_cli.output import envelope, message, show


def command(
    suite: SuitePath,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="JSON lines to write.", parser=options.path)
    ],
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a suite's tasks as SWE-bench rows. Tasks without test ids are left out, and counted.

    Harbor needs no export: a task of a suite is a Harbor task.
    """
    from cursorbench.exchange.swebench_export import export
    from cursorbench.tasks.suite import Suite

    done = export(Suite.open(suite), out)
    document = envelope("bench export", "succeeded", metrics=done.document())
    show(as_json, document, lambda: f"{len(done.made)} rows in {done.out}")
    for one in done.refused:
        message(f"{one.name} left out: {one.reason}, {one.detail}", kind="warning")
