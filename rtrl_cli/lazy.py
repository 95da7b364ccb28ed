"""Commands that are imported when they are run, so that `rtrl --help` costs next to nothing.

Each line of `TABLE` names a command, its section in the help, the module it lives in and its one-line
help. The module exposes `command` (a function with Typer parameters) or `app` (a Typer with
sub-commands). Not for: what the commands do.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Entry(NamedTuple):
    """One command of the table."""

    section: str
    module: str
    help: str


STAGES, LOOP, STORE = "Stages", "The loop", "The store"
TABLE: dict[str, Entry] = {
    "collect": Entry(STAGES, "collect", "Seal a window of the spool, or session logs, into interactions."),
    "distill": Entry(STAGES, "distill", "Turn interactions into experience: signals and rewards."),
    "train": Entry(STAGES, "train", "Train the live checkpoint on experience; gives a candidate."),
    "eval": Entry(STAGES, "eval", "Compare a candidate with the live checkpoint and decide."),
    "deploy": Entry(STAGES, "deploy", "Serve a checkpoint that passed the gate."),
    "rollback": Entry(STAGES, "rollback", "Serve the previous checkpoint again."),
    "init": Entry(LOOP, "init", "Make a workspace."),
    "serve": Entry(LOOP, "serve", "Serve the live checkpoint and capture what is done with it."),
    "keys": Entry(LOOP, "keys", "List, add or revoke API keys of the gateway; back up users' keys."),
    "simulate": Entry(LOOP, "simulate", "Let simulated users work with what is served."),
    "cycle": Entry(LOOP, "cycle", "Run the chain of stages once."),
    "monitor": Entry(LOOP, "monitor", "Show how the line behaves, cycle by cycle, and its alarms."),
    "demo": Entry(LOOP, "demo", "Show the whole loop on a tiny model."),
    "ab": Entry(LOOP, "ab", "Show how a canary does, and decide."),
    "bench": Entry(LOOP, "bench", "Make, show, exchange and run suites of tasks."),
    "anchor": Entry(LOOP, "anchor", "Pin the checkpoint to which the KL of training is measured."),
    "status": Entry(STORE, "status", "Say what is live, what ran last, what there is."),
    "show": Entry(STORE, "show", "Show one artifact, run or deployment."),
    "lineage": Entry(STORE, "lineage", "Show what an artifact was made from."),
    "report": Entry(STORE, "report", "Say how the agent does, over time and by population."),
    "verify": Entry(STORE, "verify", "Check the store: present, sampled or all bytes."),
    "gc": Entry(STORE, "gc", "Plan, and with --yes do, the removal of what nothing needs."),
    "export": Entry(STORE, "export", "Write an experience for a trainer of your own."),
    "forget": Entry(STORE, "forget", "Destroy a user's keys; list what was trained on them."),
    "doctor": Entry(STORE, "doctor", "Check machine, installation and workspace."),
    "db": Entry(STORE, "db", "Upgrade, back up or check the registry."),
}


def load(name: str) -> Any:
    """Import a command and build it. Returns click's command object."""
    module = importlib.import_module(f"rtrl_cli.commands.{TABLE[name].module}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(name)(module.command)
    command = typer.main.get_command(app)
    command.name = name
    return command


def full_name(arguments: Sequence[str]) -> str:
    """The command that a command line names, `keys add` of a group; "rtrl" when it names none."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] not in TABLE:
        return words[0] if words else "rtrl"
    known = getattr(load(words[0]), "commands", {})
    return next((f"{words[0]} {word}" for word in words[1:] if word in known), words[0])


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and help, and imports the one that is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=entry.help, rich_markup_mode=None) for name, entry in TABLE.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Click's look-up, with the real command in place of the name's."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name is not None else command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands by section, in the order of the table."""
        for section in (STAGES, LOOP, STORE):
            rows = [(name, entry.help) for name, entry in TABLE.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
