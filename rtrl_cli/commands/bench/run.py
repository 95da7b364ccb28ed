"""`rtrl bench run SUITE`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtrl_cli import options
from rtrl_cli.commands.bench import flags
from rtrl_cli.commands.bench.show import SuitePath
from rtrl_cli.output import envelope, message, pairs, show, table
from rtrl_cli.progress import make_progress
from stages.wording import digits

if TYPE_CHECKING:
    from evals.stats.intervals import Estimate
    from evals.trials.against import Against
    from evals.trials.planning import Asked
    from evals.trials.run import Ran


def _path(name: str, help: str, metavar: str = "DIR") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar=metavar, help=help, show_default=False, parser=options.path
    )
    return option


BaseUrl = Annotated[
    str, typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible server: engine or gateway.")
]
Model = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Its model; default the first one served.")
]
KeyVariable = Annotated[
    str, typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key.")
]
Agent = Annotated[
    str,
    typer.Option("--agent", metavar="COMMAND", help="Run an outside agent in place of our harness."),
]
AgentVenv = Annotated[
    Path | None,
    _path("--agent-venv", "Its virtual environment, node_modules or file; default found."),
]
Attempts = Annotated[
    int, typer.Option("--attempts", metavar="K", min=1, max=flags.MOST_ATTEMPTS, help="Trials a task.")
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Trials at once.")]
Workers = Annotated[
    Literal["processes", "ray"], typer.Option("--workers", help="Of this machine, or of a Ray cluster.")
]
Out = Annotated[Path | None, _path("--out", "Where trials are kept; default trials/SUITE-MODEL.")]
Task = Annotated[list[str] | None, typer.Option("--task", metavar="NAME", help="Only this task; repeatable.")]
Split = Annotated[Literal["dev", "heldout"] | None, typer.Option("--split", help="Only tasks of this split.")]
Budget = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="LIMIT=N", help="turns, output_tokens, wall_s, ...; repeatable."),
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", min=0, max=100, help="Default: as the server samples.")
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Of one answer.")]
SummaryAt = Annotated[
    int | None,
    typer.Option("--summary-at", metavar="TOKENS", min=1, help="Prompt size that our agent sums up at."),
]
Cache = Annotated[Path | None, _path("--cache", "Reuse trials made under equal digests; needs --checkpoint.")]
RerunShare = Annotated[
    float, typer.Option("--rerun-share", min=0, max=1, help="Of reused trials, made again as a check.")
]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", metavar="REF", help="What the server serves, as you know it.")
]
Environments = Annotated[
    Path | None,
    _path("--environments", "Cache of tasks' environments; default ~/.cache/rtrl/environments."),
]
Prices = Annotated[Path | None, _path("--prices", "Price table (TOML).", "FILE")]
Rubric = Annotated[Path | None, _path("--rubric", "Rubric and its judge (TOML).", "FILE")]
Against_ = Annotated[Path | None, _path("--against", "Folder of a run of another model, to compare with.")]
Quality = Annotated[bool, typer.Option("--quality/--no-quality", help="Count new lint and type findings.")]


def command(
    suite: SuitePath,
    base_url: BaseUrl,
    model: Model = "",
    key_variable: KeyVariable = "RTRL_API_KEY",
    agent: Agent = "",
    agent_venv: AgentVenv = None,
    attempts: Attempts = 1,
    jobs: Jobs = 2,
    workers: Workers = "processes",
    out: Out = None,
    task: Task = None,
    split: Split = None,
    budget: Budget = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    summary_at: SummaryAt = None,
    cache: Cache = None,
    rerun_share: RerunShare = 0.1,
    checkpoint: Checkpoint = "",
    environments: Environments = None,
    sandbox: flags.Sandbox = "auto",
    prices: Prices = None,
    rubric: Rubric = None,
    against: Against_ = None,
    quality: Quality = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Let a model, or an outside agent, try the tasks of a suite in sandboxes, and grade what it did.

    The same command again goes on where it was killed. Exit 4: the infrastructure lost too many trials for
    the run to say anything.
    """
    from evals.trials.planning import ENVIRONMENTS, Asked

    asked = Asked(
        suite, base_url, model=model, key=os.environ.get(key_variable, ""), command=agent, venv=agent_venv,
        attempts=attempts, jobs=jobs, workers=workers, out=out, names=task or (), split=split,
        budget=budget or (), temperature=temperature, max_tokens=max_tokens, summary_at=summary_at,
        cache=cache, rerun_share=rerun_share, checkpoint=checkpoint, prices=prices, rubric=rubric,
        environments=environments or ENVIRONMENTS, backend=sandbox, quality=quality,
    )  # fmt: skip
    _run(asked, against, as_json=as_json)


def _run(asked: Asked, against: Path | None, *, as_json: bool) -> None:
    from evals.trials.against import compare, theirs
    from evals.trials.planning import plan
    from evals.trials.run import run

    started = time.monotonic()
    found, planned = plan(asked)
    if against:
        theirs(planned, against.resolve())  # what cannot be compared is said before the first trial
    with make_progress() as progress:
        progress.start(f"trials of {found.fields.name}", len(planned.tasks) * asked.attempts)
        ran = run(planned, progress.advance)
    beside = compare(planned, ran.records, against.resolve()) if against else None
    void = [text for text in (ran.summary.void, beside.void if beside else "") if text]
    document = envelope(
        "bench run",
        "inconclusive" if void else "succeeded",
        inputs={"suite": found.digest},
        outputs={"folder": str(planned.setting.out)},
        metrics={
            "made": ran.made,
            "resumed": ran.resumed,
            "reused": ran.reused,
            **ran.summary.to_json(),
            "against": beside.to_json() if beside else None,
            "results": ran.rows(),
        },
        warnings=[*ran.notes, *(f"void: {text}" for text in void)],
        duration_s=round(time.monotonic() - started, 3),
    )
    show(as_json, document, lambda: _text(ran, beside, planned.setting.out))
    for warning in document["warnings"]:
        message(warning, kind="warning")
    if void:
        raise typer.Exit(4)


def _text(ran: Ran, beside: Against | None, out: Path) -> str:
    from evals.trials import causes

    said = ran.summary
    head: dict[str, object] = {
        "trials": f"{said.trials} of {said.tasks} tasks: {ran.made} made, {ran.resumed} there already, "
        f"{ran.reused} from the cache",
        "infrastructure": f"{said.infrastructure} lost" + (f": VOID, {said.void}" if said.void else ""),
        "flags": ", ".join(f"{name} {count}" for name, count in said.flags.items()) or "none",
        "kept in": out,
    }
    rows = [(one.axis, one.name, *_estimate(one.estimate, one.unit)) for one in said.figures]
    if beside is not None:
        rows += [("against", name, *_estimate(one, "more")) for name, one in beside.differences.items()]
    counted = [
        (name, causes.TABLE[name].whose or "-", count, causes.TABLE[name].what)
        for name, count in said.causes.items()
    ]
    return "\n\n".join(
        (
            pairs(head),
            table(("AXIS", "FIGURE", "VALUE", "95 % INTERVAL", "TASKS", "CLUSTERS"), rows),
            table(("CAUSE", "WHOSE", "TRIALS", ""), counted),
        )
    )


def _estimate(found: Estimate, unit: str) -> tuple[object, ...]:
    if found.value is None:
        return "-", "-", 0, 0
    low, high = ("-" if end is None else digits(end + 0.0) for end in (found.low, found.high))
    return f"{digits(found.value + 0.0)} {unit}", f"{low} to {high}", found.cases, found.clusters
