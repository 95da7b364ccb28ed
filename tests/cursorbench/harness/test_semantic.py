"""Search by meaning: what is found, what is embedded again, what is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cursorbench.errors import InputMissingError
from cursorbench.harness import semantic
from cursorbench.harness.embedders import Encoder, Service, unit
from cursorbench.harness.results import RefusedError
from cursorbench.harness.semantic import SemanticIndex
from cursorbench.harness.task_tools import ToolSettings, task_tools
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.workplace import Folder

MEANINGS = (("money", "price", "pay"), ("network", "socket", "http"), ("colour", "paint", "red"))


class Meanings:
    """Knows three things, and counts what it was asked."""

    name = "meanings"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        rows = [[sum(text.count(word) for word in words) for words in MEANINGS] for text in texts]
        return unit(np.array(rows, np.float32).reshape(len(texts), 3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "shop.py").write_text("def pay(price):\n    return price\n")
    (folder / "net.py").write_text("import socket\n")
    (folder / "draw.py").write_text("paint = 'red'\n")
    (folder / "binary").write_bytes(b"price\0")
    return folder


def test_the_nearest_come_first(root: Path) -> None:
    index = SemanticIndex(Meanings())
    box = Toolbox(Folder(root), task_tools(ToolSettings(), commands=False, semantic=index))
    result = box.call("semantic_search", json.dumps({"query": "money and a bit of http"}))
    places = [line for line in result.text.splitlines() if line.endswith(")")]
    # cosine of (1, 1, 0) with each axis
    cosine = f"{1 / math.sqrt(2):.2f}"
    assert sorted(places[:2]) == [f"net.py:1-1 ({cosine})", f"shop.py:1-2 ({cosine})"]
    assert places[2] == "draw.py:1-1 (0.00)"
    assert "def pay(price):" in result.text
    assert box.call("semantic_search", json.dumps({"query": " "})).error == "arguments"


def test_only_what_changed_is_embedded_again(root: Path, tmp_path: Path) -> None:
    embedder = Meanings()
    index = SemanticIndex(embedder, tmp_path / "kept")
    index.search(Folder(root), "money", math.inf)
    assert len(embedder.asked) == 3 + 1
    index.search(Folder(root), "paint", math.inf)
    assert embedder.asked[4:] == ["paint"]
    (root / "net.py").write_text("import http\n")
    assert index.search(Folder(root), "http", math.inf).startswith("net.py:1-1 (1.00)\nimport http")
    assert embedder.asked[5:] == ["net.py\nimport http", "http"]
    other = Meanings()
    again = SemanticIndex(other, tmp_path / "kept")
    assert again.search(Folder(root), "http", math.inf).startswith("net.py")
    assert other.asked == ["http"], "another process takes what is kept"


def test_a_damaged_file_is_made_again(root: Path, tmp_path: Path) -> None:
    SemanticIndex(Meanings(), tmp_path / "kept").search(Folder(root), "http", math.inf)
    (kept,) = (tmp_path / "kept").iterdir()
    whole = kept.read_bytes()
    for damage in (b"", whole[:50], b"junk", whole[:-4]):
        kept.write_bytes(damage)
        assert (
            SemanticIndex(Meanings(), tmp_path / "kept").search(Folder(root), "http", 9).startswith("net.py")
        )
        assert kept.read_bytes() == whole


def test_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic, "MAX_FILES", 3)
    (root / "draw.py").write_text("paint\n" * 100_000)
    found = SemanticIndex(Meanings()).search(Folder(root), "http", math.inf)
    assert "[2 files were too many or too large to be looked at]" in found
    with pytest.raises(RefusedError, match="too long"):
        SemanticIndex(Meanings()).search(Folder(root), "http", -1.0)


def test_long_files_are_pieces_that_overlap(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(1, 101))
    pieces = list(semantic._pieces({"a.py": text}))
    assert [piece.first for piece in pieces] == [1, 33, 65]
    assert pieces[-1].text.endswith("line 100")
    assert list(semantic._pieces({"empty": "", "blank": "\n\n"})) == []


@pytest.mark.slow
def test_an_encoder_of_a_local_folder(tmp_path: Path) -> None:
    """Random weights: like texts are alike, padding changes nothing, vectors have length one."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *"abcdefgh"]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(tmp_path)
    torch.manual_seed(1)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=64, **size)).save_pretrained(tmp_path)
    encoder = Encoder(tmp_path, tokens=32)
    both = encoder.embed(["a b c", "a b c d e f g h a b c d"])
    alone = encoder.embed(["a b c"])
    assert both.shape == (2, 16)
    assert np.allclose(both[0], alone[0], atol=1e-5)
    assert np.allclose(np.linalg.norm(both, axis=1), 1, atol=1e-5)
    assert encoder.embed([]).shape[0] == 0
    assert encoder.embed(["a \ud800 " * 100]).shape == (1, 16)
    with pytest.raises(InputMissingError):
        Encoder(tmp_path / "nowhere")


def test_a_service_that_is_away_is_the_provider_s_fault(root: Path) -> None:
    index = SemanticIndex(Service("http://127.0.0.1:9/v1", "", "m"))
    box = Toolbox(Folder(root), task_tools(ToolSettings(), commands=False, semantic=index))
    assert box.call("semantic_search", json.dumps({"query": "x"})).error == "provider"


def test_a_service_is_asked_in_batches_and_its_answer_judged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    wrong: list[Any] = []

    def answer(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert (request.url.path, body["model"]) == ("/v1/embeddings", "m")
        assert request.headers["authorization"] == "Bearer k"
        asked.append(body["input"])
        data = wrong[0] if wrong else [{"embedding": [float(len(text)), 0.0]} for text in body["input"]]
        return httpx.Response(200, json={"data": data})

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    service = Service("http://127.0.0.1:9/v1", "k", "m")
    assert np.allclose(service.embed(["a"] * 65), [[1.0, 0.0]] * 65)
    assert [len(batch) for batch in asked] == [64, 1]
    for bad in ([], [{"embedding": [1.0]}] * 2, [{"embedding": "x"}], [{}], 3):
        wrong[:] = [bad]
        with pytest.raises(RefusedError) as refused:
            service.embed(["a"])
        assert refused.value.error == "provider"
