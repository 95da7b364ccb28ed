"""What was written, by hand: lines, comments, functions, terminals."""

from __future__ import annotations

import pytest

from stages.distill.signals.edits import Change
from stages.distill.signals.written import Written, comment_chars, functions_in, terminal_only, total


def change(path: str, before: str, after: str) -> Change:
    return Change(path, before, after, whole=True, undone=False)


def test_lines_comments_and_functions_of_a_change() -> None:
    after = '"""Doc."""\n\n\ndef area(w, h):\n    # long thought\n    return w * h  # why\n\n\nX = 1\n'
    found = total([change("a.py", "X = 1\nY = 2\n", after)])
    assert found == Written(
        lines_added=4,  # docstring, def, comment, return
        lines_deleted=1,  # Y
        chars=len('"""Doc."""') + len("defarea(w,h):") + len("#longthought") + len("returnw*h#why"),
        comment_chars=len('"""Doc."""') + len("#longthought") + len("#why"),
        functions=1,
        function_lines=3,
    )


def test_prose_has_no_comments_and_a_moved_line_is_not_written() -> None:
    assert total([change("README.md", "", "# Title\ntext\n")]) == Written(lines_added=2)
    assert total([change("a.py", "a = 1\nb = 2\n", "b = 2\na = 1\n")]) == Written()


@pytest.mark.parametrize(
    ("family", "lines", "size"),
    [
        ("#", ["#!/bin/sh", "x = '#no'  # yes"], 4),
        ("#", ['"""One', "two", '"""', "x = 3"], 3 + 3 + 3 + 3),
        ("//", ["/* a", " * b", " */", "int x; // c", "int *p = a / b;"], 3 + 2 + 2 + 3),
        ("//", ["/* a", "so it is", "", "*/", "int x;", "/* b */", "y();"], 3 + 6 + 2 + 5),
        ("//", ["  /**", "   why", "   */ f();", "g();"], 3 + 3 + 6),
        ("//", ["/* of another year", "int x;", "int y;"], 15),  # the lines behind it are not among these
        ("--", ["--[[ a", "so it is", "]]", "x = 1"], 5 + 6 + 2),
        ("#", ['r"""One', "two", '"""', "x = 3"], 7 + 3 + 3),
        ("--", ["-- why", "select 1 -- c", "x--"], 5 + 3),
    ],
)
def test_comment_marks(family: str, lines: list[str], size: int) -> None:
    assert comment_chars(lines, family) == size


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["def a():", "    x = 1", "    return x", "y = 2", "async def b(): pass"], (2, 4)),
        (["class A:", "    def m(self):", "        pass"], (1, 2)),
        (["export function f(a) {", "  return a;", "}"], (1, 2)),
        (["const f = async (a) => {", "  return a;", "};"], (1, 2)),
        (["public static int f(int a) {", "    return a;", "}", "if (x) {", "  y();"], (1, 2)),
        (["func (s *S) Do(x int) error {", "\treturn nil"], (1, 2)),
        (["pub fn f() -> u8 {", "    1"], (1, 2)),
        (["    return x", "else {"], (0, 0)),
    ],
)
def test_functions(lines: list[str], expected: tuple[int, int]) -> None:
    assert functions_in(lines) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["bash", "run_terminal_cmd", "execCommand"], True),
        (["Bash", "edit_file"], False),
        (["push_change"], False),
        ([], False),
    ],
)
def test_terminals_by_their_names(names: list[str], expected: bool) -> None:
    assert terminal_only([{"name": name} for name in names]) is expected


@pytest.mark.parametrize(
    "line", ["static " * 30_000, "pub " * 30_000, "x" + " /* " * 30_000, "const " * 30_000]
)
def test_a_line_made_to_take_hours(line: str) -> None:
    """The patterns went over it once for each of its words: one such line held up `rtrl distill`."""
    assert functions_in([line]) == (0, 0)
    assert comment_chars([line], "//") == 0
