"""Findings as real tools write them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness import linting
from cursorbench.harness.linting import Finding, findings
from cursorbench.harness.results import RefusedError
from cursorbench.harness.sandboxed import SandboxPlace
from tests.cursorbench.harness.places import Unboxed

RUFF = """a.py:1:8: F401 [*] `os` imported but unused
./sub/b.py:12:1: E302 Expected 2 blank lines, found 1
Found 2 errors.
[*] 1 fixable with the `--fix` option.
"""
MYPY = """a.py:3: error: Incompatible return value type (got "str", expected "int")  [return-value]
a.py:3: note: See https://mypy.example/x
Found 1 error in 1 file (checked 2 source files)
"""


def test_ruff_and_mypy() -> None:
    assert findings(RUFF) == [
        Finding("a.py", 1, 8, "F401 [*] `os` imported but unused"),
        Finding("sub/b.py", 12, 1, "E302 Expected 2 blank lines, found 1"),
    ]
    assert [(one.line, one.column, one.text[:6]) for one in findings(MYPY)] == [
        (3, 0, "error:"),
        (3, 0, "note: "),
    ]
    assert [str(one) for one in findings(RUFF)] == [
        "a.py:1:8: F401 [*] `os` imported but unused",
        "sub/b.py:12:1: E302 Expected 2 blank lines, found 1",
    ]


@given(st.text(alphabet="ab/:1 \n\x00", max_size=60))
def test_any_output_can_be_read(output: str) -> None:
    for one in findings(output):
        assert one.line >= 0
        assert one.text.strip()


def place_in(folder: Path) -> SandboxPlace:
    sandbox: Any = Unboxed(folder)
    return SandboxPlace(sandbox, python=sys.executable)


def test_the_tools_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n\n\ndef f() -> int:\n    return 'x'\n")
    (tmp_path / "-v.py").write_text("import os\n")
    ruff = (
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--output-format=concise",
        "{path}",
    )
    found = linting.run(place_in(tmp_path), (ruff,))
    assert [(one.path, one.line) for one in found.findings] == [("-v.py", 1), ("a.py", 1)]
    assert found.failures == ()
    alone = linting.run(place_in(tmp_path), (ruff,), "-v.py")
    assert [one.path for one in alone.findings] == ["-v.py"], "a file's name is no option"


def test_absolute_paths_are_those_of_the_workplace(tmp_path: Path) -> None:
    told = "printf '/work/a.py:1:2: x\\n/usr/lib/b.py:3:4: y\\n'; exit 1"
    found = linting.run(place_in(tmp_path), (("sh", "-c", told),))
    assert [one.path for one in found.findings] == ["a.py", "/usr/lib/b.py"]


def test_a_tool_that_fails_is_said(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    report = linting.run(place, (("sh", "-c", "echo broken; exit 2"), ("true",)))
    assert report == linting.Report((), ("sh ended with 2\nbroken",))
    with pytest.raises(RefusedError) as refused:
        linting.run(place, (("no-such-linter",),))
    assert refused.value.error == "not_available"
    with pytest.raises(RefusedError) as refused:
        linting.run(place, (("sleep", "99"),), limit_s=0.2)
    assert refused.value.error == "timeout"
