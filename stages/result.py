"""The result of a command, and its JSON envelope: what scripts rely on.

{"schema": "rtrl/1", "command", "status", "run_id", "inputs", "outputs", "metrics", "duration_s",
 "warnings", "error"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from stages.registry.canonical import plain
from stages.stage import Artifact

SCHEMA = "rtrl/1"
Status = Literal["succeeded", "noop", "rejected", "inconclusive", "failed"]
_CODES: dict[Status, int] = {"rejected": 3, "inconclusive": 4}
_KEY = "_rtrl_result"


def status_of(code: object) -> Status:
    """The status of what ended in an error with this exit code: 3 rejected, 4 inconclusive, else failed."""
    return next((status for status, known in _CODES.items() if known == code), "failed")


def code_of(status: Status, error: Mapping[str, Any] | None) -> int:
    """The exit code of what ended like this: the error's, else 3 rejected, 4 inconclusive, 0."""
    return int(error["code"]) if error else _CODES.get(status, 0)


@dataclass
class StageResult:
    """What one run of a stage came to.

    Attributes:
        notes: lines for people (stderr); not part of the envelope.
        error: code, kind, message, hint when it ended in an error.
    """

    command: str
    status: Status
    run_id: str | None = None
    inputs: dict[str, Artifact] = field(default_factory=dict)
    outputs: dict[str, Artifact] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    duration_s: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The process exit status that says this result."""
        return code_of(self.status, self.error)

    def envelope(self) -> dict[str, Any]:
        """The JSON document of `--json`."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "status": self.status,
            "run_id": self.run_id,
            "inputs": {role: artifact.ref for role, artifact in self.inputs.items()},
            "outputs": {
                name: {"ref": artifact.ref, "digest": artifact.digest, "bytes": artifact.bytes}
                for name, artifact in self.outputs.items()
            },
            "metrics": plain(self.metrics),
            "duration_s": round(self.duration_s, 3),
            "warnings": self.warnings,
            "error": self.error,
        }


class Result(Protocol):
    """What a run of a stage, or a cycle of such runs, came to."""

    error: dict[str, Any] | None

    def envelope(self) -> dict[str, Any]:
        """The JSON document of `--json`."""


def attach_result(error: BaseException, result: Result) -> None:
    """Let an error carry the result of the run that raised it, or of the cycle around that run."""
    setattr(error, _KEY, result)


def attached_result(error: BaseException) -> Result | None:
    """What the error carries; None when it came from elsewhere."""
    found: Result | None = getattr(error, _KEY, None)
    return found


def result_of(error: BaseException) -> StageResult | None:
    """The result of the run that raised this error; None when it came from elsewhere."""
    found = attached_result(error)
    return found if isinstance(found, StageResult) else None
