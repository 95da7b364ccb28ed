"""Every forgery is graded as failed, and each would have been believed by a grader that reads the report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cursorbench.graders import correctness
from cursorbench.graders.correctness import grade
from cursorbench.sandbox import open_backend
from cursorbench.tasks.task import ExpectedTests
from tests.cursorbench.graders import forging
from tests.cursorbench.graders.forgeries import FORGERIES, UNKNOWN, UNWATCHED, Forgery, patched
from tests.cursorbench.graders.forging import BASE, COMMAND, CORE, FILE, LIMITS, SOLVED, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("forging")
    for place in (folder, folder.parent):
        place.chmod(0o755)
    return World(folder, open_backend())


def placed(world: World, forgery: Forgery) -> None:
    """Plugins, where the forgery needs them."""
    if forgery.plugins:
        variables = dict(world.environment.variables)
        del variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        world.environment = replace(world.environment, variables=variables)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_believed_by_the_naive_and_fails_here(world: World, name: str) -> None:
    forgery = FORGERIES[name]
    before = world.environment
    try:
        placed(world, forgery)
        diff = world.diff(forgery.files, forgery.links)
        tries = 5 if forgery.races else 1
        assert any(world.naive(diff) for _ in range(tries)), "else it shows nothing"
        for _ in range(tries):
            found = grade(world.task, world.environment, diff, world.backend, LIMITS)
            assert not found.passed
            if found.reason == forgery.reason:
                break
    finally:
        world.environment = before
    assert found.reason == forgery.reason, found
    assert forgery.flags <= set(found.flags), found.flags


def test_a_solution_beside_a_forgery_counts_and_is_flagged(world: World) -> None:
    """Files that decide are put back; what was solved is solved."""
    files = {**SOLVED, **FORGERIES["hook in a new conftest"].files}
    found = grade(world.task, world.environment, world.diff(files), world.backend, LIMITS)
    assert found.passed, found
    assert found.restored == ("conftest.py",)
    assert found.flags == ("deciding", "source:pytest")


def test_who_adds_tests_to_a_solution_is_not_flagged(world: World) -> None:
    files = {**SOLVED, FILE: BASE[FILE] + "\n\ndef test_mine():\n    pass\n", "tests/test_more.py": "x = 1\n"}
    found = grade(world.task, world.environment, world.diff(files), world.backend, LIMITS)
    assert (found.passed, found.flags) == (True, ())
    assert found.restored == (FILE, "tests/test_more.py")


def test_what_equals_everything_equals_the_wrong_constant_too(world: World) -> None:
    """Objects equal to everything answer the tests themselves, not the report."""
    answer = "class Any:\n    def __eq__(self, other):\n        return True\n\n\n"
    core = answer + CORE.replace("return 0", "return Any()")
    found = grade(world.task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged")
    assert found.flags == ("source:always_equal",)


def test_who_lies_only_among_odd_names_lies_in_the_challenge_too(world: World) -> None:
    """He was honest in the challenge, where there were no canaries, and so believed."""
    core = CORE + patched(UNWATCHED)
    found = grade(world.task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged"), found


def test_who_is_honest_in_the_challenge_alone_is_not_believed(world: World) -> None:
    """He tells the two runs apart, whatever by: here by what was put in the sabotaged tests' place."""
    seen = "open(str(item.path)).read().count('assert largest([1, 3, 2]) == 3') == 1"
    core = CORE + patched(f"{seen} and {UNWATCHED}")
    found = grade(world.task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged"), found


def test_who_tells_the_runs_apart_by_when_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that tells alone is the one that is sabotaged. Who made the first run take long, and lied until
    then by the clock, was believed each time; now a run more is before the challenge or behind it."""
    count = iter("0123")
    real = correctness.run_tests
    monkeypatch.setattr(correctness, "run_tests", lambda *given: real(*given, {"RUN": next(count)}))
    task = replace(world.task, tests=replace(world.task.tests, fail_to_pass=(f"{FILE}::test_total",)))
    core = CORE + patched(f"__import__('os').environ['RUN'] == '0' and {UNKNOWN}")
    monkeypatch.setattr(correctness, "ROUNDS", 1)
    found = grade(task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged"), found
    count = iter("0123")
    assert grade(task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS).passed
    assert next(count) == "3"


def test_a_forgery_where_the_settings_are_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids begin at that folder; no file was found for them, no canary planted, and the report believed."""
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    monkeypatch.setitem(BASE, "tests/pytest.ini", "[pytest]\n")
    world = World(tmp_path, open_backend())
    told = ExpectedTests(COMMAND, ("test_core.py::test_total",), ("test_core.py::test_largest",), (FILE,))
    task = replace(world.task, tests=told)
    found = grade(task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS)
    assert (found.passed, found.canaries > 0, found.challenged > 0) == (True, True, True)
    core = CORE + patched()
    found = grade(task, world.environment, world.diff({"calc/core.py": core}), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged"), found


def test_who_throws_a_coin_in_each_run_is_found_out(world: World) -> None:
    """One test that tells: a lie in the run and none in the challenge has one chance in four each round."""
    task = replace(world.task, tests=replace(world.task.tests, fail_to_pass=(f"{FILE}::test_total",)))
    lucky = CORE + f"import os\n_coin = os.urandom(1)[0] % 2\n{patched(f'_coin and {UNKNOWN}')}"
    diff = world.diff({"calc/core.py": lucky})
    found = (grade(task, world.environment, diff, world.backend, LIMITS).passed for _ in range(4))
    assert not all(found), "four rounds each: one chance in 4 ** 16"


def test_the_patch_itself_is_what_lies(world: World) -> None:
    """The same lie on a solved task changes nothing that is true, and is still found out."""
    files: dict[str, str | bytes] = {"calc/core.py": SOLVED["calc/core.py"] + patched()}
    found = grade(world.task, world.environment, world.diff(files), world.backend, LIMITS)
    assert (found.passed, found.reason) == (False, "forged")


CASE = """\
import unittest

import pytest

from calc.core import largest, total


class TestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2, 3]), 6)


def test_largest():
    assert largest([1, 3, 2]) == 3


def test_total_of_words():
    with pytest.raises(TypeError):
        total(["a"])
"""
NO_ASSERTION = "\nimport unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n"
NO_RAISES = """
import sys
if "pytest" in sys.modules:
    type(sys.modules["pytest"].raises(OSError)).__exit__ = lambda *a: True
"""


def test_an_assertion_that_was_made_to_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report was true of such runs, plain assertions failed as they must, and both were believed."""
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    monkeypatch.setattr(forging, "TEST_NEW", CASE)
    world = World(tmp_path, open_backend())
    words = f"{FILE}::test_total_of_words"
    for tells, lie in ((f"{FILE}::TestTotal::test_total", NO_ASSERTION), (words, NO_RAISES)):
        task = replace(
            world.task, tests=ExpectedTests(COMMAND, (tells,), (f"{FILE}::test_largest",), (FILE,))
        )
        found = grade(task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS)
        assert (found.passed, found.flags) == (True, ()), found
        diff = world.diff({"calc/core.py": CORE + lie})
        found = grade(task, world.environment, diff, world.backend, LIMITS)
        assert (found.passed, found.reason) == (False, "forged"), found
        assert {"source:pytest", "source:modules"} & set(found.flags)


def test_a_plugin_below_a_name_that_is_no_text(world: World) -> None:
    """Its files were looked for by the name as it is shown, not found, and so not taken away."""
    folder = world.folder / "base" / os.fsdecode(b"\xff.egg-info")
    folder.mkdir()
    for name in ("PKG-INFO", "entry_points.txt"):
        (folder / name).write_text("[pytest11]\nforge = forge\n")
    found = grade(world.task, world.environment, world.diff({**SOLVED}), world.backend, LIMITS)
    assert found.passed, found
    assert found.restored == ("\ufffd.egg-info/PKG-INFO", "\ufffd.egg-info/entry_points.txt")
    assert "deciding" in found.flags
