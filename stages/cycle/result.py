"""What one cycle came to: for its caller, and as the JSON document of `rtrl cycle --json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stages.errors import RtrlError
from stages.result import SCHEMA, StageResult, Status, code_of


@dataclass
class CycleResult:
    """What one cycle came to.

    Attributes:
        stages: results of the stages that ran in this call, in order; a failed one is the last.
        made: digests by stage and output name, over the whole cycle, what was resumed included.
        resumed_at: the stage an interrupted cycle went on at, "" for a new cycle.
        error: code, kind, message, hint when a stage failed or was late.
        failure: that error as it was raised.
    """

    id: str
    status: Status
    stages: list[StageResult] = field(default_factory=list)
    made: dict[str, dict[str, str]] = field(default_factory=dict)
    resumed_at: str = ""
    deadline: list[dict[str, float | str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    failure: RtrlError | None = None
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """The process exit status that says this result."""
        return code_of(self.status, self.error)

    def envelope(self) -> dict[str, Any]:
        """The JSON document of `rtrl cycle --json`, the stages' own documents within."""
        stages = [result.envelope() for result in self.stages]
        return {
            "schema": SCHEMA,
            "command": "cycle",
            "status": self.status,
            "run_id": self.id,
            "inputs": {},
            "outputs": {name: output for each in stages for name, output in each["outputs"].items()},
            "metrics": {"resumed_at": self.resumed_at, "deadline": self.deadline},
            "stages": stages,
            "duration_s": round(self.duration_s, 3),
            "warnings": self.warnings,
            "error": self.error,
        }
