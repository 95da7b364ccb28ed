"""Canaries and sabotaged tests, run by the real pytest in an honest process: each has the outcome it must."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
import unittest
from collections.abc import Iterable
from pathlib import Path

import pytest

from cursorbench.graders import canaries, junit, means
from cursorbench.graders.sabotage import SABOTAGED, Sabotaged, sabotage

BARE = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
MODULE = b"""\
import pytest
import unittest

pytestmark = []


class TestBox:
    def test_open(self):
        box = [1]
        assert box == [1], "open"

    def test_early(self):
        if True:
            return
        assert False


class Case(unittest.TestCase):
    def test_unit(self):
        def inner():
            return 3

        self.assertEqual(inner(), 3)


@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    assert n in (
        1,
        2,
    )


def test_line(): assert True


def test_raises():
    with pytest.raises(ValueError):
        int("x")"""


def run(folder: Path, files: dict[str, bytes]) -> dict[str, str]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", "--junitxml=r.xml", "-p"]
    subprocess.run([*command, "no:cacheprovider"], cwd=folder, capture_output=True, check=False, env=BARE)
    return dict(junit.read((folder / "r.xml").read_bytes()))


def drawn(folder: Path, text: bytes, ids: list[str], times: int) -> list[tuple[Sabotaged, set[str]]]:
    """What was sabotaged each time, and which of the tests failed then; all of them by one pytest."""
    every = {f"test_{n}.py": [one.replace(FILE, f"test_{n}.py") for one in ids] for n in range(times)}
    made = {name: sabotage({name: text}, of) for name, of in every.items()}
    found = run(folder, {name: one.files[name] for name, one in made.items()})
    return [(made[name], {one for one in of if found[one] == "failed"}) for name, of in every.items()]


def of_file(ids: Iterable[str]) -> set[str]:
    """The ids as they are in `FILE`."""
    return {re.sub(r"^test_\d+\.py", FILE, one) for one in ids}


FILE = "test_box.py"
IDS = [
    f"{FILE}::TestBox::test_open",
    f"{FILE}::TestBox::test_early",
    f"{FILE}::Case::test_unit",
    f"{FILE}::test_many[1]",
    f"{FILE}::test_many[2]",
    f"{FILE}::test_line",
    f"{FILE}::test_raises",
]


def test_canaries_have_the_outcome_they_must(tmp_path: Path) -> None:
    tests = {FILE: MODULE.replace(b"pytestmark = []", b"")}
    planted = canaries.plant(tests, IDS, ["/work/src/core.py"])
    assert len(planted.must_fail) == 2 + 2, "one by unittest, one by pytest.raises"
    assert len(planted.must_pass) == 2 + 1
    found = {
        name.rpartition("::")[2]: outcome for name, outcome in run(tmp_path, dict(planted.files)).items()
    }
    assert {found[name] for name in planted.must_fail} == {"failed"}
    assert {found[name] for name in planted.must_pass} == {"passed"}
    assert all(found[name.rpartition("::")[2]] == "passed" for name in IDS)


def test_marked_modules_get_no_canary_that_must_pass() -> None:
    planted = canaries.plant({FILE: MODULE, "data.json": b"{}", "test_bad.py": b"def"}, IDS, [])
    assert planted.must_fail
    assert not planted.must_pass
    assert planted.files["data.json"] == b"{}"


def test_names_are_never_the_same_twice() -> None:
    first, second = (canaries.plant({FILE: MODULE}, IDS, []) for _ in range(2))
    assert not first.must_fail & second.must_fail


def test_sabotaged_tests_fail_and_no_others(tmp_path: Path) -> None:
    seen: set[str] = set()
    for made, failed in drawn(tmp_path, MODULE, IDS, 4):
        assert failed == made.must_fail != frozenset()
        seen |= of_file(failed)
    assert not seen & {IDS[1], IDS[5]}, "a test that may end early, or on one line, is left alone"


FAMILY = b"""\
class TestBase:
    def test_length(self):
        assert len("ab") == 2


class TestHeir(TestBase):
    pass


class TestOther:
    def test_width(self):
        assert len("abc") == 3


def test_called():
    assert len("") == 0


def test_caller():
    test_called()
    assert len("a") == 1
"""


def test_what_takes_others_along(tmp_path: Path) -> None:
    """An heir of a sabotaged test fails with it, and so does a test that calls it: honest ones were liars."""
    names = ("TestBase::test_length", "TestHeir::test_length", "TestOther::test_width", "test_called")
    ids = [f"{FILE}::{name}" for name in (*names, "test_caller")]
    seen: set[str] = set()
    for made, failed in drawn(tmp_path, FAMILY, ids, 12):
        assert made.must_fail <= failed <= made.must_fail | made.may_fail
        assert of_file(made.may_fail) <= {ids[1]}, "nothing else is excused"
        seen |= of_file(failed)
    assert seen == {ids[0], ids[1], ids[2], ids[4]}, "the others are still asked about"


STEPS = b"""\
import pytest


@pytest.mark.incremental
class TestSteps:
    def test_login(self):
        assert 1 == 1

    def test_change(self):
        assert 2 == 2


@pytest.mark.dependency()
def test_first():
    assert 3 == 3


def test_free():
    assert len("") == 0
"""


def test_steps_that_skip_what_comes_after_them_are_left_alone() -> None:
    """Of pytest's recipe for tests in steps the honest solution was a forgery half of the time."""
    names = ("TestSteps::test_login", "TestSteps::test_change", "test_first", "test_free")
    for _ in range(8):
        assert sabotage({FILE: STEPS}, [f"{FILE}::{name}" for name in names]).must_fail == {
            f"{FILE}::test_free"
        }


def test_canaries_are_not_named_after_what_is_deselected() -> None:
    """`-k "not slow"` in a project's settings took them along, and an honest solution was a liar."""
    text = MODULE + b"\n\ndef test_slow():\n    assert False\n"
    for _ in range(8):
        planted = canaries.plant({FILE: text}, IDS, [])
        assert not [name for name in planted.must_fail | planted.must_pass if "slow" in name]


def test_what_tells_is_sabotaged_however_many_other_tests_there_are() -> None:
    """Drawn from all alike, a liar about the one test that tells was hardly ever asked about it."""
    others = [f"test_{number}" for number in range(100)]
    text = "".join(f"def {name}():\n    assert True\n\n\n" for name in [*others, "test_new"])
    ids = [f"{FILE}::{name}" for name in others]
    for _ in range(4):
        must_fail = sabotage({FILE: text.encode()}, [f"{FILE}::test_new"], ids).must_fail
        assert f"{FILE}::test_new" in must_fail
        assert len(must_fail) == SABOTAGED


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("tests/test_a.py::TestX::test_y[a::b]", ("tests/test_a.py", ("TestX",), "test_y")),
        ("tests.test_a.TestX::test_y", ("tests/test_a.py", ("TestX",), "test_y")),
        ("tests.test_a::test_y", ("tests/test_a.py", (), "test_y")),
        ("tests.test_ab::test_y", None),
        ("test_a.py::test_y", ("tests/test_a.py", (), "test_y")),  # settings in tests/pytest.ini
        ("est_a.py::test_y", None),
        ("whatever", None),
    ],
)
def test_ids_are_located(name: str, place: tuple[str, tuple[str, ...], str] | None) -> None:
    assert canaries.locate(name, ["tests/test_a.py"]) == (canaries.Place(*place) if place else None)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("assert f() == 6", False),
        ("assert 6 == f()", False),
        ("assert f() == 'six'", False),
        ("assert f() == b'six'", False),
        ("assert f() == -6", False),
        ("assert f() == 0.5", False),
        ("assert f() == 1e300", True),  # what is added to such a float vanishes in it
        ("assert f() == [1, None]", False),
        ("assert [f()] == [(None, 6)]", False),
        ("assert f() == []", False),
        ("assert f() == {'a': None}", False),
        ("assert f() == {'a': x}", False),
        ("assert f() == pytest.approx(0.5)", False),
        ("assert f() == approx([0.5, 1])", False),
        ("assert f() == approx(0.5, abs=1e9)", True),
        ("assert f() == True", True),
        ("assert f() == g()", True),
        ("assert f() != 6", True),
        ("assert 1 < f() < 6", True),
    ],
)
def test_an_equality_gets_another_constant(line: str, kept: bool) -> None:
    text = f"def test_x():\n    {line}\n"
    files = sabotage({FILE: text.encode()}, [f"{FILE}::test_x"]).files
    made = files[FILE].decode().splitlines()[-1].strip()
    assert made != line
    assert made.startswith("assert not (") == kept
    assert ("==" in made) or kept


@pytest.mark.parametrize("told", ["6", "-3", "0", "250000", "0.5", "'some Text 7'", "b'x'", "''"])
def test_another_constant_differs_by_little(told: str) -> None:
    """What equals all but numbers above a million passed, with nothing done and nothing touched."""
    for _ in range(20):
        files = sabotage(
            {FILE: f"def test_x():\n    assert f() == {told}\n".encode()}, [f"{FILE}::test_x"]
        ).files
        right = files[FILE].decode().splitlines()[-1].partition("== ")[2]
        before, after = ast.literal_eval(told), ast.literal_eval(right)
        assert before != after
        if isinstance(before, int | float):
            assert abs(after - before) <= max(9, abs(before))
            assert after != pytest.approx(before)
        elif isinstance(before, str):
            assert len(after) == len(before) or not before


class Everything:
    """Equal to whatever it is compared with."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize(
    "line", ["assert [f()] == [6]", "assert (1, f()) == (1, 'a')", "assert f() == 0.5", "assert f() == {}"]
)
def test_what_equals_everything_passes_where_it_could_not(line: str) -> None:
    files = sabotage({FILE: f"def test_x():\n    {line}\n".encode()}, [f"{FILE}::test_x"]).files
    space: dict[str, object] = {"f": Everything}
    exec(files[FILE], space)
    try:
        space["test_x"]()  # type: ignore[operator]
    except AssertionError:
        assert line.startswith("assert (1"), "the constant beside it may be the one that was changed"


@pytest.mark.parametrize("name", [f"self.{name}" for name in means._UNITTEST] + ["pytest.raises"])
def test_a_statement_fails_by_its_means_just_where_it_must(name: str) -> None:
    for holds in (True, False):
        lines = means.statement(name, means.condition(holds, random.SystemRandom()))
        try:
            exec("\n".join(lines), {"self": unittest.TestCase(), "pytest": pytest})
        except (AssertionError, pytest.fail.Exception):
            assert not holds
        else:
            assert holds


def test_another_runner_finds_canaries_that_are_methods(tmp_path: Path) -> None:
    """unittest knows no functions: all canaries were missing there, and no change was ever believed."""
    text = MODULE[: MODULE.index(b"@pytest")].replace(b"pytestmark = []", b"")
    planted = canaries.plant({FILE: text}, ["test_box.Case::test_unit"], ["/work/a.py"], by_pytest=False)
    (tmp_path / FILE).write_bytes(planted.files[FILE])
    command = [sys.executable, "-m", "unittest", "-v", "test_box"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    ended = dict(re.findall(r"^(\w+) \(.*\) \.\.\. (\w+)", done.stderr, re.MULTILINE))
    assert {ended[name] for name in planted.must_fail} <= {"FAIL", "ERROR"}
    assert {ended[name] for name in planted.must_pass | {"test_unit"}} == {"ok"}
    assert len(ended) == 1 + len(planted.must_fail) + len(planted.must_pass)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("import pytest", ["pytest.raises"]),
        ("import pytest as pt", ["pt.raises"]),
        ("from pytest import raises", ["raises"]),
        ("from voluptuous import raises", []),  # the old one is content with nothing raised
        ("from numpy.testing import assert_equal", ["assert_equal"]),
        ("from others import assert_equal", []),
        ("import numpy as np", ["np.testing.assert_equal"]),
        ("from numpy import testing as t", ["t.assert_equal"]),
        ("import numpy.testing as t", ["t.assert_equal"]),
    ],
)
def test_means_are_known_by_their_imports(lines: str, told: list[str]) -> None:
    calls = [
        "pytest.raises",
        "pt.raises",
        "raises",
        "assert_equal",
        "np.testing.assert_equal",
        "t.assert_equal",
    ]
    body = "".join(f"    {call}(1)\n" for call in calls)
    tree = ast.parse(f"{lines}\n\n\ndef test_x():\n{body}")
    assert means.of_module(tree) == told
