"""The entry point: parse, run one command, turn its end into an exit status.

Nothing here, and nothing it imports, loads torch, vllm, transformers or the registry: `rtrl --help`
is as fast as Python starts. What cannot wait for Typer is in `early.py`. Not for: the parser (`app.py`).
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from cursorbench.errors import RtrlError, UsageError
from rtrl_cli import early, line
from rtrl_cli.output import (
    command_over,
    envelope,
    error_message,
    escape_what_cannot_be_encoded,
    finish,
    has_told,
    open_closed_streams,
    print_json,
)
from stages import interrupts

_NO_PATH = ("Symlink loop from", "Could not determine home directory")  # pathlib's, of what a user named
_NO_ROOM = "failed to map segment from shared object"  # the loader's, with no reason behind it
HINT_OF_A_BUG = "this is a bug in rtrl; --debug shows where it happened"


def main() -> NoReturn:
    """Run the program and leave with its exit status."""
    gc.set_threshold(20_000, 20, 50)  # nearly all that is made is modules, which stay: a tenth of an import
    # of code that users or models wrote, which is parsed to be judged: it is theirs, and no message of ours
    warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
    open_closed_streams()
    escape_what_cannot_be_encoded()
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    for number in interrupts.endings():
        signal.signal(number, _on_signal)
    code = run([a for a in arguments if a != "--debug"] or ["--help"], debug=debug)
    interrupts.over()
    sys.exit(finish(code))


def _on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    # asyncio tells of a task that this ends, with its traceback, when nobody has asked for its result;
    # nothing is imported here: the signal may have met the import of the same module, half of which is there
    if logger := getattr(sys.modules.get("asyncio.log"), "logger", None):
        logger.setLevel("CRITICAL")
    interrupts.raise_now(lambda: SystemExit(128 + number))


def run(arguments: Sequence[str], *, debug: bool = False) -> int:
    """Run one command; all errors are shown here and nowhere else.

    Returns:
        The exit status of the table in docs/cli.md.
    """
    started = time.monotonic()
    command_over()  # of whatever was before
    line.work_on(None)
    try:
        done = early.begin(arguments)
        from rtrl_cli.app import call

        with interrupts.heeded():
            code = call(arguments, done)
    except (SystemExit, KeyboardInterrupt) as error:
        ended = error.code if isinstance(error, SystemExit) else 130
        if ended == 1 and isinstance(error.__context__, BrokenPipeError):
            return 0  # typer makes an exit status 1 of a help's reader who has left
        return _failed(arguments, error, int(ended or 0), started, debug=debug)
    except BaseException as error:  # noqa: BLE001  the one place where a bug, or a panic, becomes an exit status
        known = _of_the_user(error, arguments)
        return _failed(arguments, known or error, known.code if known else 1, started, debug=debug)
    finally:
        command_over()
    return code


def _of_the_user(error: BaseException, arguments: Sequence[str]) -> RtrlError | None:
    """The error as one that a user can act on; None for a bug."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # Python before 3.11.4 wraps what an `except*` raises
    if isinstance(error, UnicodeEncodeError | TypeError) and not all(map(_is_text, arguments)):
        return UsageError("an argument is no UTF-8, and only a path may be so", hint="write it as UTF-8")
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_PATH):
        return UsageError(f"a path leads nowhere: {error}", hint="name another one")
    if isinstance(error, RtrlError):
        return error
    from stages.errors import of_machine, of_memory

    known = of_machine(error)
    if isinstance(error, ImportError) and str(error).strip().endswith(_NO_ROOM):
        known = of_memory(MemoryError("a library does not fit"))
    if known is not None:
        known.__cause__ = error
    return known


def _is_text(argument: str) -> bool:
    """Whether the bytes of an argument were UTF-8: Python stands surrogates in for those that were not."""
    return argument.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in argument)


def _failed(arguments: Sequence[str], error: BaseException, code: int, started: float, *, debug: bool) -> int:
    if code == 0:
        return 0
    described = _describe(error, code)
    described["hint"] = line.named(described["hint"])
    if debug:
        import traceback

        traceback.print_exception(error)
    # a signal may come, or an engine give up, after the result: one document all the same
    if "--json" in arguments and ("--watch" in arguments or not has_told()):
        with contextlib.suppress(RtrlError):  # said below, where stdout takes nothing
            print_json(_document(arguments, error, described, time.monotonic() - started))
    error_message(described["message"], described["hint"], _run_of(error))
    return code


def _run_of(error: BaseException) -> str | None:
    """Id of the stage's run that ended so, which `rtrl show` and its log go by; None for no run."""
    if "stages.result" not in sys.modules:
        return None
    from stages.result import result_of

    result = result_of(error)
    return result.run_id if result else None


def _describe(error: BaseException, code: int) -> dict[str, Any]:
    if isinstance(error, RtrlError):
        return {"code": code, "kind": error.kind, "message": error.message, "hint": error.hint}
    if word := interrupts.SIGNALLED.get(code):
        return {"code": code, "kind": word, "message": word, "hint": ""}
    try:
        from cursorbench.redaction import redact

        text = redact(f"{type(error).__name__}: {error}").text
    except Exception:  # noqa: BLE001  no memory for it: what was not looked through is not shown
        text = type(error).__name__
    return {"code": code, "kind": "bug", "message": text, "hint": HINT_OF_A_BUG}


def _document(
    arguments: Sequence[str], error: BaseException, described: dict[str, Any], duration: float
) -> dict[str, Any]:
    """The envelope of a failure; of the run that failed, when there was one."""
    status = "failed"
    if "stages.result" in sys.modules:
        from stages.result import attached_result, status_of

        status = status_of(described["code"])
        if result := attached_result(error):
            result.error = described
            return result.envelope()
    from rtrl_cli.lazy import full_name

    return envelope(full_name(arguments), status, error=described, duration_s=round(duration, 3))


if __name__ == "__main__":
    main()
