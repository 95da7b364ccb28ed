"""The page in headless Chromium: it asks nothing of the network, all of it shows, at both widths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.report.build import build
from stages.report.chosen import resolve
from stages.report.page import render, write
from tests.stages.report.reported import of_logs

SECTIONS = ("headline", "time", "populations", "left-out", "episodes")


def chromium() -> str:
    """The browser. Skips without it, except with CI=true, where that fails."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is missing: scripts/setup installs it")
        pytest.skip("needs Chromium (scripts/setup installs it)")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    workspace, store = of_logs(root)
    write(root / "report.html", render(build(workspace, store, resolve(store, None, "auto"))))
    return root / "report.html"


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows(browser: Any, report: Path, tmp_path: Path, width: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=True
    )
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    assert asked == [report.as_uri()]
    assert said == []
    for name in SECTIONS:
        box = page.locator(f"section#{name}").bounding_box()
        assert box is not None, name
        assert (box["width"] > 300, box["height"] > 80) == (True, True), name
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().toJSON())"
    )
    assert len(sizes) >= 4
    assert all(size["width"] > 200 and size["height"] > 60 for size in sizes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "[...document.querySelectorAll('article .scroll')].map(e => e.scrollWidth - e.clientWidth)"
    assert set(page.evaluate(hidden)) == {0}  # the terms, which come last, are to be seen
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back, text = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert _light(back) > 0.9 if scheme == "light" else _light(back) < 0.15
    assert abs(_light(back) - _light(text)) > 0.6
    picture = tmp_path / "page.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000
    context.close()


def test_printed_it_is_dark_on_white_and_has_its_tables(browser: Any, report: Path) -> None:
    """They were folded up on paper, and of a dark page the text alone was printed, nearly white."""
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(report.as_uri())
    assert not page.locator("section#time table").is_visible()
    page.emulate_media(media="print")
    assert page.locator("section#time table").is_visible()
    assert _light(page.evaluate("getComputedStyle(document.body).color")) < 0.2
    context.close()


def test_the_page_needs_no_script(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.get_by_role("heading", name="How the agent does").is_visible()
    summary = page.locator("section#time summary")
    summary.click()
    assert page.locator("section#time table").is_visible()
    assert page.get_by_role("img", name="Plot of dissatisfied follow-up by week").is_visible()
    context.close()


def _light(colour: str) -> float:
    """Mean of the channels of `rgb(r, g, b)`, 0 to 1."""
    return sum(float(n) for n in colour[4:-1].split(",")[:3]) / 765
