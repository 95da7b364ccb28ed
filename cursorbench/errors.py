"""The base of all rtrl errors: what went wrong, what to do about it, and the exit code a script sees.

Lives in the lowest layer so that every layer can raise it. Errors that only the
stages know are in `stages/errors.py`. The table of exit codes is in `docs/cli.md`.
"""

from __future__ import annotations

from typing import ClassVar


class RtrlError(Exception):
    """An error a user can act on. Shown as message and hint, never as a traceback.

    Attributes:
        code: process exit status.
        kind: stable machine-readable name, the `error.kind` of the JSON envelope.
        message: one sentence that says what is wrong, with the offending name in it.
        hint: what to do next; may be empty.
    """

    code: ClassVar[int] = 1
    kind: ClassVar[str] = "bug"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RtrlError):
    """The command or its settings make no sense (unknown key, contradiction, bad value)."""

    code = 2
    kind = "usage"


class InputMissingError(RtrlError):
    """Something the command reads is not there (artifact, folder, file)."""

    code = 5
    kind = "input_missing"


class IntegrityError(RtrlError):
    """Data is there but is not what it claims to be (digest, length, schema, tokenizer)."""

    code = 12
    kind = "integrity"


class DependencyDownError(RtrlError):
    """Something outside this process does not answer (engine, gateway, judge, disk)."""

    code = 13
    kind = "dependency_down"


class SandboxError(DependencyDownError):
    """No sandbox can be had, or one died: infrastructure, never a grade; and never a reason to go without."""

    kind = "sandbox"
