"""The page in headless Chromium: it asks nothing of the network, all of it shows, at both widths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
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


def test_names_and_texts_from_right_to_left_turn_nothing_round_around_them(
    browser: Any, tmp_path: Path
) -> None:
    """An Arabic repository had the separators and the day behind it from right to left: 21-10-2026."""
    found = build(*(made := of_logs(tmp_path)), resolve(made[1], None, "auto"))
    one = found.best[0]
    about = one.about | {"repository": "\u0645\u0633\u062a\u0648\u062f\u0639"}
    turned = replace(one, about=about, request="\u05ea\u05e7\u05df app.py", answer="Done.")
    write(tmp_path / "page.html", render(replace(found, best=[turned])))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    places = page.evaluate(
        """() => {
          const when = document.querySelector("#episodes article p br").previousSibling;
          const at = (from, to) => {
            const range = document.createRange();
            range.setStart(when, from); range.setEnd(when, to);
            return range.getBoundingClientRect().left;
          };
          const year = when.data.search(/\\d{4}-/);
          return [at(year, year + 4), at(year + 5, year + 7), at(year + 8, year + 10)];
        }"""
    )
    assert places == sorted(places)  # year, month, day
    texts = "[...document.querySelector('#episodes article').querySelectorAll('blockquote div')]"
    directions = f"{texts}.map(text => getComputedStyle(text).direction)"
    assert page.evaluate(directions) == ["rtl", "ltr"]
    page.close()


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
