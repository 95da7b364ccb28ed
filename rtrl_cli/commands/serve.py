"""`rtrl serve`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cursorbench.errors import RtrlError, UsageError
from rtrl_cli import options
from rtrl_cli.output import envelope, message, pairs, show
from rtrl_cli.stage import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stages.registry.store import Store
    from stages.serve import Ready
    from stages.target.endpoint import Endpoint
    from stages.workspace import Workspace

Detach = Annotated[
    bool, typer.Option("--detach", help="Run in the background; return when requests are answered.")
]
Stop = Annotated[bool, typer.Option("--stop", help="Stop the `rtrl serve` of this workspace.")]


def command(
    detach: Detach = False,
    stop: Stop = False,
    as_json: options.Json = False,
    overrides: options.Set = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Serve the live checkpoint and capture what is done with it, until SIGTERM or Ctrl-C.

    Prints where it listens once it is ready; with --json one document, and then nothing more. SIGTERM lets
    requests in flight finish: exit 0 when all did, 143 when some were cut short; Ctrl-C likewise: 130, a
    terminal that is closed: 129.
    """

    if stop and detach:
        raise UsageError(
            "--stop starts nothing", hint="leave --detach away, or run the two one after the other"
        )
    if stop:
        _stop(workspace, overrides or (), as_json)
        return
    found, store = open_store(workspace, overrides or ())
    if detach:
        _detach(found, store, as_json)
        return
    from stages.serve import serve

    shown = False

    def ready(state: Ready) -> None:
        nonlocal shown
        shown = True
        facts = _facts(state.endpoint, model=state.model, key_file=state.key_file) | {
            "checkpoint": state.checkpoint,
            "digest": state.digest,
            "deployment": state.deployment,
        }
        document = envelope("serve", "succeeded", metrics=facts, duration_s=state.seconds)
        show(as_json, document, lambda: _text(facts))

    status = serve(found, store, say=message, ready=ready)
    if not shown:
        raise SystemExit(status)  # as any command that a signal ends, with a document
    raise typer.Exit(status)


def _stop(folder: Path | None, overrides: Sequence[str], as_json: bool) -> None:
    """Without the store, whose disk may be away."""
    from stages.serving.detach import stop as stop_running
    from stages.workspace import Workspace

    found = Workspace.find(folder, overrides)
    if overrides and _readable(Workspace.find(folder)):  # they say how long to wait: none is misspelt
        found.settings  # noqa: B018  read for what it raises
    pid = stop_running(found)
    status = "noop" if pid is None else "succeeded"
    text = "nothing is being served" if pid is None else f"stopped (pid {pid})"
    show(as_json, envelope("serve", status, metrics={"stopped_pid": pid}), lambda: text)


def _readable(workspace: Workspace) -> bool:
    from stages.errors import classified

    try:
        with classified():
            return bool(workspace.settings)
    except RtrlError:
        return False


def _detach(found: Workspace, store: Store, as_json: bool) -> None:
    from stages.serving.detach import start_detached
    from stages.target.admin import Admin

    began = time.monotonic()
    endpoint = start_detached(found, say=message)
    facts = _facts(endpoint, model=found.settings.engine.served_name, key_file=_key_file(found))
    admin = Admin(endpoint)
    served = admin.served()
    artifact = store.artifact(served.checkpoint)
    facts |= {
        "checkpoint": artifact.ref if artifact else served.checkpoint,
        "digest": served.checkpoint,
        "deployment": served.deployment,
    }
    document = envelope("serve", "succeeded", metrics=facts, duration_s=round(time.monotonic() - began, 3))
    show(as_json, document, lambda: _text(facts))


def _key_file(workspace: Workspace) -> str:
    from stages.gateway.key_file import DEFAULT_KEY

    return str(workspace.keys_dir / DEFAULT_KEY)


def _facts(endpoint: Endpoint, *, model: str, key_file: str) -> dict[str, Any]:
    return {
        "url": f"{endpoint.url}/v1",
        "model": model,
        "key_file": key_file,
        "line": endpoint.line,
        "pid": endpoint.pid,
        "engine_pid": endpoint.engine.pid,
        "engine_log": endpoint.engine.log,
        "admin": endpoint.admin_socket or endpoint.admin_url,
    }


def _text(facts: dict[str, Any]) -> str:
    lines: dict[str, object] = {
        "ready": facts["url"],
        "model": facts["model"] + (f" ({facts['checkpoint']})" if facts.get("checkpoint") else ""),
        "API key": f"in {facts['key_file']}",
        "engine log": facts["engine_log"],
        "stop": f"Ctrl-C, or kill {facts['pid']}, or `rtrl serve --stop`",
    }
    return pairs(lines)
