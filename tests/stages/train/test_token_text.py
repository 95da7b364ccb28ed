"""Token texts: characters of several tokens, and secrets cut by token boundaries. The key is made up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.redaction import findings, redact
from stages.train.token_text import masked_pieces, shown_tokens
from tests.stages.train.tiny import write_tokenizer

SECRET = "ghp_" + "a8K2mZ7qW4xN1cV6bT9yR3dF5gH0jL2pQ8sU"


def cut(text: str, *places: int) -> list[str]:
    ends = [0, *places, len(text)]
    return [text[a:b] for a, b in pairwise(ends)]


def test_a_secret_over_several_tokens_is_masked_once_and_what_is_beside_it_stays() -> None:
    text = f"the token is {SECRET} for now"
    start = text.index(SECRET)
    shown = masked_pieces(cut(text, 4, start + 2, start + 9, start + len(SECRET) + 4))
    assert shown == ["the ", "token is [redacted:api_key]", "…", "… for", " now"]
    assert masked_pieces(["plain", "", " text"]) == ["plain", "", " text"]
    assert masked_pieces([]) == []


@given(st.lists(st.sampled_from(["word ", SECRET, " a@b.example ", "\n", "x=1; "]), max_size=6), st.data())
def test_nothing_of_a_secret_shows_wherever_the_text_is_cut(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    shown = masked_pieces(cut(text, *places))
    assert len(shown) == len(places) + 1
    hidden = {at for start, end, _ in findings(text) for at in range(start, end)}
    clear = "".join(character for at, character in enumerate(text) if at not in hidden)
    masks = [f"[redacted:{kind}]" for _, _, kind in findings(text)]
    rest = "".join(shown).replace("…", "")
    for mask in masks:
        rest = rest.replace(mask, "", 1)
    assert rest == clear
    assert redact(text).text.count("[redacted:") == len(masks)


def test_texts_of_tokens_add_up_and_bytes_of_one_character_go_to_its_last_token(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    assert shown_tokens(tmp_path, [1, 5, 6, 0, 2]) == ["<user>", " w1", " w2", " <end>", " <assistant>"]
    byte_level(tmp_path)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = tokenizer.encode("a ü€ b").ids
    assert shown_tokens(tmp_path, ids) == ["a", " ", "", "ü", "", "", "€", " ", "b"]
    broken = [ids[0], ids[2], ids[0], ids[0]]  # half a character, never finished
    assert shown_tokens(tmp_path, broken) == ["a", "", "\ufffda", "a"]


def byte_level(folder: Path) -> None:
    """A tokenizer of single bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
