"""`scripts/followup`: shipped weights are what the shipped data give; readings joined; numbers by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from followup import fetched, label, learn, train  # noqa: E402

from cursorbench.errors import UsageError  # noqa: E402
from cursorbench.redaction import redact  # noqa: E402
from stages.distill.signals.followup import model  # noqa: E402


@pytest.fixture(scope="module")
def rows() -> list[learn.Labelled]:
    return learn.read()


def test_the_shipped_model_is_what_the_data_give() -> None:
    shipped = model.load()
    assert shipped.data == train.digests()
    assert shipped.recipe == learn.RECIPE
    fitted = learn.fit(fetched.corpus().examples + learn.written())
    assert dict(zip(fitted.names, fitted.weights, strict=False)) == pytest.approx(shipped.readable, abs=2e-3)
    found = {gram: fitted.weights[len(fitted.names) + n] for gram, n in fitted.vocabulary.items()}
    assert {gram: found[gram] for gram in shipped.ngrams} == pytest.approx(shipped.ngrams, abs=2e-3)


def test_inference_gives_what_learning_gives(rows: list[learn.Labelled]) -> None:
    """The sum by columns, against the matrix product, without the rounding of the file."""
    some = rows[::40]
    shipped = model.load()
    names = sorted(shipped.readable)
    grams = {gram: n for n, gram in enumerate(shipped.ngrams)}
    weights = [*(shipped.readable[n] for n in names), *shipped.ngrams.values(), shipped.bias]
    scores = learn.Fitted(names, grams, np.array(weights)).scores(learn.examples(some))
    expected = learn.calibrated(scores, shipped.slope, shipped.intercept)
    assert model.judge([learn.case(row) for row in some]) == pytest.approx(expected, abs=1e-9)


def test_the_shipped_texts_are_redacted_and_named(rows: list[learn.Labelled]) -> None:
    assert len(rows) == 729
    assert sum(row.label == "1" for row in rows) == 272
    assert sum(row.a != row.b for row in rows) == 24
    assert not [row.id for row in rows for text in (row.message, row.request) if redact(text).counts]
    readme = (learn.DATA.parent / "README.md").read_text("utf-8")
    assert all(row.repository in readme for row in rows)


def test_fetched_messages_are_counted_and_named() -> None:
    found = fetched.read()
    assert len(found) == 1836
    assert sum(row.label == "1" for row in found) == 572
    assert sum(row.a != row.b for row in found) == 27
    assert sum(fetched.apart(row.owner) for row in found) == 318
    readme = (learn.DATA.parent / "README.md").read_text("utf-8")
    assert all(f"{row.repository} | {row.licence}" in readme and row.commit[:12] in readme for row in found)


def test_what_only_one_owner_says_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(id_: str, repository: str, message: str) -> learn.Labelled:
        return learn.Labelled(
            id=id_, repository=repository, request="", answer_end="", message=message,
            a="0", b="0", label="0", rule="9",
        )  # fmt: skip

    monkeypatch.setattr(learn, "read", list)
    rows = [row("1", "a/x", "zyzzyva zyzzyva works"), row("2", "a/y", "zyzzyva"), row("3", "b/z", "it works")]
    origin = dict.fromkeys("123", ("MIT", "c"))
    found = fetched.derived(rows, origin)
    assert "works" in found[0].ngrams
    assert not [gram for one in found for gram in one.ngrams if "zyzzyva" in gram]
    told = learn.examples(rows)
    assert fetched.derived(rows, origin)[0].weight == told.weight[0]


def test_features_of_other_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "digests", lambda: {"patterns.toml": "another"})
    with pytest.raises(ValueError, match="other patterns"):
        fetched.read()


def test_calibration_folds_keep_owners_whole() -> None:
    owners = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["d", "e", "f", "g"]
    groups = learn.folds(owners)
    assert sorted(name for group in groups for name in group) == list("abcdefg")
    assert len(groups) == 6
    assert ["a"] in groups
    assert ["b"] in groups


def test_kappa_and_mutual_f1_by_hand() -> None:
    pairs = [("1", "1")] * 3 + [("1", "0")] + [("0", "0")] * 5 + [("0", "1")]
    # observed 0.8; chance 0.4 * 0.4 + 0.6 * 0.6 = 0.52; (0.8 - 0.52) / 0.48
    assert label.kappa(pairs) == pytest.approx(0.28 / 0.48)
    assert label.mutual_f1(pairs) == pytest.approx(6 / 8)


def test_a_disagreement_must_be_decided() -> None:
    from followup.candidates import Between, Candidate

    told = dict.fromkeys(("source", "licence", "commit", "kind", "agent", "session", "item"), "x")
    row = Candidate(
        id="1", message="m", message_characters=1, request="r", answer_end="a", between=Between(),
        repository="o/r", position=1, **told,
    )  # fmt: skip
    one, other = {"1": ("1", "2")}, {"1": ("0", "9")}
    with pytest.raises(UsageError):
        label.joined([row], one, other, {})
    decided = label.joined([row], one, other, {"1": ("0", "9")})
    assert [(r["a"], r["b"], r["label"], r["rule"]) for r in decided] == [("1", "0", "0", "9")]
    assert label.joined([row], one, {}, {}) == []


def test_filled_in_templates_share_one_weight() -> None:
    form = [f"w{n}" for n in range(10)]
    weights = learn.one_per_form([[*form, "x"], [*form, "y"], ["other"], [*form, "z"]])
    assert weights == pytest.approx([1 / 3, 1 / 3, 1.0, 1 / 3])


def test_platt_by_hand() -> None:
    """Two scores, each with both labels: the fitted probabilities are the smoothed shares."""
    scores = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    labels = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    slope, intercept = learn.platt(scores, labels)
    yes, no = 4 / 5, 1 / 5  # (3 + 1) / (3 + 2), 1 / (3 + 2)
    low, high = (yes + 2 * no) / 3, (2 * yes + no) / 3
    assert learn.calibrated(np.array([-1.0, 1.0]), slope, intercept) == pytest.approx([low, high], abs=1e-4)


def test_f1_and_threshold_by_hand() -> None:
    p, y = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0.0, 1.0, 0.0, 1.0])
    assert learn.f1(p > 0.5, y) == pytest.approx(0.5)
    assert learn.best_threshold(p, y) == pytest.approx(0.3, abs=0.011)  # 2 hits of 3: F1 0.8


def test_the_file_of_fetched_messages_gives_back_what_was_written(tmp_path: Path) -> None:
    rows = fetched.read()[:20]
    fetched.write(rows, ["one", "two"], tmp_path / "fetched.jsonl")
    assert fetched.read(tmp_path / "fetched.jsonl") == rows
    assert len(fetched.FILE.read_bytes()) < 1 << 20
