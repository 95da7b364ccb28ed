"""`rtrl bench ...`: suites of tasks. One module per subcommand, two lines for it here.

They need no workspace: a suite is a folder. Not here: what they do (`cursorbench/`, `evals/`).
"""

from __future__ import annotations

import typer

from rtrl_cli.commands.bench.build import command as build
from rtrl_cli.commands.bench.export import command as export
from rtrl_cli.commands.bench.import_ import command as import_
from rtrl_cli.commands.bench.power import command as power
from rtrl_cli.commands.bench.run import command as run
from rtrl_cli.commands.bench.show import command as show

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Make, show, exchange and run suites of tasks.",
)
app.command("build")(build)
app.command("show")(show)
app.command("run")(run)
app.command("power")(power)
app.command("import")(import_)
app.command("export")(export)
