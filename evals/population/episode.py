"""One request from the first model call to the reaction, on a real file in a temporary folder.

Shared by the HTTP client (`simulate.py`) and the gate's batches (`replay.py`): the same person, the
same harness, the same folder. Carries no answers itself.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cursorbench.harness.loop import AgentLoop
from evals.population.people import SYSTEM, Case
from evals.population.reactions import Reaction, react

MAX_TURNS = 4
MAX_TOKENS = 96  # of one model call: an edit of a small file is 30, and a ramble should end


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


def begin(case: Case, root: Path, temperature: float = 1.0) -> Episode:
    """Write the case's file into a new folder under `root` and start the agent on it."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=root))
    (folder / case.path).write_text(case.before, "utf-8")
    loop = AgentLoop(
        folder,
        SYSTEM,
        case.text,
        max_turns=MAX_TURNS,
        max_tokens=MAX_TOKENS,
        temperature=temperature,
        history=case.history,
    )
    return Episode(case, loop, folder)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the folders, in memory where the machine has such a place."""
    shared = Path("/dev/shm")
    place = str(shared) if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rtrl-people-", dir=place) as folder:
        yield Path(folder)
