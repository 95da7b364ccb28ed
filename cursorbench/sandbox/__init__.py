"""Sandboxes: `open_backend` gives a way to make them on this machine."""

from __future__ import annotations

from cursorbench.sandbox.protocol import Backend, Done, Environment, Limits, Process, Sandbox, Snapshot

__all__ = [
    "Backend",
    "Done",
    "Environment",
    "Limits",
    "Process",
    "Sandbox",
    "Snapshot",
    "open_backend",
]


def open_backend(name: str = "auto") -> Backend:
    """The backend `bubblewrap`, `docker`, or what this machine has (`auto`, bubblewrap first).

    Its escape battery has been passed on this machine since it started (`probe`). Raises SandboxError when
    there is no backend, with what to install, or when it does not hold; nothing runs without one.
    """
    from cursorbench.errors import UsageError

    if name not in ("auto", "bubblewrap"):
        raise UsageError(f"no sandbox backend is called {name!r}", hint="auto, bubblewrap or docker")
    from cursorbench.sandbox.bubblewrap import Bubblewrap

    backend = Bubblewrap()
    backend.probe()
    return backend
