"""The page: foreign text stays text, nothing is asked of the network, and no other file is replaced."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.errors import UsageError
from stages.report import plots, shown
from stages.report.build import build
from stages.report.chosen import resolve
from stages.report.figures import FIGURES, Reading
from stages.report.page import MARK, render, write
from stages.report.populations import Group
from tests.stages.report.reported import SECRET, of_logs

SHARE = FIGURES[0]


def group(label: str, value: float | None, low: float | None = None, high: float | None = None) -> Group:
    return Group(label, 0, 9, 9, {SHARE.name: Reading(value, low, high, 9, 9, 9)})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    workspace, store = of_logs(tmp_path_factory.mktemp("page"))
    return render(build(workspace, store, resolve(store, None, "auto")))


def test_foreign_text_is_escaped_and_redacted(page: str) -> None:
    assert "&lt;b&gt;add&lt;/b&gt; a cart" in page
    assert "<b>add</b>" not in page
    assert SECRET not in page
    assert "[redacted:" in page
    assert re.search(r"is masked\s+\(in them as a whole: [3-6] api_key\)", page)


def test_the_page_refers_to_nothing_outside_and_runs_nothing(page: str) -> None:
    assert not re.findall(r"<(?:script|link|img|iframe|object|embed)\b|@import|\bon\w+=", page)
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)"', page))
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= set(re.findall(r"url\((#[^)]*)\)", page))
    assert "http://" not in page
    assert "https://" not in page
    assert len(page) < 2_000_000
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_same_report_is_the_same_page(tmp_path: Path) -> None:
    workspace, store = of_logs(tmp_path, sessions=6)
    pages = {render(build(workspace, store, resolve(store, None, "auto"))) for _ in range(2)}
    assert len(pages) == 1


def test_a_plot_leaves_labels_alone_and_takes_the_pages_colours() -> None:
    drawn = plots.by_group(
        SHARE, "agent", [group("v1.23456 $x$ <i>", 0.5, 0.4, 0.6), group('模型 id="a"', 0.25)]
    )
    assert "v1.23456 $x$ &lt;i&gt;" in drawn
    alike = [group(f"openrouter/anthropic/claude-{name}", 0.5) for name in ("3.5-sonnet", "3-haiku")]
    names = re.findall(r">(openrouter[^<]+)<", plots.by_group(SHARE, "model", alike))
    assert names == ["openrouter/…e-3.5-sonnet", "openrouter/…aude-3-haiku"]
    assert 'id="a"' in drawn.replace("&quot;", '"')
    assert {"var(--series)", "currentColor", "var(--card)"} <= set(
        re.findall(r"var\(--\w+\)|currentColor", drawn)
    )
    assert not re.search(r"#0a0b0c|#010203|#0d0e0f|#101112|font-family", drawn)


def test_a_plot_of_one_point_or_of_what_is_not_told_is_none() -> None:
    assert plots.by_group(SHARE, "agent", [group("a", 0.5), group("b", None)]) == ""
    assert plots.over_time(SHARE, "day", [group("2026-03-01", 0.5)]) == ""
    assert plots.over_time(SHARE, "month", [group("2026-03", 0.5), group("2026-04", 0.25)])
    assert plots.over_time(SHARE, "experience", [group("v1", 0.5, 0.4, None), group("v2", 0.25)])


def test_plots_over_time_have_one_axis_of_time() -> None:
    """Beside one another, March is above March also where January is not told."""
    months = [group(f"2026-0{n}", value) for n, value in enumerate((0.5, 0.5, 0.5, 0.25), 1)]
    some = [group("2026-01", None), *months[1:]]
    whole, part = (
        re.findall(r'<use [^>]*x="([\d.]+)"', plots.over_time(SHARE, "month", w)) for w in (months, some)
    )
    assert set(part) <= set(whole)


def test_numbers_as_people_read_them() -> None:
    reading = Reading(0.1623, 0.113, 0.2117, 579, 579, 270)
    assert shown.cell(reading, SHARE) == "16.2 % [11.3-21.2] n=579"
    assert shown.interval(reading, SHARE) == "11.3 to 21.2 %"
    assert shown.cell(Reading(0.029, 2e-9, 0.433, 8, 8, 6), SHARE) == "2.9 % [0.0-43.3] n=8"
    ratio, number = (replace(SHARE, unit=unit) for unit in ("ratio", "number"))
    told = [(0.0019, SHARE), (0.00001, SHARE), (0.0, SHARE), (0.00042, ratio), (52.25, ratio), (2e7, ratio)]
    told += [(-0.0, number), (0.00003, number), (-0.1416, number), (123456.7, number)]
    assert [shown.number(*one) for one in told] == [
        *("0.19 %", "0.001 %", "0.0 %", "0.00042x", "52.25x", "20000000x"),
        *("0.000", "3e-05", "-0.142", "123457"),
    ]
    assert [shown.many(n, "user") for n in (1, 1351)] == ["1 user", "1,351 users"]
    untold = Reading(None, None, None, 0, 4, 0, "not measured; 1 of 4 undone or refused (25.0%)")
    assert shown.cell(untold, SHARE) == shown.headline_value(untold, SHARE) == "not measured"
    assert shown.remark(untold) == "1 of 4 undone or refused (25.0%)"
    none = Reading(0.0, 0.0, 0.4, 4, 4, 4, "none is told: a source that never tells looks the same")
    assert shown.cell(none, SHARE) == "none told n=4"
    handful = Reading(1.0, None, None, 4, 4, 4, "4 users: too few for an interval")
    assert shown.cell(handful, SHARE) == "too few (4)"
    assert shown.span(0, 0) == "no time told"


@pytest.mark.parametrize("there", ["", "my notes", "<html>another page</html>"])
def test_what_is_no_report_is_not_replaced(tmp_path: Path, there: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(there)
    with pytest.raises(UsageError, match="is no report"):
        write(path, MARK)
    assert path.read_text() == there


def test_a_report_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    write(path, f"{MARK} one")
    write(path, f"{MARK} two")
    assert path.read_text() == f"{MARK} two"
    assert path.stat().st_mode & 0o777 == 0o600

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match="disk is full"):
        write(path, f"{MARK} three")
    assert path.read_text() == f"{MARK} two"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_links_and_folders_are_not_replaced_and_a_missing_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text(MARK)
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    for path in (tmp_path, tmp_path / "link.html", tmp_path / "nowhere" / "report.html"):
        with pytest.raises(UsageError):
            write(path, MARK)
