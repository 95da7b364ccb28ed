"""`rtrl bench import SOURCE --out SUITE`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, make_progress, message, pairs, show, table

if TYPE_CHECKING:
    from cursorbench.exchange.refused import Exchanged
    from stages.stage import Progress

CACHE = Path("~/.cache/rtrl/environments")


def command(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="File of SWE-bench rows, or a Harbor task or folder of them."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="SUITE", help="Folder of the suite; may be begun.")],
    repos: Annotated[
        Path | None,
        typer.Option("--repos", metavar="DIR", help="Clones of the rows' repositories, by OWNER__NAME."),
    ] = None,
    environment: Annotated[
        str, typer.Option("--environment", metavar="python|host", help="Locked requirements, or rtrl's own.")
    ] = "python",
    python: Annotated[str, typer.Option("--python", help="Version of the rows' Python.")] = (
        f"{sys.version_info.major}.{sys.version_info.minor}"
    ),
    install: Annotated[
        str, typer.Option("--install", help="Requirements, as `rtrl bench build` takes them.")
    ] = "auto",
    lock: Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="A lock with hashes.")] = None,
    test_command: Annotated[
        str, typer.Option("--test-command", help="With {report} and {tests}; default pytest.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds of one run of the tests.")] = 300.0,
    backend: Annotated[str, typer.Option("--backend", help="Of the sandbox.")] = "auto",
    cache: Annotated[Path, typer.Option("--cache", metavar="DIR", help="Of environments.")] = CACHE,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a suite of SWE-bench rows or of Harbor tasks; what cannot be run is refused with its reason.

    Rows are validated as `rtrl bench build` validates: in a sandbox, several times. An import that was
    stopped goes on. Exit 3: nothing could be taken.
    """
    from cursorbench.builder.settings import Settings

    started = time.monotonic()
    if environment not in ("python", "host"):
        raise typer.BadParameter(f"{environment} is no environment: python or host")
    with make_progress(quiet) as progress:
        if source.is_dir():
            done = _harbor(source, out, progress)
        elif repos is None:
            raise typer.BadParameter("rows need --repos DIR, the folder of their repositories' clones")
        else:
            from cursorbench.exchange.swebench_import import RowSettings, import_rows

            build = Settings(
                repo=repos, out=out, name="import", install=install, lock=lock, environment=environment,  # type: ignore[arg-type]  # checked above
                python=python, test_command=test_command, timeout_s=timeout, backend=backend, cache=cache,
            )  # fmt: skip
            done = import_rows(RowSettings(source, repos, build), progress)
    status = "noop" if done.again == len(done.made) and done.made else "succeeded"
    document = envelope(
        "bench import",
        status if done.made else "rejected",
        metrics=done.document(),
        duration_s=round(time.monotonic() - started, 3),
    )
    show(as_json, document, lambda: _text(done))
    if not quiet and done.refused:
        message(f"all {len(done.refused)} refused are in {done.out / 'rejects.json'}")
    if not done.made:
        raise typer.Exit(3)


def _harbor(source: Path, out: Path, progress: Progress) -> Exchanged:
    from cursorbench.builder.state import write_json
    from cursorbench.exchange.harbor_import import import_tasks
    from cursorbench.exchange.swebench_import import begun

    suite = begun(out, out.resolve().name)
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
