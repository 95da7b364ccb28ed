"""Delta files written and rebuilt: bit by bit, through chains, and refused when anything is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.delta import SUFFIX
from stages.delta.file import delta_files
from stages.delta.rebuild import check, rebuild
from stages.delta.source import DeltaWeights, WholeWeights
from stages.delta.write import write_delta
from stages.errors import IntegrityError
from tests.stages.delta.safetensors_files import Raw, families, save

NAN = {"n": ("F32", (4,), np.array([0x7FC00000, 0x7F800001, 0xFFC01234, 0x80000000], "<u4").tobytes())}
NAN_2 = {"n": ("F32", (4,), np.array([0x7FC00001, 0x7FA00001, 0xFFC01235, 0x00000000], "<u4").tobytes())}


def model(seed: int = 0, rows: int = 64, step: float = 0.0) -> dict[str, Raw]:
    values = np.random.default_rng(seed).standard_normal((rows, 64)).astype("<f4") + np.float32(step)
    half = (values.view("<u4") >> 16).astype("<u2")
    return {"w": ("F32", values.shape, values.tobytes()), "h": ("BF16", half.shape, half.tobytes())}


@settings(max_examples=60, deadline=None)
@given(families(), st.sampled_from([8, 64, 1 << 22]))
@example((NAN, NAN_2), 8)
@example(({}, NAN, {}), 8)
def test_any_chain_of_files_is_rebuilt_byte_for_byte(generations: Any, block: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "out").mkdir()
        weights: Any = None
        for number, tensors in enumerate(generations):
            folder = root / str(number)
            folder.mkdir()
            path = save(folder / "model.safetensors", tensors, {"number": str(number)})
            original = path.read_bytes()
            if weights is None:
                weights = WholeWeights([path])
                continue
            write_delta(path, weights, block=block)
            path.unlink()
            weights = DeltaWeights(delta_files(folder), weights)
            assert [one.read_bytes() for one in rebuild(weights, root / "out")] == [original]
            assert check(weights) == len(original)


def test_generations_with_other_block_sizes_read_each_other(tmp_path: Path) -> None:
    weights: Any = WholeWeights([save(tmp_path / "model.safetensors", model(rows=4))])
    for number, block in enumerate((24, 4096, 8, 1 << 20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = save(folder / "model.safetensors", model(rows=4 + number, step=1e-4 * number))
        write_delta(path, weights, block=block)
        weights = DeltaWeights(delta_files(folder), weights)
        (folder / "out").mkdir()
        assert rebuild(weights, folder / "out")[0].read_bytes() == path.read_bytes()


def test_tensors_may_move_between_shards(tmp_path: Path) -> None:
    one, two = model(0), model(0, step=1e-5)
    for folder in ("base", "child", "out"):
        (tmp_path / folder).mkdir()
    base = WholeWeights(
        [
            save(tmp_path / "base" / "model-1.safetensors", {"w": one["w"]}),
            save(tmp_path / "base" / "model-2.safetensors", {"h": one["h"]}),
        ]
    )
    whole = [
        save(tmp_path / "child" / "model-1.safetensors", {"h": two["h"]}),
        save(tmp_path / "child" / "model-2.safetensors", {"w": two["w"]}),
    ]
    deltas = [write_delta(path, base) for path in whole]
    assert sum(path.stat().st_size for path in deltas) < 0.7 * sum(path.stat().st_size for path in whole)
    made = rebuild(DeltaWeights(delta_files(tmp_path / "child"), base), tmp_path / "out")
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in whole]


def pair(tmp_path: Path) -> tuple[Path, WholeWeights, bytes]:
    """A folder with a delta, its base, and the bytes that it stands for."""
    base = WholeWeights([save(tmp_path / "base.safetensors", model())])
    (tmp_path / "child").mkdir()
    path = save(tmp_path / "child" / "model.safetensors", model(step=1e-5))
    write_delta(path, base)
    return tmp_path / "child", base, path.read_bytes()


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    folder, base, _ = pair(tmp_path)
    path = folder / f"model.safetensors{SUFFIX}"
    good = path.read_bytes()
    for place in [0, 8, 20, len(good) // 2, len(good) - 60, len(good) - 30, len(good) - 1]:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        with pytest.raises(IntegrityError) as refused:
            check(DeltaWeights(delta_files(folder), base))
        assert refused.value.code == 12
        assert refused.value.hint
    for length in (0, 5, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(IntegrityError, match="damaged"):
            delta_files(folder)


def test_another_base_is_refused_and_a_changed_one_noticed(tmp_path: Path) -> None:
    folder, base, _ = pair(tmp_path)
    other = WholeWeights([save(tmp_path / "other.safetensors", model(1))])
    with pytest.raises(IntegrityError, match="other weights than those of its base") as refused:
        DeltaWeights(delta_files(folder), other)
    assert "made against" in refused.value.hint
    lying = WholeWeights([tmp_path / "other.safetensors"], base.digests)
    with pytest.raises(IntegrityError, match="does not rebuild"):
        check(DeltaWeights(delta_files(folder), lying))


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:7],
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: b"\xff" * 8 + raw[8:],
        lambda raw: raw[:9] + b"[" * 40 + raw[49:],
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, damage: Any) -> None:
    good = save(tmp_path / "model.safetensors", model())
    base = WholeWeights([good])
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(damage(good.read_bytes()))
    with pytest.raises(IntegrityError, match="no safetensors file"):
        write_delta(bad, base)
