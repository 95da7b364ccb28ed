"""Child, parent or neither: hand-computed slopes and the reader of the fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stages.engine.verification import (
    Logprobs,
    ProbeReport,
    TensorReport,
    Verification,
    judge_probes,
    read_fingerprint,
)
from stages.errors import IntegrityError

CHILD = [[-1.0, -2.0, -3.0], [-4.0, -5.0]]
PARENT = [[-1.5, -2.0, -2.5], [-4.5, -4.5]]


def test_slope_is_the_hand_computed_regression_through_the_origin() -> None:
    # x = child - parent = (.5, 0, -.5, .5, -.5), sum of squares 1
    # served - parent = x + .001 in the first place: slope (.501*.5 + .25*3) / 1 = 1.0005
    served = [[-0.999, -2.0, -3.0], [-4.0, -5.0]]
    report = judge_probes(Logprobs(CHILD, PARENT), served, "float32")
    assert report.verdict == "child"
    assert report.slope == pytest.approx(1.0005)
    # residuals .00075, 0, .00025 (twice), -.00025 -> squares: 5.625e-7 + 3 * 6.25e-8 = 7.5e-7; over n-1 = 4
    assert report.slope_error == pytest.approx((7.5e-7 / 4) ** 0.5)
    assert report.mean_abs == pytest.approx(0.0002)
    assert report.tokens == 5


def test_the_parent_is_recognised() -> None:
    report = judge_probes(Logprobs(CHILD, PARENT), PARENT, "float32")
    assert (report.verdict, report.slope) == ("parent", 0.0)


def test_a_third_model_is_neither() -> None:
    served = [[-9.0, -9.0, -9.0], [-9.0, -9.0]]
    assert judge_probes(Logprobs(CHILD, PARENT), served, "float32").verdict == "neither"
    assert judge_probes(Logprobs(CHILD), served, "float32").verdict == "neither"
    assert judge_probes(Logprobs(CHILD), [[float("nan")] * 3, [0.0] * 2], "bfloat16").verdict == "neither"


def test_without_a_parent_closeness_decides() -> None:
    report = judge_probes(Logprobs(CHILD), CHILD, "float32")
    assert (report.verdict, report.slope) == ("child", None)


def test_an_unchanged_child_is_undecided() -> None:
    assert judge_probes(Logprobs(CHILD, CHILD), CHILD, "float32").verdict == "undecided"


def test_bfloat16_noise_far_above_the_step_still_tells_child_from_parent() -> None:
    # a step of 0.02 nats a token under rounding noise of 0.03: no threshold on the difference could tell
    random = np.random.default_rng(0)
    parent = random.normal(-3, 1, (8, 63))
    child = parent + random.normal(0, 0.02, parent.shape)
    noise = random.normal(0, 0.03, parent.shape)
    expected = Logprobs(child.tolist(), parent.tolist())
    assert judge_probes(expected, (child + noise).tolist(), "bfloat16").verdict == "child"
    assert judge_probes(expected, (parent + noise).tolist(), "bfloat16").verdict == "parent"


def test_a_wrong_number_of_logprobs_is_an_integrity_error() -> None:
    with pytest.raises(IntegrityError, match="another number"):
        judge_probes(Logprobs(CHILD), [[-1.0, -2.0, -3.0]], "float32")


def tensors(**changes: object) -> TensorReport:
    fields: dict[str, object] = {
        "tensors": 2,
        "different": (),
        "file_mismatch": (),
        "unchecked": (),
        "parameters": 10,
        "parameters_checked": 10,
    }
    return TensorReport(**{**fields, **changes})  # type: ignore[arg-type]


def probes(verdict: str) -> ProbeReport:
    return ProbeReport(verdict, 5, 0.02, 0.001, 0.3, 0.9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("held", "verdict", "message"),
    [
        (tensors(different=("head",)), "child", "holds other values for head"),
        (tensors(file_mismatch=("a", "b", "c", "d")), "child", "not what was published: a, b, c and 1 more"),
        (tensors(), "parent", "still answers as the parent"),
        (tensors(), "neither", "neither as this checkpoint nor as its parent"),
        (tensors(unchecked=("x",), parameters_checked=4), "undecided", "1 tensors could not be read back"),
    ],
)
def test_require_says_what_is_served_instead(held: TensorReport, verdict: str, message: str) -> None:
    with pytest.raises(IntegrityError, match=message) as caught:
        Verification("/x", held, probes(verdict)).require()
    assert (caught.value.code, bool(caught.value.hint)) == (12, True)


def test_require_accepts_the_child_and_an_unchanged_child_held_bit_by_bit() -> None:
    for verdict in ("child", "undecided"):
        found = Verification("/x", tensors(), probes(verdict))
        assert found.require() is found
    json.dumps(found.as_dict())


def fingerprint(**changes: object) -> dict[str, object]:
    content: dict[str, object] = {
        "schema": "rtrl-fingerprint/1",
        "probes": [[1, 2, 3]],
        "logprobs": {"parent": None, "child": [[-1.0, -2.0]]},
        "tensors": {"w": {"sha256": "00", "numel": 1, "sum": 0.0}},
    }
    return {**content, **changes}


def test_read_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "served_fingerprint.json").write_text(json.dumps(fingerprint()))
    found = read_fingerprint(tmp_path)
    assert found.probes == [[1, 2, 3]]
    assert found.logprobs.parent is None
    assert found.tensors["w"].sha256 == "00"


@pytest.mark.parametrize(
    "content",
    [
        None,
        "{",
        "[]",
        json.dumps(fingerprint(schema="other/1")),
        json.dumps(fingerprint(logprobs={"parent": None, "child": [[-1.0]]})),
        json.dumps(fingerprint(logprobs={"parent": [[]], "child": [[-1.0, -2.0]]})),
        json.dumps(fingerprint(tensors={})),
        json.dumps(fingerprint(probes=[], logprobs={"parent": None, "child": []})),
    ],
)
def test_a_broken_fingerprint_is_an_integrity_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "served_fingerprint.json").write_text(content)
    with pytest.raises(IntegrityError) as caught:
        read_fingerprint(tmp_path)
    assert caught.value.hint
