"""A junit report as test ids with outcomes; the one place that says what a test's id is.

The id is pytest's node id (`tests/test_a.py::TestX::test_y[1]`) where the report names the file, as
pytest's does with `-o junit_family=xunit1`; else, and for tests that were generated in another file than
theirs, `classname::name` as the report has them. A report is untrusted: the tested code can write to it. Not
here: what is believed of it (`correctness.py`).
"""

from __future__ import annotations

from typing import Literal
from xml.etree import ElementTree

Outcome = Literal["passed", "failed", "error", "skipped"]

_WORST: tuple[Outcome, ...] = ("error", "failed", "skipped", "passed")
_CHILD: dict[str, Outcome] = {"error": "error", "failure": "failed", "skipped": "skipped"}


def read(report: bytes) -> dict[str, Outcome]:
    """Outcome by test id. A test that is there twice has its worst outcome.

    Raises:
        ValueError: no XML, no junit, or a document type declaration, which no test runner writes.
    """
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        raise ValueError("the report declares a document type")
    try:
        root = ElementTree.fromstring(report)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"the report is no XML: {error}") from error
    if root.tag not in ("testsuites", "testsuite"):
        raise ValueError(f"the report is no junit: it begins with <{root.tag[:40]}>")
    found: dict[str, Outcome] = {}
    for case in root.iter("testcase"):
        name = node_id(case.get("file", ""), case.get("classname", ""), case.get("name", ""))
        outcome = _outcome(case)
        found[name] = min(outcome, found.get(name, outcome), key=_WORST.index)
    return found


def node_id(file: str, classname: str, name: str) -> str:
    """The id of one `<testcase>`."""
    if not file:
        return f"{classname}::{name}" if classname else name
    stem = file.rpartition(".")[0] or file
    module = stem.replace("/", ".")
    if classname and classname != module and not classname.startswith(f"{module}."):
        return f"{classname}::{name}"  # made elsewhere: `file` is where the function stands, not the test
    classes = classname.removeprefix(module).removeprefix(".")
    return "::".join([file, *(part for part in classes.split(".") if part), name])


def _outcome(case: ElementTree.Element) -> Outcome:
    said = [_CHILD[child.tag] for child in case if child.tag in _CHILD]
    return min(said, key=_WORST.index) if said else "passed"
