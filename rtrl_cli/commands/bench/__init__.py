"""`rtrl bench ...`: suites of tasks. One module per subcommand, one line for it here.

They need no workspace: a suite is a folder. Not here: what they do (`cursorbench/`, `evals/`).
"""

from __future__ import annotations

import typer

from rtrl_cli.commands.bench import build, power, run, show

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Make, show, exchange and run suites of tasks.",
)
app.command("build")(build.command)
app.command("show")(show.command)
app.command("power")(power.command)
app.command("run")(run.command)


@app.callback()
def _group() -> None:
    """Keeps it a group while it has one subcommand."""
