"""`rtrl bench import SOURCE --out SUITE`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.commands.bench import flags
from rtrl_cli.output import envelope, message, pairs, show, table
from rtrl_cli.progress import make_progress

if TYPE_CHECKING:
    from cursorbench.exchange.refused import Exchanged
    from stages.stage import Progress


Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="File of SWE-bench rows (.jsonl, .json, .parquet), or a Harbor task or folder of them.",
        parser=options.path,
        show_default=False,
    ),
]
Repos = Annotated[
    Path | None,
    typer.Option(
        "--repos",
        metavar="DIR",
        help="Clones of the rows' repositories, as OWNER__NAME. Default: here.",
        parser=options.path,
    ),
]
Install = Annotated[
    str, typer.Option("--install", metavar="WORDS", help="What tests need, as for `rtrl bench build`.")
]
Heldout = Annotated[
    float, typer.Option("--heldout", metavar="SHARE", help="Of the tasks of rows.", min=0, max=1)
]


def command(
    source: Source,
    out: flags.Out,
    repos: Repos = None,
    install: Install = "auto",
    lock: flags.Lock = None,
    environment: flags.Environment = "python",
    python: flags.Python = "",
    test_command: flags.TestCommand = "",
    timeout: flags.Timeout = 300.0,
    heldout: Heldout = 0.5,
    sandbox: flags.Sandbox = "auto",
    cache: flags.Cache = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a suite of SWE-bench rows or of Harbor tasks; what cannot be run is refused with its reason.

    Rows are validated as `rtrl bench build` validates: in a sandbox, several times. An import that was
    stopped goes on. Exit 3: nothing could be taken.
    """
    started = time.monotonic()
    with make_progress() as progress:
        if source.is_dir():
            done = _harbor(source, out, progress)
        else:
            from cursorbench.builder.settings import Settings
            from cursorbench.exchange.swebench_import import RowSettings, import_rows

            place = repos or Path.cwd()
            usual = Settings(place, out)
            build = Settings(
                repo=place, out=out, name="rows", install=install, lock=lock, environment=environment,
                python=python or usual.python, test_command=test_command, timeout_s=timeout,
                heldout=heldout, backend=sandbox, cache=cache or usual.cache,
            )  # fmt: skip
            done = import_rows(RowSettings(source, place, build), progress)
    status = "noop" if done.again == len(done.made) and done.made else "succeeded"
    document = envelope(
        "bench import",
        status if done.made else "rejected",
        metrics=done.document(),
        duration_s=round(time.monotonic() - started, 3),
    )
    show(as_json, document, lambda: _text(done))
    if done.refused:
        message(f"all {len(done.refused)} refused are in {done.out / 'rejects.json'}")
    if not done.made:
        raise typer.Exit(3)


def _harbor(source: Path, out: Path, progress: Progress) -> Exchanged:
    from cursorbench.builder.state import write_json
    from cursorbench.exchange.harbor_import import import_tasks
    from cursorbench.exchange.swebench_import import begun

    suite = begun(out, source.resolve().name)
    progress.start("Harbor tasks")
    done = import_tasks(source, suite, lambda name: progress.advance(1, name))
    write_json(suite.path / "rejects.json", [vars(one) for one in done.refused])
    return done


def _text(done: Exchanged) -> str:
    from collections import Counter

    head = pairs({
        "suite": done.out,
        "tasks": f"{len(done.made)}, {done.again} of them there before",
        "refused": len(done.refused),
    })  # fmt: skip
    why = Counter(one.reason for one in done.refused).most_common()
    first = {reason: next(one for one in done.refused if one.reason == reason) for reason, _ in why}
    rows = [(reason, count, f"{first[reason].name}: {first[reason].detail}"[:100]) for reason, count in why]
    notes = Counter(done.notes.values()).most_common()
    blocks = [head, table(("REFUSED", "COUNT", "FOR ONE"), rows), table(("NOTE", "TASKS"), notes)]
    return "\n\n".join(block for block in blocks if block)
