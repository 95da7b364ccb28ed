"""Which files of a folder declare lm-eval tasks, read as the harness reads them.

Of two files with one name it takes the first, and one that it cannot read it passes over, both without a word
that anybody sees. Not here: running a task (`lm_eval_task.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cursorbench.errors import UsageError


def require_one(task: str, folder: Path) -> None:
    """Raise UsageError (exit 2) where two files below a folder declare a task of this name, or one declares
    a metric of which nobody knows how documents are summed up, or whether more of it is better."""
    every = _read(folder).items()
    found = {path: told for path, told in every if isinstance(told, Mapping) and _name(told) == task}
    if len(found) > 1:
        first, second = (path.relative_to(folder) for path in [*found][:2])
        raise UsageError(
            f"lm-eval task {task!r} is declared in {first} and in {second}", hint="one name, one task"
        )
    for told in found.values():
        _require_whole(task, told.get("metric_list"))


def _require_whole(task: str, metrics: object) -> None:
    """The harness knows both of its own metrics alone; without a word it takes more of others for better."""
    from lm_eval.api import metrics as _  # noqa: F401 - fills the registries
    from lm_eval.api.registry import higher_is_better_registry, metric_agg_registry

    known = {"aggregation": metric_agg_registry, "higher_is_better": higher_is_better_registry}
    for metric in metrics if isinstance(metrics, list) else ():
        name = metric.get("metric") if isinstance(metric, dict) else None
        lacks = [key for key, own in known.items() if name and key not in metric and name not in own]
        if lacks:
            raise UsageError(
                f"lm-eval task {task!r}: its metric {name!r} has no {' and no '.join(lacks)}",
                hint="aggregation: mean, and higher_is_better: true or false, beside it in metric_list",
            )


def unread(folders: Sequence[Path]) -> str:
    """Why a task may not have been found: the first file that cannot be read; "" where all can."""
    for folder in folders:
        for path, told in _read(folder).items():
            if isinstance(told, str):
                return f"{path.relative_to(folder)} cannot be read: {told}"
        if other := next(folder.glob("**/*.yml"), None):
            return f"{other.relative_to(folder)} is not looked at: lm-eval reads .yaml"
    return ""


def _name(told: Mapping[str, Any]) -> object:
    return None if "group" in told else told.get("task")


def _read(folder: Path) -> dict[Path, Mapping[str, Any] | str]:
    """Settings by file, in the harness's order; in the place of what cannot be read what is wrong with it."""
    from lm_eval.tasks._yaml_loader import load_yaml

    found: dict[Path, Mapping[str, Any] | str] = {}
    for path in sorted(folder.glob("**/*.yaml"), key=Path.as_posix):
        if {"__pycache__", ".ipynb_checkpoints"}.isdisjoint(path.parts):
            try:
                told = load_yaml(path, resolve_func=False, recursive=True)
                found[path] = told if isinstance(told, dict) else {}
            except Exception as error:  # noqa: BLE001 - whatever a reader of YAML raises
                found[path] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return found
