"""The text model of `dissatisfied_followup` on owners it was not learnt from, and what it is compared with.

Leave one owner out: weights, calibration and threshold come from the other owners alone. Intervals: owners
drawn again with replacement, 2,000 times. Text alone: no click, interruption or repeated-request rule.
The shipped model is measured on the fetched owners that nothing is learnt from (`fetched.apart`), too.
With RTRL_FOLLOWUP_ELSEWHERE=FILE (what scripts/followup/extract.py wrote of the repositories in
elsewhere.tsv) the shipped model is measured there too.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from followup import fetched, learn
from followup.fetched import Corpus, Derived
from followup.label import kappa, mutual_f1
from followup.learn import Floats, Labelled

from benches._baselines import BASELINES

DRAWS = 2_000
AIDER = "Aider-AI"
ELSEWHERE = learn.DATA.parent / "elsewhere.tsv"
_Said = np.ndarray[Any, Any]
_Rows = Sequence[Labelled | Derived]


def figures() -> list[dict[str, Any]]:
    """See the module."""
    known = fetched.corpus()
    rows = known.rows
    told, said, baselines = held_out(known)
    found = _agreement(rows, "followup")
    found += _quality("followup", "owners left out", rows, told, said, baselines)
    rest = np.array([row.owner != AIDER for row in rows])
    by_text = np.array([row.rule != "8" for row in rows])
    here = np.array([isinstance(row, Labelled) for row in rows])
    for name, what, part in (
        ("followup.others", "owners left out, Aider not among the tested", rest),
        ("followup.aider", "Aider left out", ~rest),
        ("followup.shipped", "owners left out, messages whose texts are in this tree", here),
        ("followup.fetched", "owners left out, fetched messages", ~here),
        ("followup.by_text", "owners left out, without messages that behaviour decides (rule 8)", by_text),
    ):
        some = [row for row, inside in zip(rows, part, strict=True) if inside]
        kept = {key: value[part] for key, value in baselines.items()}
        found += _quality(name, what, some, told[part], said[part], kept)[:3]
    found += _each(rows, said)
    found.append(_speed(learn.read()))
    found += _apart(known)
    if path := os.environ.get("RTRL_FOLLOWUP_ELSEWHERE"):
        found += _elsewhere(Path(path), known)
    return found


def held_out(corpus: Corpus) -> tuple[Floats, _Said, dict[str, _Said]]:
    """Probabilities, decisions, and the baselines' decisions, each from the other owners alone."""
    examples, extra, values = corpus.examples, learn.written(), corpus.baselines
    owners = np.array([row.owner for row in corpus.rows])
    told = np.zeros(len(owners))
    said = np.zeros(len(owners), dtype=bool)
    against = {name: said.copy() for name in BASELINES}
    for owner in sorted(set(owners)):
        train, test = np.flatnonzero(owners != owner), np.flatnonzero(owners == owner)
        known = examples.at(train)
        apart = learn.left_out(known, extra, list(owners[train]))
        slope, intercept = learn.platt(apart, known.label)
        cut = learn.best_threshold(learn.calibrated(apart, slope, intercept), known.label)
        scores = learn.fit(known + extra).scores(examples.at(test))
        told[test] = learn.calibrated(scores, slope, intercept)
        said[test] = told[test] > cut
        for name, value in values.items():
            against[name][test] = value[test] > learn.best_threshold(value[train], known.label)
    return told, said, against


def _quality(
    name: str,
    what: str,
    rows: _Rows,
    told: Floats,
    said: _Said,
    baselines: dict[str, _Said],
) -> list[dict[str, Any]]:
    labels = np.array([float(row.label) for row in rows])
    owners = np.array([row.owner for row in rows])
    value = learn.f1(said, labels)
    limit = mutual_f1([(row.a, row.b) for row in rows])
    others = {key: learn.f1(decided, labels) for key, decided in baselines.items()}
    best = max(others, key=others.__getitem__)
    interval = _interval(owners, lambda index: learn.f1(said[index], labels[index]))
    over = _interval(
        owners,
        lambda index: learn.f1(said[index], labels[index]) - learn.f1(baselines[best][index], labels[index]),
    )
    ratio = {"value": value / limit, "bar": ">= 0.8", "ours": value, "theirs": limit}
    found = [
        _figure(f"{name}.f1", f"F1, {what}, {len(rows)} messages", value, "", "", spread=interval),
        {"id": f"{name}.f1_vs_annotators", "what": f"F1 over the annotators' mutual F1, {what}",
         "unit": "ratio", **ratio},
        _figure(f"{name}.gain_over_baseline",
                f"F1 minus that of the best baseline ({best}), lower end of the interval, {what}",
                over[0] if over else None, "", "> 0", ours=value, theirs=others[best], spread=over),
    ]  # fmt: skip
    found += [
        _figure(f"{name}.f1_{key}", f"F1 of the baseline {key}, {what}", n, "") for key, n in others.items()
    ]
    precision, recall = _precision_at(told, labels, 0.9)
    pairs = [(str(int(s)), str(int(y))) for s, y in zip(said, labels, strict=True)]
    return [
        *found,
        _figure(f"{name}.precision_at_recall_90", f"precision at recall {recall:.3f}, {what}", precision, ""),
        _figure(f"{name}.brier", f"Brier score of the probabilities, {what}",
                float(((told - labels) ** 2).mean()), "",
                theirs=float(labels.mean() * (1 - labels.mean()))),
        _figure(f"{name}.ece", f"expected calibration error, ten bins of equal size, {what}",
                _ece(told, labels), ""),
        _figure(f"{name}.kappa", f"Cohen's kappa with the adjudicated labels, {what}", kappa(pairs), ""),
    ]  # fmt: skip


def _each(rows: _Rows, said: _Said) -> list[dict[str, Any]]:
    """F1 of each repository, its owner left out."""
    labels = np.array([float(row.label) for row in rows])
    of = np.array([row.repository for row in rows])
    return [
        _figure(
            f"followup.f1_of_{name.split('/')[1].lower()}",
            f"F1, {name} left out, {int(labels[of == name].sum())} of {int((of == name).sum())} dissatisfied",
            learn.f1(said[of == name], labels[of == name]),
            "",
        )
        for name in sorted(set(of))
    ]


def _agreement(rows: _Rows, name: str) -> list[dict[str, Any]]:
    pairs = [(row.a, row.b) for row in rows if "unusable" not in (row.a, row.b)]
    return [
        _figure(f"{name}.annotators_kappa", "Cohen's kappa of the two readings", kappa(pairs), ""),
        _figure(f"{name}.annotators_f1", "mutual F1 of the two readings", mutual_f1(pairs), ""),
    ]


def _speed(rows: Sequence[Labelled]) -> dict[str, Any]:
    from stages.distill.signals.followup.model import judge

    times = []
    for row in rows:
        case = learn.case(row)
        started = time.perf_counter()
        judge([case])
        times.append(1e3 * (time.perf_counter() - started))
    times = sorted(times[1:])  # the first reads the model
    what = "median of one message with its context, one core"
    return _figure(
        "followup.ms",
        what,
        times[len(times) // 2],
        "ms",
        "<= 20",
        spread=[times[0], times[-1]],
        runs=len(times),
    )


def _apart(known: Corpus) -> list[dict[str, Any]]:
    """The shipped model on the fetched owners that it was not learnt from."""
    from stages.distill.signals.followup.model import load

    model = load()
    names = sorted(model.readable)
    weights = np.array([*(model.readable[name] for name in names), *model.ngrams.values(), model.bias])
    fitted = learn.Fitted(names, {gram: n for n, gram in enumerate(model.ngrams)}, weights)
    rows = [row for row in fetched.read() if fetched.apart(row.owner)]
    told = learn.calibrated(fitted.scores(fetched.examples(rows)), model.slope, model.intercept)
    values = {name: np.array([row.baselines[name] for row in rows]) for name in BASELINES}
    against = {name: value > _cut(known, name) for name, value in values.items()}
    what = "the shipped model, fetched owners that nothing in it comes from"
    return _quality("followup.apart", what, rows, told, told > model.threshold, against)


def _cut(known: Corpus, name: str) -> float:
    """Where a baseline is best on the messages that may be learnt from."""
    return learn.best_threshold(known.baselines[name], known.examples.label)


def _elsewhere(path: Path, known: Corpus) -> list[dict[str, Any]]:
    from followup.batches import read

    from stages.distill.signals.followup.model import judge, load

    with ELSEWHERE.open(encoding="utf-8", newline="") as file:
        labels = {row["id"]: row for row in csv.DictReader(file, delimiter="\t")}
    rows = [
        Labelled(
            request=row.request, answer_end=row.answer_end, message=row.message,
            **{key: labels[row.id][key] for key in ("id", "repository", "a", "b", "label", "rule")},
        )
        for row in read(path)
        if row.id in labels
        and labels[row.id]["label"] != "unusable"
        and row.repository.split("/")[0] not in {one.owner for one in known.rows}
    ]  # fmt: skip
    told = judge([learn.case(row) for row in rows])
    against = {name: np.array(baseline(rows)) > _cut(known, name) for name, baseline in BASELINES.items()}
    name, what = "followup.elsewhere", "the shipped model, owners that nothing in it comes from"
    return _agreement(rows, name) + _quality(name, what, rows, told, told > load().threshold, against)


def _figure(
    id_: str, what: str, value: float | None, unit: str, bar: str = "", **more: Any
) -> dict[str, Any]:
    return {"id": id_, "what": what, "value": value, "unit": unit, "bar": bar, **more}


def _interval(owners: _Said, value: Callable[[_Said], float]) -> list[float] | None:
    """95 % of the values when owners are drawn again; None when there is only one."""
    if len(set(owners)) == 1:
        return None
    random = np.random.default_rng(0)
    names = sorted(set(owners))
    of = {name: np.flatnonzero(owners == name) for name in names}
    drawn = [
        value(np.concatenate([of[names[n]] for n in random.integers(0, len(names), len(names))]))
        for _ in range(DRAWS)
    ]
    return [float(x) for x in np.quantile(drawn, [0.025, 0.975])]


def _precision_at(told: Floats, labels: Floats, recall: float) -> tuple[float, float]:
    """Precision at the highest threshold that finds at least this share, and the share it finds."""
    order = np.argsort(-told, kind="stable")
    found = np.cumsum(labels[order])
    ends = np.append(np.diff(told[order]) != 0, True)  # equal probabilities cannot be told apart
    at = int(np.flatnonzero(ends & (found >= recall * labels.sum()))[0])
    return float(found[at] / (at + 1)), float(found[at] / labels.sum())


def _ece(told: Floats, labels: Floats) -> float:
    bins = np.array_split(np.argsort(told, kind="stable"), 10)
    return float(sum(abs(told[b].mean() - labels[b].mean()) * len(b) for b in bins) / len(told))
