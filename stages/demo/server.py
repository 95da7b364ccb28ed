"""`rtrl serve` for the time of the demo: started when nothing is served yet, stopped with the demo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stages.serving.detach import start_detached, stop
from stages.target.endpoint import Endpoint, running_endpoint

if TYPE_CHECKING:
    from stages.stage import Progress
    from stages.workspace import Workspace


@contextmanager
def serving(workspace: Workspace, progress: Progress) -> Iterator[Endpoint]:
    """A gateway that answers, for a block. One that is running already is used and left running.

    Raises:
        DependencyDownError: (exit 13) it does not come up; says why.
    """
    there = running_endpoint(workspace.run_dir)
    if there is not None:
        progress.message(f"using the server that is running at {there.url}")
        yield there
        return
    progress.start("starting the engine and the gateway")
    try:
        # Any free port: the demo is no service, and 8100 may be one's. Killed, the demo takes it along: the
        # same command again would meet one that still starts, or leave it running.
        yield start_detached(workspace, overrides=["gateway.port=0"], say=progress.message, tied=True)
    finally:
        stop(workspace)
