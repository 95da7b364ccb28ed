"""Calls side by side give what calls one after the other give."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.harness import call_parser, side_by_side
from cursorbench.harness.budget import Budget
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder

PATHS = st.sampled_from(["a.py", "./a.py", "b.py", "link.py", "none.py"])
WORDS = st.sampled_from(["x", "y", "xx", "z"])
CALLS = st.one_of(
    st.builds(lambda path: ("read_file", {"path": path}), PATHS),
    st.builds(
        lambda path, old, new: ("edit_file", {"path": path, "old": old, "new": new}), PATHS, WORDS, WORDS
    ),
    st.builds(lambda text: ("search", {"text": text}), WORDS),
    st.just(("nothing", {})),
)


def played(messages: list[str]) -> Any:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.py").write_text("x y\n")
        (folder / "b.py").write_text("xx\n")
        (folder / "link.py").symlink_to(folder / "a.py")
        loop = AgentLoop(Toolbox(Folder(folder), SMALL_TOOLS), "Edit.", "go", Budget(turns=99))
        for message in messages:
            loop.receive(assistant_message(message))
        told = [(call.name, call.result, call.tool_error) for call in loop.calls]
        files = {path.name: path.read_text() for path in sorted(folder.iterdir())}
        return told, files, [(edit.path, edit.before, edit.after) for edit in loop.edits]


@settings(max_examples=60, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=7))
def test_as_one_after_the_other(calls: list[tuple[str, dict[str, str]]]) -> None:
    texts = [call_parser.render(name, arguments) for name, arguments in calls]
    assert played(["".join(texts)]) == played(texts)


def test_what_is_run_alone_is_alone_and_in_its_place() -> None:
    lock, running, most, order = threading.Lock(), 0, 0, []
    met = threading.Barrier(2, timeout=120)

    def job(name: str, alone: bool) -> Any:
        def work() -> str:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                assert not alone or running == 1
                order.append(name)
            if name in ("r1", "r2"):
                met.wait()
            time.sleep(0.002)
            with lock:
                running -= 1
            return name

        return alone, work

    plan = ["r1", "r2", "E1", "E2", "r3", *[f"s{n}" for n in range(20)], "E3", "r4"]
    assert side_by_side.run([job(name, name.startswith("E")) for name in plan]) == plan
    assert 1 < most <= side_by_side.WORKERS
    assert order.index("E1") == 2
    assert order.index("E3") == 25


def test_a_bug_in_one_rises_after_the_others_are_done() -> None:
    done = []

    def late() -> None:
        time.sleep(0.05)
        done.append(1)

    def bug() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        side_by_side.run([(False, bug), (False, late)])
    assert done == [1]
