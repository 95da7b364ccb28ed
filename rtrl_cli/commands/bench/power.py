"""`rtrl bench power [SUITE]`."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cursorbench.errors import UsageError
from rtrl_cli import options
from rtrl_cli.commands.bench import flags
from rtrl_cli.output import envelope, message, pairs, show, table

if TYPE_CHECKING:
    from evals.studies import Study
    from evals.worlds import Effects, Tasks

MARGIN, ATTEMPTS = 0.05, 4
MOST_TASKS = 100_000  # each is drawn in each world
MOST_LOGITS = 10.0  # beyond it every task is one that a model always does, or never

SuitePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SUITE]",
        help="Folder of a suite; its tasks and clusters count.",
        show_default=False,
        parser=options.path,
    ),
]
Tasks_ = Annotated[
    int | None, typer.Option("--tasks", min=2, max=MOST_TASKS, help="Tasks, in place of a suite's.")
]
Attempts = Annotated[
    int | None,
    typer.Option(
        "--attempts", min=1, max=flags.MOST_ATTEMPTS, help="Of each model at each task; 4, or the pilot's."
    ),
]
Clusters = Annotated[
    int | None, typer.Option("--clusters", min=2, help="Clusters of --tasks; by default each is its own.")
]
Margin = Annotated[
    float | None,
    typer.Option("--margin", min=0, max=1, help="Loss tolerated, as a share; 0.05, or the report's."),
]
From = Annotated[
    str | None,
    typer.Option("--baseline-from", metavar="REF", help="A report of `rtrl eval`, as a pilot of the suite."),
]
Of = Annotated[str | None, typer.Option("--of", metavar="SUITE.METRIC", help="Which metric of the report.")]
Heterogeneity = Annotated[
    float,
    typer.Option("--heterogeneity", min=0, max=MOST_LOGITS, help="A loss differs by task by so many logits."),
]
ClusterEffect = Annotated[
    float,
    typer.Option(
        "--cluster-effect",
        min=0,
        max=MOST_LOGITS,
        help="And by cluster by so many, where there are clusters.",
    ),
]
Alpha = Annotated[float, typer.Option("--alpha", min=0.0001, max=0.4999, help="Level, as `eval.alpha`.")]
Worlds = Annotated[
    int, typer.Option("--worlds", min=100, max=1_000_000, help="Simulated comparisons for each figure.")
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Draw power by loss: .png, .svg or .pdf.", parser=options.path
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")]


def command(
    suite: SuitePath = None,
    tasks: Tasks_ = None,
    attempts: Attempts = None,
    clusters: Clusters = None,
    margin: Margin = None,
    baseline_from: From = None,
    of: Of = None,
    heterogeneity: Heterogeneity = 0.7,
    cluster_effect: ClusterEffect = 0.4,
    alpha: Alpha = 0.05,
    worlds: Worlds = 1000,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Say how often an identical model passes a suite, and which loss is caught 80 times in 100.

    By simulation through the gate's own tests, for one suite of the kind and for four; task success is
    drawn from Beta(1.2, 0.8), or from what a report's live checkpoint did (--baseline-from, of a workspace).
    """
    from evals.studies import draw_curves, enough, study
    from evals.worlds import Effects

    started = time.monotonic()
    _refuse_mixed(suite, tasks, baseline_from, of, plot)
    name, made, known = _hand(suite, tasks, attempts, clusters, baseline_from, of, workspace)
    limit = margin if margin is not None else known
    effect = cluster_effect if len(made.sizes) < made.count else 0.0
    effects = Effects(heterogeneity, effect)
    found = [
        study(made, limit, effects=effects, suites=n, alpha=alpha, worlds=worlds, seed=seed) for n in (1, 4)
    ]
    shape = f"{made.count} tasks in {len(made.sizes)} clusters, {made.attempts} attempts"
    head = f"{name}: {shape}, margin {limit:g}"
    if plot is not None:
        draw_curves(found, head, plot)
    would = enough(made, limit, alpha)
    metrics = {**_hands(made, effects), "margin": limit, "alpha": alpha}
    metrics["studies"] = [one.to_json() for one in found]
    metrics["identical_passes_90_with"] = {"tasks": would[0], "attempts": would[1]}
    took = round(time.monotonic() - started, 3)
    document = envelope("bench power", "succeeded", metrics=metrics, duration_s=took)
    show(as_json, document, lambda: _text(head, found, made, would))
    if plot is not None:
        message(f"drawn to {plot}")


def _refuse_mixed(
    suite: Path | None, tasks: int | None, baseline_from: str | None, of: str | None, plot: Path | None
) -> None:
    """Raise UsageError (2), before anything is simulated, for what does not name one thing in hand."""
    from evals.studies import require_picture

    if sum(one is not None for one in (suite, tasks, baseline_from)) != 1:
        raise UsageError("one of SUITE, --tasks and --baseline-from", hint="rtrl bench power --tasks 200")
    if of is not None and baseline_from is None:
        raise UsageError("--of is a metric of a report", hint="name the report with --baseline-from")
    if plot is not None:
        require_picture(plot)


def _hands(made: Tasks, effects: Effects) -> dict[str, Any]:
    """What was simulated, for the document."""
    return {
        "tasks": made.count,
        "clusters": len(made.sizes),
        "attempts": made.attempts,
        "heterogeneity": effects.heterogeneity,
        "cluster_effect": effects.cluster,
    }


def _hand(
    suite: Path | None,
    tasks: int | None,
    attempts: int | None,
    clusters: int | None,
    baseline_from: str | None,
    of: str | None,
    workspace: Path | None,
) -> tuple[str, Tasks, float]:
    """What is in hand: its name, its tasks, its margin."""
    from evals.worlds import Tasks, even

    if tasks is not None:
        if clusters is not None and clusters > tasks:
            raise UsageError(f"{tasks} tasks make no {clusters} clusters", hint="lower --clusters")
        return "planned", Tasks(even(tasks, clusters), attempts or ATTEMPTS), MARGIN
    if clusters is not None:
        raise UsageError(
            "--clusters goes with --tasks: a suite has clusters of its own", hint="leave --clusters away"
        )
    if suite is not None:
        from cursorbench.tasks.suite import Suite

        opened = Suite.open(suite)
        sizes = Counter(task.fields.cluster for task in opened.tasks)
        return opened.fields.name, Tasks(tuple(sizes.values()), attempts or ATTEMPTS), MARGIN
    from rtrl_cli.stage import open_store
    from stages.eval.pilot import from_report

    assert baseline_from is not None
    found, store = open_store(workspace)
    report = store.resolve(baseline_from, found.settings.workspace.line)
    seen = from_report(report, of, attempts)
    return f"{seen.name} as in {report.ref}", seen.tasks, seen.margin


def _text(head: str, found: list[Study], made: Tasks, would: tuple[int | None, int | None]) -> str:
    rows = [
        ("an identical model passes", *(_rate(one.identical_pass.to_json()) for one in found)),
        ("it is called regressed", *(_rate(one.identical_regressed.to_json()) for one in found)),
        ("by a naive z-test", *(_rate(one.naive_identical_regressed.to_json()) for one in found)),
        ("loss caught 80 times in 100", *(_loss(one.loss_caught) for one in found)),
        ("by a naive z-test", *(_loss(one.naive_loss_caught) for one in found)),
    ]
    shown = table(("", *(f"{one.suites} SUITE{'S' if one.suites > 1 else ''}" for one in found)), rows)
    low = found[0].identical_pass.value < 0.9
    ways = [f"{would[0]} tasks{_of_clusters(would[0], made)}"] if would[0] else []
    ways += [f"{would[1]} attempts at each"] if would[1] else []
    ways.append("a wider margin")
    advice = {
        "to pass an identical model 90 times in 100": f"{', or '.join(ways)} "
        f"(now {made.count} x {made.attempts})"
    }
    return f"{head}\n\n{shown}" + (f"\n\n{pairs(advice)}" if low else "")


def _of_clusters(count: int, made: Tasks) -> str:
    """How many clusters so many tasks are of, at as many a cluster as now: more of the same tell little."""
    now = len(made.sizes)
    return f" of {math.ceil(count * now / made.count - 1e-9)} clusters" if now < made.count else ""


def _rate(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    return f"{one['value']:.1%} ({low:.1%} to {high:.1%})"


def _loss(value: float | None) -> str:
    return "none up to 0.4" if value is None else f"{100 * value:.1f} points"
