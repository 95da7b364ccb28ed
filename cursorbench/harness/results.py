"""What a tool call came to: text for the model, a typed error for the record, the edit if there was one.

Every outcome of what a model wrote is a result, never an exception: a wrong path is the model's mistake
and it gets to read so. Fine errors say what happened; their class says whose matter it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

ToolError = Literal[
    "",
    "unknown_tool",
    "arguments",  # not an object, or a field is missing or of the wrong type
    "outside",  # the path leaves the folder
    "no_file",  # no such file, or not readable text
    "exists",  # a file to be created is there already
    "not_found",  # the text to replace is not there
    "ambiguous",  # the text to replace is there more than once
    "no_change",
    "too_large",
    "not_available",  # the workplace has no such program
    "not_writable",  # the place cannot be written, or the disk is full
    "failed",  # the command exited with another status than 0
    "killed",  # the command was ended for memory or for writing too much
    "timeout",
    "over_budget",  # not run: the episode's calls were used up
    "aborted",  # not run or cut short: the user stopped the episode
    "provider",  # a service behind the tool does not answer
    "sandbox",  # the sandbox died: infrastructure
]


class ErrorClass(StrEnum):
    """Whose matter an error is; the classes that agents in production are watched by."""

    INVALID_ARGUMENTS = "invalid_arguments"  # the model asked for what cannot be
    UNEXPECTED_ENVIRONMENT = "unexpected_environment"  # the files or programs are not as the model believed
    PROVIDER_ERROR = "provider_error"  # what the tool stands on failed: no fault of the model's
    USER_ABORT = "user_abort"
    TIME_OUT = "time_out"


_CLASSES: Mapping[str, ErrorClass] = {
    "unknown_tool": ErrorClass.INVALID_ARGUMENTS,
    "arguments": ErrorClass.INVALID_ARGUMENTS,
    "outside": ErrorClass.INVALID_ARGUMENTS,
    "over_budget": ErrorClass.INVALID_ARGUMENTS,
    "no_file": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "exists": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "not_found": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "ambiguous": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "no_change": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "too_large": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "not_available": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "not_writable": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "killed": ErrorClass.UNEXPECTED_ENVIRONMENT,
    "provider": ErrorClass.PROVIDER_ERROR,
    "sandbox": ErrorClass.PROVIDER_ERROR,
    "aborted": ErrorClass.USER_ABORT,
    "timeout": ErrorClass.TIME_OUT,
}


def error_class(error: ToolError) -> ErrorClass | None:
    """The class of an error; None for none, and for `failed`: a failing test is what `run` was asked for."""
    return _CLASSES.get(error)


@dataclass(frozen=True)
class Edit:
    """One file changed: full texts before and after; `turn` is the model call that did it, from 0."""

    path: str
    before: str
    after: str
    turn: int = 0


@dataclass(frozen=True)
class ToolResult:
    """What a call did. `text` is what the model reads; `edit` is set when a file changed."""

    text: str
    error: ToolError = ""
    edit: Edit | None = None

    @property
    def ok(self) -> bool:
        """Whether the tool did what was asked."""
        return not self.error


class RefusedError(Exception):
    """A tool cannot do what it was asked; `Toolbox.call` makes a result of it."""

    def __init__(self, error: ToolError, text: str) -> None:
        super().__init__(text)
        self.error: ToolError = error
        self.text = text


def shorten(text: str, limit: int) -> str:
    """The beginning of a text that is too long, and a note that it was cut."""
    return text if len(text) <= limit else text[:limit] + "\n[cut]"


def cut_middle(text: str, limit: int) -> str:
    """Both ends of a text that is too long, and between them how much is missing.

    A command says what it does first and how it ended last.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    middle = text[len(head) : len(text) - len(tail)]
    lines = middle.count("\n")
    return f"{head}\n[{len(middle)} characters, {lines} line ends cut here]\n{tail}"


def printable(text: str) -> str:
    """The text without lone surrogates, which are legal in JSON and no Unicode: no request can carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
