"""One request from the first model call to the reaction, on a real file in a temporary folder.

Shared by the HTTP client (`simulate.py`) and the gate's batches (`replay.py`): the same person, the
same harness, the same folder. Carries no answers itself.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder
from cursorbench.scratch import scratch as temporary
from evals.population.intents import Kind
from evals.population.people import SYSTEM, Case, message
from evals.population.reactions import Reaction, react

MAX_TOKENS = 96  # of one model call: an edit of a small file is 30, and a ramble should end

_FOLDER = "rtrl-people-"


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


def begin(case: Case, root: Path, temperature: float | None = None, max_tokens: int | None = None) -> Episode:
    """Write the case's file into a new folder under `root` and start the agent on it.

    Without a temperature the agent names none: who serves decides. `max_tokens`: None for `MAX_TOKENS`.
    """
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=root))
    (folder / case.path).write_text(case.before, "utf-8")
    loop = AgentLoop(
        Toolbox(Folder(folder), SMALL_TOOLS),
        SYSTEM,
        case.text,
        max_tokens=max_tokens or MAX_TOKENS,
        temperature=temperature,
        history=case.history,
    )
    return Episode(case, loop, folder)


@contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A folder for the folders, in memory where the machine has such a place; see `cursorbench.scratch`."""
    shared = Path("/dev/shm")
    with temporary(_FOLDER, place or (shared if shared.is_dir() else None)) as folder:
        yield folder


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
