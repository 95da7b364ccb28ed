"""Which file of a commit became which."""

from __future__ import annotations

from collections import Counter

from cursorbench.history.branch import Changed
from cursorbench.history.renames import Renames
from tests.cursorbench.history.gits import text


def renames(files: dict[str, tuple[str, str]], reads: Counter[str] | None = None) -> Renames:
    """Of files by path: text before and after, "" for none. A text stands for its blob."""

    def read(blob: str) -> str:
        if reads is not None:
            reads[blob] += 1
        return blob

    return Renames([Changed("c", path, *sides) for path, sides in files.items()], read)


def test_the_same_file_comes_before_a_like_one_and_the_same_base_name_before_others() -> None:
    some, most = text("one", "two", "three"), text("one", "two", "four")
    found = renames({"a.py": (some, ""), "b.py": ("", some), "c/a.py": ("", some), "d.py": ("", most)})
    assert found.to("a.py") == "c/a.py"
    assert [getattr(found.of(path), "path", None) for path in ("c/a.py", "b.py", "d.py")] == [
        "a.py",
        None,
        None,
    ]


def test_half_of_the_lines_are_enough_and_less_is_not() -> None:
    half, less = text("one", "two", "5", "6"), text("one", "5", "6", "7")
    old = text("one", "two", "three", "four")
    assert renames({"a.py": (old, ""), "b.py": ("", half)}).to("a.py") == "b.py"
    found = renames({"a.py": (old, ""), "b.py": ("", less), "e.py": ("", "")})
    assert (found.to("a.py"), found.of("b.py"), found.of("a.py"), found.to("b.py")) == ("", None, None, "")


def test_every_file_of_a_large_move_is_read_once() -> None:
    files = {}
    for n in range(300):
        lines = [f"line_{n}_{m}" for m in range(9)]
        files |= {f"old/{n}": (text("{", *lines), ""), f"new/{n}": ("", text("{", *lines, "more"))}
    reads: Counter[str] = Counter()
    found = renames(files, reads)
    assert all(found.to(f"old/{n}") == f"new/{n}" for n in range(300))
    before = [found.of(f"new/{n}") for n in range(300)]
    assert [was and was.path for was in before] == [f"old/{n}" for n in range(300)]
    assert set(reads.values()) == {1}


def test_in_a_move_of_thousands_each_file_is_the_one_of_its_place() -> None:
    """A folder of packages that is moved, with one line of each rewritten, and copies that are alike."""
    files: dict[str, tuple[str, str]] = {}
    for n in range(1_500):
        old = text(f"name = {n}", "import common", "export default common", "}", "// one")
        new = old.replace("one", "two") if n % 2 else old
        files |= {f"p{n}/index.ts": (old, ""), f"src/p{n}/index.ts": ("", new)}
        files |= {f"p{n}/init.ts": ("// same", ""), f"src/p{n}/init.ts": ("", "// same")}
    found = renames(files)
    for n in (0, 7, 8, 1_498, 1_499):
        for name in ("index.ts", "init.ts"):
            was, to = f"p{n}/{name}", f"src/p{n}/{name}"
            before = found.of(to)
            assert (found.to(was), before and before.path) == (to, was)


def test_of_files_with_the_same_text_it_is_the_one_of_the_nearest_path() -> None:
    """By where it is, not by the alphabet; the file of its own place has another text."""
    some, other, half = text("one", "two"), text("three", "four"), text("one", "five")
    gone, places = {"lib/shop/x.py": (some, "")}, ("a/y.py", "z/x.py")
    taken = {"q/shop/x.py": ("", other)}
    assert renames({**gone, **taken, **dict.fromkeys(places, ("", some))}).to("lib/shop/x.py") == "z/x.py"
    assert renames({**gone, **taken, **dict.fromkeys(places, ("", half))}).to("lib/shop/x.py") == "z/x.py"
    assert renames(gone | taken).to("lib/shop/x.py") == "", "no line of it"
