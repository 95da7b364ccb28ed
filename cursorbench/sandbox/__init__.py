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
    from cursorbench.errors import SandboxError, UsageError

    if name not in ("auto", "bubblewrap", "docker"):
        raise UsageError(f"no sandbox backend is called {name!r}", hint="auto, bubblewrap or docker")
    if name != "auto":
        return _opened(name)
    try:
        return _opened("bubblewrap")
    except SandboxError as error:
        try:
            return _opened("docker")
        except SandboxError as other:
            text = f"no sandbox can be had: {error.message}; {other.message}"
            raise SandboxError(text, hint=error.hint) from other


def _opened(name: str) -> Backend:
    if name == "docker":
        from cursorbench.sandbox.docker import Docker

        backend: Backend = Docker()
    else:
        from cursorbench.sandbox.bubblewrap import Bubblewrap

        backend = Bubblewrap()
    backend.probe()
    return backend
