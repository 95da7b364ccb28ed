"""One request from the first model call to the reaction, on a real file in a temporary folder.

Shared by the HTTP client (`simulate.py`) and the gate's batches (`replay.py`): the same person, the
same harness, the same folder. Carries no answers itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from evals.population.intents import Kind
from evals.population.people import SYSTEM, Case, message
from evals.population.reactions import Reaction, react

MAX_TOKENS = 96  # of one model call: an edit of a small file is 30, and a ramble should end

_FOLDER = "rtrl-people-"
_FRESH_S = 60  # so young a folder may be one that is not locked yet


@dataclass(frozen=True)
class Episode:
    """A case being worked on: `loop` asks and is answered, `folder` holds the file."""

    case: Case
    loop: AgentLoop
    folder: Path

    def now(self) -> str:
        """The file's text."""
        return (self.folder / self.case.path).read_text("utf-8")

    def react(self, next_request: str = "", attempt: int = 0) -> Reaction:
        """What the person does; the loop must have stopped by itself."""
        return react(self.case, self.loop, self.now(), next_request, attempt)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def begin(case: Case, root: Path, temperature: float | None = None) -> Episode:
    """Write the case's file into a new folder under `root` and start the agent on it.

    Without a temperature the agent names none: who serves decides.
    """
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=root))
    (folder / case.path).write_text(case.before, "utf-8")
    loop = AgentLoop(
        Toolbox(Folder(folder), SMALL_TOOLS),
        SYSTEM,
        case.text,
        max_tokens=MAX_TOKENS,
        temperature=temperature,
        history=case.history,
    )
    return Episode(case, loop, folder)


@contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A folder for the folders, in memory where the machine has such a place.

    Killed, a process leaves its folder there. Each folder is locked (`flock`) by who uses it, so whoever
    makes the next one removes those of the dead.
    """
    shared = Path("/dev/shm")
    place = place or (shared if shared.is_dir() else Path(tempfile.gettempdir()))
    _sweep(place)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=place) as folder, _locked(Path(folder)):
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError when somebody else has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_FOLDER}*"):
        with suppress(OSError):  # another user's, or somebody uses it or removes it at this moment
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > _FRESH_S:
                with _locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _kind(case: Case) -> Kind:
    """What was meant by a vague request: its goal differs from the file in a number or in an operator."""
    before, goal = (re.sub(r"\d+", "0", text) for text in (case.before, case.intent.goal))
    return "constant" if before == goal else "operator"


def follow_up(case: Case, said: str, follow: str, question: str) -> Case:
    """The person's next message as a request of its own.

    Args:
        case: what came before.
        said: the message.
        follow: "answer": the conversation goes on, `question` being the agent's words; "repeat": a new
            conversation on the file as it was.
        question: the agent's last words.
    """
    intent = replace(case.intent, request=said)
    if case.kind == "vague":
        # a repeated vague request stays vague; an answered one is clear
        intent = intent if follow == "repeat" else replace(intent, kind=_kind(case), clear="")
    if follow == "repeat":
        return replace(
            case, id=f"{case.id}r", intent=intent, text=message(case.path, case.before, said), history=()
        )
    history = (
        *case.history,
        {"role": "user", "content": case.text},
        {"role": "assistant", "content": question},
    )
    return replace(case, id=f"{case.id}a", intent=intent, text=said, history=history)
