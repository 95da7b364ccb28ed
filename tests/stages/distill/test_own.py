"""A team's own signals: functions that a spec names, their source on record."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import traceback
from pathlib import Path

import pytest

from stages.distill import own
from stages.distill.facts import Episode
from stages.distill.spec import parse
from stages.errors import IntegrityError, LateError, UsageError
from stages.records import Event

SPEC = """
schema = "rtrl-reward/1"
name = "ours"
[signals.shouting]
function = "{function}"
weight = -0.5
unknown = 0.0
"""
SOURCE = """
def shouting(seen):
    letters = [c for c in seen.answer if c.isalpha()]
    return sum(c.isupper() for c in letters) / len(letters) if letters else None

def events(seen):
    return len(seen.events)

def bad(seen):
    return "much"

def worse(seen):
    return seen.nothing

def quoting(seen):
    try:
        {}[seen.request]
    except KeyError as error:
        raise ValueError(seen.answer) from error

def leaving(seen):
    raise SystemExit(seen.request)

def beyond(seen):
    return 1e308

def infinite(seen):
    return float("-inf")

def no_number(seen):
    return float("nan")

def whether(seen):
    return "x" in seen.answer

def numpys(seen):
    import numpy as np
    return {"a": np.float32(0.5), "b": np.int64(2), "c": np.float16(3)}[seen.answer]

async def later(seen):
    return 1.0

def huge(seen):
    return 10 ** 400

def interrupted(seen):
    raise KeyboardInterrupt

def late(seen):
    from stages.errors import LateError
    raise LateError("distill was stopped", hint="")

def stopped(seen):
    raise SystemExit(143)

def spoiling(seen):
    for event in seen.events:
        event.data.clear()
    for row in seen.generations:
        row["tool_calls"].clear()
    return len(seen.events)

calls = []

def counting(seen):
    calls.append(1)
    return len(calls)

def two(seen, more):
    return 0
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / f"signals_{tmp_path.name}.py").write_text(SOURCE)
    return tmp_path


def signal(root: Path, name: str) -> own.OwnSignal:
    (found,) = own.load(parse(SPEC.format(function=f"signals_{root.name}:{name}"), "ours"), root)
    return found


def episode(answer: str) -> Episode:
    event = Event(id="e", key_id="k", generation_id="g", type="thumbs", at=2, wall=2, data={"value": 1})
    return Episode({"id": "episode-1"}, [], [event], "fix it", answer)


def test_its_values_are_numbers_or_not_known(root: Path) -> None:
    assert signal(root, "shouting").values([episode("ABcd"), episode("")]) == [0.5, None]
    assert signal(root, "events").values([episode("x")]) == [1.0]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("bad", "no finite number"),
        ("worse", "raised AttributeError in line 13 of its module for episode episode-1"),
        ("quoting", "ValueError in line 19 of its module"),
        ("leaving", "SystemExit in line"),
        ("huge", "OverflowError for"),
        ("beyond", r"gave a number beyond 1e\+30"),
        ("infinite", r"gave a number beyond 1e\+30"),
        ("no_number", "no finite number but float"),
        ("whether", "no finite number but bool"),
        ("counting", "another number when asked again"),
    ],
)
def test_a_function_that_fails_names_the_episode(root: Path, name: str, what: str) -> None:
    words = " ".join(("my", "words"))  # a traceback shows lines of this file
    with pytest.raises(UsageError, match=what) as caught:
        signal(root, name).values([episode(words)])
    assert "episode-1" in caught.value.message
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    told = "".join(traceback.format_exception(caught.value)) + caught.value.message + caught.value.hint
    assert words not in told
    assert "fix it" not in told


def test_numbers_of_numpy_are_numbers(root: Path) -> None:
    """A mean of float32 or a sum of int64 was refused as no finite number."""
    found = signal(root, "numpys").values([episode("a"), episode("b"), episode("c")])
    assert [(type(value), value) for value in found] == [(float, 0.5), (float, 2.0), (float, 3.0)]


def test_what_a_function_does_to_its_episode_is_undone(root: Path) -> None:
    """The next function, a shipped one for instance, saw what was left of it."""
    told = episode("x")
    kept = Episode(told.row, [{"tool_calls": [{"name": "bash"}]}], told.events, told.request, told.answer)
    assert signal(root, "spoiling").values([kept]) == [1.0]
    assert kept.events[0].data == {"value": 1}
    assert kept.generations[0]["tool_calls"] == [{"name": "bash"}]


@pytest.mark.parametrize(
    ("name", "ends"), [("interrupted", KeyboardInterrupt), ("stopped", SystemExit), ("late", LateError)]
)
def test_what_ends_the_run_is_no_failure_of_a_function(
    root: Path, name: str, ends: type[BaseException]
) -> None:
    with pytest.raises(ends):
        signal(root, name).values([episode("x")])


@pytest.mark.parametrize(
    "function", ["no_such_module:f", "json:no_such", "{mine}:two", "{mine}:later", "leaves_at_once:f"]
)
def test_it_is_checked_when_the_spec_is_resolved(root: Path, function: str) -> None:
    (root / "leaves_at_once.py").write_text("import sys\nsys.exit(3)\n")
    spec = parse(SPEC.format(function=function.format(mine=f"signals_{root.name}")), "ours")
    with pytest.raises(UsageError, match="cannot be used"):
        own.load(spec, root)


def test_a_signal_that_comes_while_a_module_is_imported_ends_the_run(root: Path) -> None:
    (root / "terminated.py").write_text("raise SystemExit(143)\n")
    with pytest.raises(SystemExit):
        own.load(parse(SPEC.format(function="terminated:f"), "ours"), root)


def test_two_workspaces_of_a_process_have_modules_of_their_own(tmp_path: Path) -> None:
    spec = parse(SPEC.format(function=f"ours_{tmp_path.name}:shouting"), "ours")
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / f"ours_{tmp_path.name}.py"
        path.write_text(f"def shouting(seen):\n    return {number}\n")
        (signal,) = own.load(spec, folder)
        found.append(signal)
        shutil.rmtree(folder)
    assert [one.values([episode("A")]) for one in found] == [[1.0], [2.0]]
    assert found[0].digest != found[1].digest


@pytest.mark.parametrize(
    "source",
    [
        "import {more}\n\ndef shouting(seen):\n    return {more}.NUMBER\n",
        "def shouting(seen):\n    import {more}\n    return {more}.NUMBER\n",
    ],
)
def test_so_have_the_modules_that_these_import(tmp_path: Path, source: str) -> None:
    """The second workspace was measured by what the first one's module imports, and what a function imports
    when it is called was not found at all."""
    found = []
    for number in (1, 2):
        folder, more = tmp_path / str(number), f"more_{tmp_path.name}"
        folder.mkdir()
        (folder / f"{more}.py").write_text(f"NUMBER = {number}\n")
        (folder / f"mine_{number}_{tmp_path.name}.py").write_text(source.format(more=more))
        spec = parse(SPEC.format(function=f"mine_{number}_{tmp_path.name}:shouting"), "ours")
        found += own.load(spec, folder)
    assert [one.values([episode("A")]) for one in (*found, *found)] == [[1.0], [2.0], [1.0], [2.0]]


def test_a_module_that_was_edited_in_a_process_that_lives_on_is_read_anew(root: Path) -> None:
    """The new source was recorded, and the old one executed."""
    before = signal(root, "shouting")
    path = root / f"signals_{root.name}.py"
    path.write_text(SOURCE.replace("if letters else None", "if letters else 0.25"))
    after = signal(root, "shouting")
    assert before.digest != after.digest
    assert after.values([episode("ABcd"), episode("")]) == [0.5, 0.25]
    assert signal(root, "counting").call is signal(root, "counting").call  # executed once, not at every look


def test_what_an_edit_took_out_of_a_module_is_gone(root: Path) -> None:
    """A function that was renamed was found all the same, and the digest was that of a source without it."""
    signal(root, "shouting")
    path = root / f"signals_{root.name}.py"
    path.write_text(SOURCE.replace("def shouting", "def loud"))
    with pytest.raises(UsageError, match="shouting cannot be used: AttributeError"):
        signal(root, "shouting")
    assert signal(root, "loud").values([episode("ABcd")]) == [0.5]


def test_of_an_edit_that_cannot_be_executed_nothing_stays(root: Path) -> None:
    """Once it was undone, what it had defined before it failed was executed as the source from before."""
    before = signal(root, "shouting")
    path = root / f"signals_{root.name}.py"
    path.write_text(SOURCE + "def shouting(seen):\n    return 99\nraise ValueError\n")
    with pytest.raises(UsageError, match="ValueError"):
        signal(root, "shouting")
    path.write_text(SOURCE)
    after = signal(root, "shouting")
    assert (after.digest, after.values([episode("ABcd")])) == (before.digest, [0.5])
    assert before.values([episode("ABcd")]) == [0.5]


def test_a_module_that_another_of_its_name_hides_is_said_to_be(root: Path) -> None:
    """`calendar:month` of the workspace was that of Python's calendar, which is loaded already."""
    (root / "calendar.py").write_text("def month(seen):\n    return 1.0\n")
    for function in ("month", "timegm"):
        with pytest.raises(UsageError, match="another module is called calendar, too"):
            own.load(parse(SPEC.format(function=f"calendar:{function}"), "test"), root)
    (root / "calendar.py").unlink()
    assert own.load(parse(SPEC.format(function="calendar:timegm"), "test"), root)


def test_a_package_that_was_edited_keeps_its_modules(root: Path) -> None:
    name = f"package_{root.name}"
    (root / name).mkdir()
    (root / name / "more.py").write_text("NUMBER = 3\n")
    found = []
    for source in ("", "OTHER = 1\n"):
        text = f"import {name}.more\n{source}def shouting(seen):\n    return {name}.more.NUMBER\n"
        (root / name / "__init__.py").write_text(text)
        (one,) = own.load(parse(SPEC.format(function=f"{name}:shouting"), "ours"), root)
        found.append((one.digest, one.values([episode("A")])))
    assert [values for _, values in found] == [[3.0], [3.0]]
    assert found[0][0] != found[1][0]


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("{0}", {"{0}": "from {0}_b import NUMBER", "{0}_b": "NUMBER = 3"}),
        ("{0}", {"{0}": "import {0}_b", "{0}_b": "import {0}_c", "{0}_c": "NUMBER = 3"}),
        ("{0}", {"{0}": "", "{0}_b": "NUMBER = 3"}),  # in the function
        ("{0}.a", {"{0}/__init__": "", "{0}/a": "from . import b", "{0}/b": "NUMBER = 3"}),
        ("{0}.a", {"{0}/__init__": "NUMBER = 3", "{0}/a": "from {0} import NUMBER"}),
    ],
)
def test_what_its_module_imports_of_the_teams_is_part_of_its_source(
    root: Path, module: str, files: dict[str, str]
) -> None:
    """A repeated run gave the old experience after an edit there, and `--from-run` another one, unsaid."""
    name = f"mine_{root.name}"
    told = {"from . import b": "b.NUMBER", "import {0}_b": "{0}_b.{0}_c.NUMBER"}
    found = []
    for edit, number in enumerate((3, 4, 3)):
        for file, text in files.items():
            path = root / f"{file.format(name)}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(name).replace("3", str(number)) + "\n")
            if file == module.replace(".", "/"):
                value = told.get(text, "NUMBER").format(name)
                more = "" if text else f"    from {name}_b import NUMBER\n"
                with path.open("a") as written:
                    written.write(f"def shouting(seen):\n{more}    return {value}\n")
            os.utime(path, (edit, edit))  # Python takes an edit of the same second and size for none
        (one,) = own.load(parse(SPEC.format(function=f"{module.format(name)}:shouting"), "ours"), root)
        found.append((one.digest, one.values([episode("A")])))
    assert [values for _, values in found] == [[3.0], [4.0], [3.0]]
    assert found[0][0] == found[2][0] != found[1][0]


def test_a_shipped_signals_source_is_its_modules_alone(root: Path) -> None:
    """rtrl's own version is part of a run anyway; a line's baselines are kept by this digest."""
    habit = "stages.distill.habits:terminal_only"
    (one,) = own.load(parse(SPEC.format(function=habit), "ours"), root)
    source = Path(str(sys.modules["stages.distill.habits"].__file__)).read_bytes()
    assert one.digest == f"sha256:{hashlib.sha256(source).hexdigest()}"


def test_other_source_than_recorded_is_refused(root: Path) -> None:
    found = signal(root, "shouting")
    own.require_same([found], {"shouting": {"function": found.function, "digest": found.digest}})
    with pytest.raises(IntegrityError, match="changed"):
        own.require_same([found], {"shouting": {"function": found.function, "digest": "sha256:0"}})


@pytest.mark.parametrize("name", ["reward", "edit_persistence", "asking_price", "no name", "term_x"])
def test_names_that_are_taken_or_none(name: str) -> None:
    text = SPEC.replace("signals.shouting", f'signals."{name}"').format(function="m:f")
    with pytest.raises(UsageError):
        parse(text, "ours")
