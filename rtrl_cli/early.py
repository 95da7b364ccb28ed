"""What `rtrl deploy` and `rtrl rollback` ask of the running gateway before anything is loaded for the rest.

Typer and what it loads to convert arguments take longer than the users should wait for a rollback. So the
plain forms of the two commands are read here; every other command line is left to Typer and the stage. Not
here: what is asked (`stages/rollback/first.py`, `stages/target/light.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.rollback.first import Begun

_BOTH = ("--json", "--quiet", "-q", "--force")
SWITCHES: dict[str, tuple[str, ...]] = {"deploy": (*_BOTH, "--override"), "rollback": _BOTH}
_VALUES = ("--reason", "--lock-timeout", "--workspace", "-w")
VALUES: dict[str, tuple[str, ...]] = {
    "deploy": (*_VALUES, "--input"),
    "rollback": (*_VALUES, "--to", "--line"),
}


def begin(arguments: Sequence[str]) -> Begun | None:
    """Move the traffic of a plain `rtrl rollback`, tell the gateway what a plain `rtrl deploy` is about to
    deploy. What was begun, for the command. Raises RtrlError as `first.begin`."""
    given = plain(arguments)
    if given is None:
        return None
    folder = given.get("--workspace", given.get("-w"))
    workspace = Path(folder) if folder is not None else None
    if arguments[0] == "rollback":
        from rtrl_cli import line
        from stages.errors import StoreError
        from stages.rollback import first
        from stages.workspace import Workspace

        if name := given.get("--line", ""):
            with contextlib.suppress(StoreError):  # there is none, which is told below
                line.work_on(Workspace.find(workspace, [f"workspace.line={name}"]))
        patience = given.get("--lock-timeout")
        told = given.get("--reason", ""), float(patience) if patience else None
        return first.begin(workspace, *told, given.get("--to", ""), name)
    from stages.target.light import stage_ahead

    stage_ahead(workspace, given.get("--input", ""), override="--override" in given)
    return None


def plain(arguments: Sequence[str]) -> dict[str, str] | None:
    """The options of a command line that is as plain as can be, by their names; None of any other."""
    command = arguments[0] if arguments else ""
    if command not in SWITCHES:
        return None
    given: dict[str, str] = {}
    left = list(arguments[:0:-1])
    while left:
        name, equals, value = left.pop().partition("=")
        if name in given or (equals and not name.startswith("--")):
            return None
        if name in VALUES[command] and (equals or left):
            given[name] = value if equals else left.pop()
            if not given[name] and name != "--reason":
                return None  # a variable that is not set, and no wish for what stands without the flag
        elif name in SWITCHES[command] and not equals:
            given[name] = ""
        else:
            return None
    both = "--workspace" in given and "-w" in given
    return None if both or not _patience(given.get("--lock-timeout", "0")) else given


def _patience(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
