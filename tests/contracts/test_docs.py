"""The documentation of the command line is what the command line says."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from cursorbench import errors as base_errors
from rtrl_cli.lazy import TABLE
from stages import errors
from stages.config import Settings
from stages.gateway import logs
from stages.interrupts import SIGNALLED

ROOT = Path(__file__).resolve().parents[2]
README, CHANGELOG = ROOT / "README.md", ROOT / "CHANGELOG.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli", "settings"])
def test_generated_pages_are_up_to_date(generator: ModuleType, name: str) -> None:
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == getattr(generator, f"{name}_page")(), "run `python scripts/make_docs.py`"


def test_every_setting_says_what_it_is(generator: ModuleType) -> None:
    for section, field in Settings.model_fields.items():
        for name, one in generator.model_of(field.annotation)[0].model_fields.items():
            assert one.description, f"{section}.{name}"


def test_every_error_has_its_exit_code_in_the_table(generator: ModuleType) -> None:
    codes = {int(code) for code in re.findall(r"\| (\d+) \|", generator.HEAD)}
    found = {
        one.code
        for module in (base_errors, errors)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, base_errors.RtrlError)
    }
    assert found <= codes
    assert {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14} == codes


def test_every_kind_of_error_stands_at_its_exit_code(generator: ModuleType) -> None:
    rows = dict(re.findall(r"^- \*\*([\d, ]+)\*\* \((`[^)]+`)\):", generator.HEAD, re.MULTILINE))
    told = {code: set(re.findall("`([^`]+)`", kinds)) for code, kinds in rows.items()}
    assert told.pop("1") == {"bug"}
    assert told.pop(", ".join(map(str, SIGNALLED))) == set(SIGNALLED.values())
    for code, kinds in told.items():
        assert kinds <= {one.kind for one in _errors() if one.code == int(code)}, code
    for one in _errors():
        if one.__module__ in (base_errors.__name__, errors.__name__) and one is not errors.RtrlError:
            assert one.kind in told[str(one.code)], one.__name__


def _errors(base: type[errors.RtrlError] = errors.RtrlError) -> set[type[errors.RtrlError]]:
    """All that a loaded module derives; of the stages those with a kind of their own are loaded here."""
    for module in ("exclusion", "forget.names", "shadow.run", "spool.damage", "spool.journal"):
        importlib.import_module(f"stages.{module}")
    importlib.import_module("stages.engine.identity")
    return {base}.union(*map(_errors, base.__subclasses__()))


def test_every_command_has_a_module_and_a_help() -> None:
    for name, entry in TABLE.items():
        place = ROOT / "rtrl_cli" / "commands" / entry.module
        assert place.with_suffix(".py").exists() or (place / "__init__.py").exists(), name
        assert entry.help.endswith("."), name


def _anchors(page: Path) -> set[str]:
    """What headings are called in links, as GitHub makes it of them."""
    plain = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_links_of_readme_changelog_and_docs_lead_somewhere() -> None:
    for page in (README, CHANGELOG, *PAGES):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                there = page.parent / target if target else page
                assert there.exists(), f"{page.name} -> {target}"
                if anchor and there.suffix == ".md":
                    assert anchor in _anchors(there), f"{page.name} -> {target}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8")))
    assert {str(page.relative_to(ROOT)) for page in PAGES} <= linked


def test_every_event_of_the_log_is_told() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    table = page[page.index("| event | |") :].split("\n\n")[0]
    told = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in row.split("`")[1::2]
    }
    made = {
        name
        for path in (ROOT / "stages").rglob("*.py")
        for name in re.findall(r"\blogs\.event\(\s*\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert told == made | {
        logs.REQUEST,
        "message",
        "library",
    }  # the latter two are of lines that come as texts
