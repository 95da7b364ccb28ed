"""`scripts/benches/followup.py`: its numbers by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module("benches.followup")


def test_precision_at_a_recall(bench: ModuleType) -> None:
    told = np.array([0.9, 0.8, 0.7, 0.7, 0.1])
    labels = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    assert bench._precision_at(told, labels, 0.3) == (1.0, pytest.approx(1 / 3))
    assert bench._precision_at(told, labels, 0.6) == (0.5, pytest.approx(2 / 3))  # both of 0.7, or none
    assert bench._precision_at(told, labels, 0.9) == (0.6, 1.0)


def test_calibration_error(bench: ModuleType) -> None:
    told, labels = np.repeat([0.2, 0.6], 10), np.array([0.0] * 8 + [1.0] * 12)
    # bins of two: the share of label 1 is 0 in four bins, 1 in six; |0.2 - 0| x4, |0.2 - 1|, |0.6 - 1| x5
    assert bench._ece(told, labels) == pytest.approx((4 * 0.2 + 0.8 + 5 * 0.4) / 10)


def test_intervals_draw_owners(bench: ModuleType) -> None:
    owners = np.array(["a"] * 9 + ["b"])
    values = np.array([0.0] * 9 + [1.0])
    assert bench._interval(owners, lambda index: float(values[index].mean())) == [
        0.0,
        1.0,
    ]  # twice a, twice b
    assert bench._interval(owners[:9], lambda index: float(len(index))) is None


def test_no_text_of_one_owner_teaches_about_it(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = bench.fetched.corpus()
    chosen = ("entireio", "EntityProcess", "Barqly", "pichsy")
    some = [n for n, row in enumerate(corpus.rows) if row.owner in chosen][::3]
    rows = [corpus.rows[n] for n in some]
    seen: list[set[str]] = []

    def spy(found: object) -> object:
        texts = {" ".join(grams[:5]) for grams in found.ngrams}  # type: ignore[attr-defined]
        seen.append(texts)
        return fit(found)

    fit = bench.learn.fit
    monkeypatch.setattr(bench.learn, "fit", spy)
    less = {name: values[some] for name, values in corpus.baselines.items()}
    part = bench.Corpus(rows, corpus.examples.at(some), less)
    told, said, against = bench.held_out(part)
    owners = sorted({row.owner for row in rows})
    per_owner = 1 + len(bench.learn.folds(owners[1:]))  # an owner's own fit, one for each fold of others
    assert len(seen) == len(owners) * per_owner
    written = {" ".join(g[:5]) for g in bench.learn.written().ngrams}
    for n, owner in enumerate(owners):
        mine = part.examples.at([k for k, row in enumerate(rows) if row.owner == owner])
        others = part.examples.at([k for k, row in enumerate(rows) if row.owner != owner])
        alone = {" ".join(g[:5]) for g in mine.ngrams} - {" ".join(g[:5]) for g in others.ngrams}
        alone -= written
        assert not any(alone & texts for texts in seen[n * per_owner : (n + 1) * per_owner])
    assert set(against) == {"all_alike", "keywords", "sentiment", "previous"}
    assert told.shape == said.shape == (len(rows),)
