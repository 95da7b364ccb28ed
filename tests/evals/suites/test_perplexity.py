"""Bits per byte: windows by hand, and against one plain forward pass."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import IntegrityError
from evals.suites.held_out import Document, Piece
from evals.suites.perplexity import PerplexitySuite, encoded, windows
from tests.evals.suites.forward import checkpoint, subject

TEXT = "def f(x):\n    return x\n"
WHOLE = Document("f.py", (Piece(TEXT, True),))
PART = Document("g.py", (Piece(TEXT, False), Piece("y = f(1)\n", True), Piece("# end\n", False)))


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"))


def test_windows_by_hand() -> None:
    # Seven tokens, five at a time, two further each time: 1-4 of the first, then 5 and 6.
    found = windows([9, 1, 2, 3, 4, 5, 6], [False] + [True] * 6, 5)
    assert [(one.ids, one.counted) for one in found] == [
        ((9, 1, 2, 3, 4), (1, 2, 3, 4)),
        ((2, 3, 4, 5, 6), (3, 4)),
    ]
    # Only the last token is new: one window.
    assert [one.counted for one in windows([9, 1, 2, 3, 4, 5, 6], [False] * 6 + [True], 5)] == [(4,)]
    assert windows([9], [False], 5) == []


@given(st.integers(2, 9), st.lists(st.booleans(), min_size=1, max_size=60))
def test_every_new_token_is_counted_once_with_half_a_window_before_it(size: int, new: list[bool]) -> None:
    flags = [False, *new]
    ids = list(range(len(flags)))
    found = windows(ids, flags, size)
    counted = [one.ids[at] for one in found for at in one.counted]
    assert counted == [token for token in ids if flags[token]]
    for one in found:
        assert 1 < len(one.ids) <= size
        for at in one.counted:
            assert at >= min(one.ids[at], size - size // 2)


def test_bits_against_one_forward_pass(random_model: Path) -> None:
    import torch

    wide, narrow = subject(random_model), subject(random_model, 24)
    suite = PerplexitySuite("perplexity:r", lambda: [WHOLE, PART])
    attempts = suite.run(wide, suite.cases(), lambda n: None)
    engine = wide.tokens
    ids = [engine.tokenizer.eos_token_id, *engine.tokenizer.encode(TEXT)]  # type: ignore[attr-defined]
    with torch.no_grad():
        logprobs = engine.model(torch.tensor([ids])).logits[0].log_softmax(-1)  # type: ignore[attr-defined]
    nats = -sum(float(logprobs[at - 1, ids[at]]) for at in range(1, len(ids)))
    assert attempts[0].values["bits_per_byte"] == (pytest.approx(nats / math.log(2), rel=1e-5), len(TEXT))
    bits, count = attempts[1].values["bits_per_byte"]
    assert count == len("y = f(1)\n")
    assert bits / count == pytest.approx(8, abs=1)  # a random model over 257 bytes
    less = suite.run(narrow, suite.cases(), lambda n: None)
    assert narrow.tokens.longest == 24  # type: ignore[attr-defined]
    assert less[0].values["bits_per_byte"][0] == pytest.approx(nats / math.log(2), rel=0.05)
    assert [one.cluster for one in less] == ["f.py", "g.py"]


def test_a_tokenizer_that_changes_the_text_says_nothing() -> None:
    class Lower:
        eos_token_id, bos_token_id = 0, None

        def encode(self, text: str, **_: object) -> list[int]:
            return [ord(letter) for letter in text.lower()]

        def decode(self, ids: list[int], **_: object) -> str:
            return "".join(chr(one) for one in ids)

    assert encoded(Lower(), Document("A", (Piece("Ab\n", True),))) is None
    assert encoded(Lower(), Document("a", (Piece("Ab\n", False), Piece("c", True)))) == (
        [0, 97, 98, 10, 99],
        [False, False, False, False, True],
    )


def test_a_text_begins_with_the_token_that_begins_one() -> None:
    """Not with the one that ends it, behind which a model with both foresees little."""

    class Both:
        eos_token_id, bos_token_id = 2, 1

        def encode(self, text: str, **_: object) -> list[int]:
            return [ord(letter) for letter in text]

        def decode(self, ids: list[int], **_: object) -> str:
            return "".join(chr(one) for one in ids)

    assert encoded(Both(), Document("a", (Piece("c", True),))) == ([1, 99], [False, True])


def test_useless_weights_are_no_zeros(tmp_path: Path) -> None:
    suite = PerplexitySuite("p", lambda: [WHOLE])
    with pytest.raises(IntegrityError, match="no finite score"):
        suite.run(subject(checkpoint(tmp_path, math.nan)), suite.cases(), lambda n: None)
