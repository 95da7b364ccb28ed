"""Client of the gateway's admin listener: what is served, and the request to serve something else.

The contract is in `docs/http.md`. Not for users' requests, and not for the engine (only the gateway
speaks to it, because only the gateway can hold requests back while weights change).
"""

from __future__ import annotations

from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec

from stages.errors import (
    DependencyDownError,
    InputMissingError,
    IntegrityError,
    LockedError,
    RtrlError,
    UsageError,
)
from stages.target.endpoint import Endpoint
from stages.target.wire import ask


class EngineServed(msgspec.Struct, frozen=True):
    """What one of several engines serves."""

    name: str
    checkpoint: str
    engine: str


class Served(msgspec.Struct, frozen=True):
    """What the gateway serves at this moment. `engine` is ready, starting, down or unknown; `in_flight`
    counts the generations a swap would wait for."""

    line: str
    checkpoint: str
    deployment: str = ""
    engine: str = ""
    path: str = ""
    in_flight: int = 0
    engines: tuple[EngineServed, ...] = ()

    def is_all(self, digest: str) -> bool:
        """Whether every engine serves this checkpoint, or starts on it."""
        return self.checkpoint == digest and all(each.checkpoint == digest for each in self.engines)

    @property
    def is_changing(self) -> bool:
        """Whether an engine takes weights now, or may hold any."""
        return "unknown" in (self.engine, *(each.engine for each in self.engines))


class Admin:
    """The admin listener of a running gateway.

    Raises DependencyDownError (exit 13) from every method when the gateway does not answer.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float = 30) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s

    def served(self, line: str = "") -> Served:
        """What is served now to the users of a line: by its own engine, or what the main line serves."""
        told = self._ask("GET", "/admin/served")
        return msgspec.convert(told.get("lines", {}).get(line, told), Served)

    def swap(
        self,
        *,
        line: str,
        checkpoint: str,
        path: Path,
        deployment: str,
        drain_s: float,
        timeout_s: float,
        cut: bool = False,
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """Serve `checkpoint` (digest) from folder `path`. Returns once it is verified, with the proof.

        Args:
            drain_s: how long requests in flight may take to finish.
            cut: end those that have not; else nothing is changed then.
            limit_s: an engine that takes longer, or is dead, is started anew on the checkpoint.

        Raises:
            IntegrityError (12): it could not be loaded, or was not what was served then; the old
                weights are back.
            DependencyDownError (13): the engine is down, or requests did not drain.
        """
        body = {
            "line": line,
            "checkpoint": checkpoint,
            "path": str(path),
            "deployment": deployment,
            "drain_timeout_s": drain_s,
        }
        if cut:
            body["cut"] = True
        if limit_s is not None:
            body["limit_s"] = limit_s
        return self._ask("POST", "/admin/swap", body, timeout_s=timeout_s)

    def open_canary(
        self,
        *,
        line: str,
        checkpoint: str,
        path: Path,
        deployment: str,
        salt: str,
        share: float,
        timeout_s: float,
    ) -> dict[str, Any]:
        """Serve `checkpoint` (digest) to `share` of the users (0: nobody yet) from an engine of its own.

        Returns the proof.

        Raises as `swap`; LockedError (11) when there is a canary.
        """
        body = {
            "line": line,
            "checkpoint": checkpoint,
            "path": str(path),
            "deployment": deployment,
            "salt": salt,
            "share": share,
        }
        return self._ask("POST", "/admin/canary", body, timeout_s=timeout_s)

    def share_canary(self, *, line: str, deployment: str, share: float) -> None:
        """Give the canary of `deployment` its users. Raises IntegrityError (12) when it is gone."""
        body = {"line": line, "deployment": deployment, "share": share}
        self._ask("POST", "/admin/canary/share", body)

    def close_canary(self, *, line: str, drain_s: float) -> str:
        """The line's users to its live engine; the deployment that was the canary, "" without one."""
        body = {"line": line, "drain_timeout_s": drain_s}
        answer = self._ask("POST", "/admin/canary/close", body, timeout_s=3 * drain_s + 60)
        return str(answer["ended"])

    def flush_spool(self) -> int:
        """Make everything answered so far durable and visible to readers; the last sequence number."""
        return int(self._ask("POST", "/admin/spool/flush")["last_seq"])

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        try:
            status, document = ask(self.endpoint, method, path, body, timeout_s or self._timeout_s)
        except TimeoutError as error:
            raise DependencyDownError(
                f"the gateway did not answer {path} in time",
                hint="what is served is unchanged or still changing: `rtrl status` says which",
            ) from error
        except (OSError, HTTPException) as error:
            raise DependencyDownError(
                f"the gateway does not answer {path}: {str(error) or type(error).__name__}",
                hint="look at the output of `rtrl serve`",
            ) from error
        if status != 200 or document is None:
            raise refused(path, status, document)
        return document


_KINDS: dict[object, type[RtrlError]] = {
    2: UsageError,
    5: InputMissingError,
    11: LockedError,
    12: IntegrityError,
    13: DependencyDownError,
    "swap_running": LockedError,
    "overtaken": LockedError,
    "drain_timeout": DependencyDownError,
}

_LOGS = "the output of `rtrl serve` and the engine's log say more"
_HINTS: dict[object, str] = {
    "overtaken": "`rtrl status` says what is live since; deploy again if it is still wanted",
}


def refused(path: str, status: int, document: Any) -> RtrlError:
    """The gateway's error answer (docs/http.md) as ours: by its cause's exit code, its code, its status."""
    error = document.get("error") if isinstance(document, dict) else None
    error = error if isinstance(error, dict) else {}
    message = str(error.get("message") or f"the gateway refused {path} with status {status}")
    hint = str(error.get("hint") or _HINTS.get(error.get("code")) or _LOGS)
    kind = _KINDS.get(error.get("exit_code")) or _KINDS.get(error.get("code"))
    if kind is None:
        kind = IntegrityError if status == 409 else DependencyDownError if status >= 500 else UsageError
    return kind(message, hint=hint)
