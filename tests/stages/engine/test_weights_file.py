"""The tensors of a file against the fingerprint's sums, whatever dtype they are stored in."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from stages.engine import weights_file
from stages.engine.weights_file import as_float32, file_mismatch, signature
from stages.errors import IntegrityError

VALUES = np.array([[1.0, -2.5, 0.0], [0.15625, 3.0, -1.0]], np.float32)  # all of them bfloat16 and float16


def test_any_dtype_has_the_sums_of_its_values_as_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_file, "PIECE", 8)
    save_file(
        {"w": VALUES, "h": VALUES.astype(np.float16), "d": VALUES.astype(np.float64)},
        tmp_path / "a.safetensors",
    )
    sums = dict.fromkeys("whd", hashlib.sha256(VALUES.tobytes()).hexdigest())
    assert file_mismatch(tmp_path, sums) == ()
    assert file_mismatch(tmp_path, {**sums, "w": "0", "gone": "1"}) == ("w", "gone")


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    halves = (VALUES.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    assert as_float32(halves, "BF16") == VALUES.tobytes()
    with pytest.raises(IntegrityError, match="I8"):
        as_float32(b"", "I8")


def test_a_file_that_was_replaced_is_another(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"w": VALUES}, path)
    before = signature(tmp_path)
    assert signature(tmp_path) == before
    path.rename(tmp_path / "old")
    save_file({"w": VALUES}, path)
    assert signature(tmp_path) != before
