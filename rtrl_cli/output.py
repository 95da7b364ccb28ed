"""What a command prints. stdout carries the result (a table for people, one JSON document with
`--json`), stderr carries messages.

Not for: what a result means; a command builds it and says how its table looks. How far it is: `progress.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from cursorbench.errors import DependencyDownError
from rtrl_cli.widths import filled, width

SCHEMA = "rtrl/1"
# ours; then what terminals act on (C0, C1), and what turns the order of letters round
_CONTROL = re.compile("(\x1b\\[(?:0|1|31|33|36)m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_SURROGATES = re.compile("[\ud800-\udfff]")


def envelope(command: str, status: str, **fields: Any) -> dict[str, Any]:
    """The JSON document of a command that is no stage's run."""
    return {
        "schema": SCHEMA,
        "command": command,
        "status": status,
        "run_id": None,
        "inputs": {},
        "outputs": {},
        "metrics": {},
        "duration_s": 0.0,
        "warnings": [],
        "error": None,
        **fields,
    }


def print_json(document: Mapping[str, Any]) -> bool:
    """One document on stdout; whether anybody reads there. Raises DependencyDownError as `_put`."""
    text = json.dumps(document, indent=2, ensure_ascii=not _is_unicode(sys.stdout.encoding))
    # JSON itself escapes the first 32; the others are escaped its way, so that what reads it gets them back;
    # so are the bytes of a path that is no UTF-8, which Python has surrogates for
    for escaped in (_CONTROL, _SURROGATES):
        text = escaped.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _Manner.told = True  # before it is: what a signal cuts short is not followed by another one either
    return _put(text + "\n")


def has_told() -> bool:
    """Whether this command has put a document on stdout, or begun to."""
    return _Manner.told


def command_over() -> None:
    """What was said of this command, and what it has told, is nothing to the next one."""
    _Manner.quiet = _Manner.told = False


def visible(text: str) -> str:
    """The text with control characters as one can read them (`\\x1b`), but for line ends, tabs, our colours.

    What models, agents and users wrote is shown in many places; none of it may move a terminal's cursor, set
    its title, or hide what it says from who reads it.
    """
    return _CONTROL.sub(lambda found: found[1] or ascii(found[0])[1:-1], text)


def _put(text: str) -> bool:
    """Write to stdout; whether anybody reads there. A reader who has left is no error: what the command is
    about goes on, and it ends with its own exit status.

    Raises DependencyDownError (13) when stdout takes nothing: the disk it goes to is full.
    """
    try:
        sys.stdout.write(visible(text))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
        return False
    except OSError as error:
        discard(sys.stdout)
        raise _untaken(error) from error
    return True


def _untaken(error: OSError) -> DependencyDownError:
    return DependencyDownError(
        f"the result cannot be written to stdout: {error.strerror}", hint="free space where it goes"
    )


def finish(code: int) -> int:
    """Write what still waits in stdout and stderr, at the end of a command with exit status `code`.

    Returns:
        The exit status: 13 for a success of which stdout does not take all.
        What cannot be written is lost, else Python would try again while it ends, and leave with 120.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)  # the reader has what it wanted
    except OSError as error:
        discard(sys.stdout)
        if code == 0:
            found = _untaken(error)
            error_message(found.message, found.hint)
            code = found.code
    try:
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)
    return code


def discard(stream: IO[str]) -> None:
    """From now on nothing more is written there, and what waits to be written is lost without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Give a process that was started with stdin, stdout or stderr closed the null device in their place.

    Else the next file that is opened, the registry for one, would take the number, and get what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)  # it is the lowest free number already
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def escape_what_cannot_be_encoded() -> None:
    """Have stdout show what its encoding lacks, a letter or a byte of a path, as `\\u2581`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "utf-8").lower().replace("_", "-").startswith("utf")


def colour(stream: IO[str]) -> bool:
    """Whether to colour: a terminal that can, and no NO_COLOR."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def bold(text: str) -> str:
    """Bold on a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if colour(sys.stdout) else text


class _Manner:
    """Of the command that runs; all its threads have the same."""

    quiet = False
    told = False  # a document


def be_quiet(wanted: bool) -> bool:
    """From now on there is no progress, and no message but errors, or there is again; what was wanted."""
    _Manner.quiet = wanted
    return wanted


def is_quiet() -> bool:
    """Whether `--quiet` was given. Only who has more to leave out than messages and progress need ask."""
    return _Manner.quiet


def error_message(text: str, hint: str = "", run_id: str | None = None) -> None:
    """What went wrong, on stderr, what to do about it, and whose log has more: with `--quiet` too."""
    for kind, said in (("error", text), ("hint", hint), ("run", run_id)):
        if said:
            _line(said, kind)


def message(text: str, *, kind: str = "") -> None:
    """One line on stderr, unless the command is quiet; kind "warning" or "hint" is named and coloured."""
    if not _Manner.quiet:
        _line(text, kind)


def _line(text: str, kind: str = "") -> None:
    shades = {"error": "\x1b[31m", "warning": "\x1b[33m", "hint": "\x1b[36m"}
    label = f"{kind}: " if kind else ""
    if kind in shades and colour(sys.stderr):
        label = f"{shades[kind]}{label}\x1b[0m"
    with contextlib.suppress(OSError):  # nobody reads it: no reason to end
        sys.stderr.write(f"{label}{visible(text)}\n")
        sys.stderr.flush()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns with a header, without lines: readable, and easy to cut."""
    texts = [[visible(" ".join(str(cell).splitlines())) for cell in row] for row in rows]
    if not texts:
        return ""
    widths = [max(width(line[i]) for line in [list(header), *texts]) for i in range(len(header))]
    head, *lines = ("  ".join(map(filled, line, widths)).rstrip() for line in [header, *texts])
    return "\n".join([bold(head), *lines])


def pairs(items: Mapping[str, object]) -> str:
    """`name  value` lines with aligned values."""
    widest = max(map(width, items), default=0)
    return "\n".join(f"{filled(name, widest)}  {value}" for name, value in items.items())


def number(value: float | None) -> str:
    """Three digits behind the point; `-` where there is none."""
    return "-" if value is None else f"{value:.3f}"


def size(count: float) -> str:
    """Bytes for people: `1.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def show(as_json: bool, document: Mapping[str, Any], text: Callable[[], str]) -> bool:
    """The result on stdout in the form asked for; False where nobody reads there any more."""
    if as_json:
        return print_json(document)
    shown = text()
    return _put(shown.rstrip("\n") + "\n") if shown else True
