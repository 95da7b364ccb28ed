"""`rtrl export REF`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, message, pairs, show, size, table
from rtrl_cli.progress import make_progress
from rtrl_cli.stage import open_store
from stages.who import who

if TYPE_CHECKING:
    from stages.train.outside.handover import Exported


Ref = Annotated[str, typer.Argument(metavar="REF", help="The experience, e.g. experience@latest.")]
To = Annotated[str, typer.Option("--to", metavar="trl|verl|parquet", help="Whose columns.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder to make; default beside the workspace.", parser=options.path
    ),
]
Parent = Annotated[str, typer.Option("--parent", metavar="REF", help="The checkpoint that will be trained.")]


def command(
    ref: Ref,
    to: To,
    out: Out = None,
    parent: Parent = "checkpoint@live",
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    line: options.Line = None,
    overrides: options.Set = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Write an experience for a trainer of your own: exact tokens, logprobs, rewards, advantages, masks.

    The folder holds users' data unsealed. `rtrl train --import` takes back what was trained.
    """
    from stages.train.outside.handover import export_experience

    started = time.monotonic()
    found, store = open_store(workspace, options.settings(overrides, line))
    with make_progress() as progress:
        result = export_experience(
            found,
            store,
            ref,
            to,
            out=out,
            parent=parent,
            by=who(),
            progress=progress,
            dry_run=dry_run,
        )
    warnings = result.warnings()
    document = envelope(
        "export",
        "noop" if dry_run else "succeeded",
        inputs={role: artifact.ref for role, artifact in result.inputs.items()},
        metrics=result.metrics(),
        warnings=warnings,
        duration_s=round(time.monotonic() - started, 3),
    )
    show(as_json, document, lambda: _text(result))
    for path in result.swept:
        message(f"removed {path}, left by an export that was killed")
    for warning in warnings:
        message(warning, kind="warning")


def _text(result: Exported) -> str:
    survey = result.survey
    lines: dict[str, object] = {
        "would write" if result.dry_run else "folder": result.folder,
        "layout": result.layout,
        "experience": result.inputs["experience"].ref,
        "parent": result.inputs["parent"].ref,
        "rows": result.rows,
        "episodes": f"{survey.usable} of {survey.episodes} can be trained on",
        "tokens": f"{survey.trained_tokens} to train on, of {survey.tokens}",
        "longest prompt": survey.longest_prompt,
        "longest completion": survey.longest_completion,
    }
    if not result.dry_run:
        lines["size"] = size(result.bytes)
    left = [(reason, count, "episodes") for reason, count in survey.excluded.most_common()]
    left += [(reason, count, "tokens") for reason, count in survey.masked.most_common()]
    return "\n\n".join(
        block for block in (pairs(lines), table(("NOT TRAINED ON", "COUNT", ""), left)) if block
    )
