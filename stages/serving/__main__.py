"""`python -m stages.serving WORKSPACE [SECTION.KEY=VALUE ...]`: what `rtrl serve --detach` runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from stages.engine.lifetime import PARENT_VARIABLE, die_with_parent
from stages.errors import RtrlError
from stages.interrupts import endings


def say(text: str) -> None:
    """One line on stderr, which may be a file on a full disk: then it is not said."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def main() -> NoReturn:
    """Serve until a signal; leave with `serve`'s status, or with the error's exit code."""
    from stages.registry.store import Store
    from stages.serve import Ready, serve
    from stages.workspace import Workspace

    try:
        workspace = Workspace.find(Path(sys.argv[1]), sys.argv[2:])

        up: list[Ready] = []

        def ready(state: Ready) -> None:
            if workspace.settings.gateway.log_format == "text":
                say(f"ready: {state.endpoint.url}/v1 serves {state.checkpoint} as {state.model}")
            up.append(state)

        def dated(text: str) -> None:  # whoever started it reads along until then, and nobody later
            say(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {text}" if up else text)

        status = serve(workspace, Store.open(workspace.store_dir), say=dated, ready=ready)
    except RtrlError as error:
        say(f"error: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")
        sys.exit(error.code)
    sys.exit(status)


if __name__ == "__main__":
    if parent := os.environ.pop(PARENT_VARIABLE, None):
        die_with_parent(int(parent))
    for ending in endings():
        signal.signal(ending, lambda number, _frame: sys.exit(128 + number))
    main()
