"""Prompts as suffixes: by hand, and for any conversation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.errors import IntegrityError
from stages.records import Payload, RoutedExperts
from stages.spool import ChainReader, Spool, Tokens, codec
from stages.spool.chains import MAX_DEPTH, SessionCache, common_prefix
from stages.vault import UserForgottenError, Vault
from tests.stages.spool.spool_records import full_tokens, generation, payload, tokens, writer


def test_common_prefix_by_hand() -> None:
    def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.array(values, np.int32)

    assert common_prefix(ids(1, 2, 3), ids(1, 2, 4)) == 2
    assert common_prefix(ids(1, 2), ids(1, 2, 4)) == 2
    assert common_prefix(ids(), ids(1)) == 0
    assert common_prefix(ids(9), ids(1)) == 0


def test_a_chain_stores_each_token_once(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    prompt = list(range(100))
    for turn in range(30):
        spool.append_generation(generation(f"g{turn}"), tokens(prompt, [1000 + turn]))
        prompt += [1000 + turn, 2000 + turn]
    spool.append_generation(generation("other", session="s2"), tokens(prompt, [1]))
    spool.append_generation(generation("bob", user="bob"), tokens(prompt, [1]))
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    stored = {g.id: (g.prompt_base, g.prompt_prefix) for _, g, _ in reader.generations(0, 99)}
    assert stored["g0"] == ("", 0)
    assert stored["g1"] == ("g0", 101)
    assert stored["g29"] == ("g28", 157)
    assert stored["other"] == ("", 0), "another session"
    assert stored["bob"] == ("", 0), "another user: sealed under another key"
    assert len(payload(reader, "g29", vault).prompt) == 4  # one id, 4 bytes
    assert full_tokens(reader, "g29", vault).prompt.tolist() == prompt[:-2]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.lists(st.integers(0, 3), max_size=30),
            st.lists(st.integers(0, 9), max_size=4),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_conversation_reads_back(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[int, list[int], list[int]]]
) -> None:
    """Each turn keeps some of what the session holds, adds to it, and answers."""
    root = tmp_path_factory.mktemp("spool")
    spool = writer(root, segment_bytes=4096)
    history: list[int] = []
    expected = {}
    for index, (kept, added, output) in enumerate(turns):
        prompt = history[:kept] + added
        spool.append_generation(generation(f"g{index}"), tokens(prompt, output))
        expected[f"g{index}"] = (prompt, output)
        history = prompt + output
    spool.close()
    reader, vault = Spool.open(root / "spool"), Vault.open(root / "keys")
    chains = reader.chains(vault)
    assert [g.id for _, g, _ in reader.generations(0, 99)] == list(expected)
    for _, g, sealed in reader.generations(0, 99):
        _, found = chains.open(g, sealed)
        assert (found.prompt.tolist(), found.output.tolist()) == expected[g.id]
        alone = full_tokens(reader, g.id, vault)
        assert alone.prompt.tolist() == expected[g.id][0]
    reader.close()


def test_chains_are_bounded_and_stay_in_their_segment(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    prompt = list(range(20))
    for turn in range(2 * MAX_DEPTH + 4):
        spool.append_generation(generation(f"g{turn}"), tokens(prompt, [7]))
        prompt.append(7)
    spool.seal()
    spool.append_generation(generation("next"), tokens(prompt, [7]))
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    bases = {g.id: g.prompt_base for _, g, _ in reader.generations(0, 999)}
    assert bases[f"g{MAX_DEPTH}"] == f"g{MAX_DEPTH - 1}"
    # one too deep begins anew, and the next go on from it: each branch was trained as a sequence by itself
    begun = [n for n in range(2 * MAX_DEPTH + 4) if bases[f"g{n}"] != f"g{n - 1}"]
    assert begun == [0, MAX_DEPTH + 1, 2 * (MAX_DEPTH + 1)]
    assert {bases[f"g{n}"] for n in begun} == {""}
    assert bases["next"] == ""
    reader.delete([1])
    assert full_tokens(reader, "next", vault).prompt.tolist() == prompt


def test_no_train_is_neither_written_nor_a_base(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1", no_train=True), tokens(list(range(50)), [1]), "SECRET", "SECRET")
    spool.append_generation(generation("g2"), tokens(list(range(50)), [1]), "q", "a")
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    (_, first, sealed), (_, second, _) = reader.generations(0, 9)
    assert (sealed, first.prompt_tokens, first.output_tokens) == (b"", 50, 1)
    assert second.prompt_base == ""
    with pytest.raises(IntegrityError, match="no-train"):
        full_tokens(reader, "g1", vault)


def test_broken_links_are_errors_not_guesses(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.append_generation(generation("g1"), tokens(list(range(50)), [1]))
    spool.append_generation(generation("g2"), tokens(list(range(50)), [2]))
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    records = {g.id: (g, sealed) for _, g, sealed in reader.generations(0, 9)}
    base = records["g1"]
    shorter = {"g1": (generation("g1", prompt_tokens=49), base[1])}
    with pytest.raises(IntegrityError, match="50 prompt ids where 49"):
        ChainReader(vault, shorter.__getitem__).open(*records["g2"])
    first = (generation("g1", prompt_base="g2", prompt_prefix=16), base[1])
    second = (generation("g2", prompt_base="g1", prompt_prefix=16), records["g2"][1])
    with pytest.raises(IntegrityError, match="extends too many"):  # `rtrl collect` went round for ever
        ChainReader(vault, {"g1": first, "g2": second}.__getitem__).open(*second)
    vault.forget("ada")
    with pytest.raises(UserForgottenError):
        ChainReader(vault, records.__getitem__).open(*records["g2"])


def routed(prompt: list[int], output: list[int], forwarded: int | None = None) -> Tokens:
    """With the experts of all tokens but the last: token id and id + 1, in each of two layers."""
    plain = tokens(prompt, output)
    ids = np.array([*prompt, *output])[: len(prompt) + len(output) - 1 if forwarded is None else forwarded]
    rows = (ids[:, None, None] + np.array([0, 1]) + np.array([[0], [100]])) % 250
    return plain._replace(experts=rows.astype(np.uint8))


def test_a_chain_stores_the_experts_of_each_token_once(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    prompt = list(range(100))
    written = {}
    for turn in range(6):
        made = routed(prompt, [200 + turn, 220 + turn])
        if turn == 3:
            made = made._replace(experts=None)  # a stream: the engine did not tell
        spool.append_generation(generation(f"g{turn}"), made)
        written[f"g{turn}"] = made
        prompt = [*prompt, 200 + turn, 220 + turn, 240 + turn]
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    kept = {gid: payload(reader, gid, vault).experts for gid in written}
    assert kept["g3"] is None
    places = {gid: (each.first, len(each.rows), each.width) for gid, each in kept.items() if each}
    # g1 extends 102 tokens of g0, which forwarded 101 of them; it forwards 1 + 1 + 1 of its own
    assert places["g0"] == (0, 101 * 4, 1)
    assert places["g1"] == (101, 3 * 4, 1)
    assert places["g2"] == (104, 3 * 4, 1)
    assert places["g4"] == (0, 113 * 4, 1), "its base tells nothing: in full"
    assert places["g5"] == (113, 3 * 4, 1)
    chains = reader.chains(vault)
    for gid, made in written.items():
        for found in (full_tokens(reader, gid, vault), chains.open(*reader.record(gid))[1]):
            if made.experts is None:
                assert found.experts is None
            else:
                assert found.experts is not None
                assert np.array_equal(found.experts, made.experts)


def test_experts_of_wrong_length_are_kept_as_they_came(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    prompt = list(range(40))
    spool.append_generation(generation("short", defect="routed_experts_length"), routed(prompt, [50], 39))
    spool.append_generation(generation("next"), routed([*prompt, 50, 60], [70]))
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    short, after = (payload(reader, gid, vault).experts for gid in ("short", "next"))
    assert short is not None
    assert (short.first, len(short.rows)) == (0, 39 * 4)
    assert after is not None
    assert (after.first, len(after.rows)) == (0, 42 * 4), "nothing extends a record that is not exact"


def test_a_payload_without_experts_is_as_it_was_before_there_were_any() -> None:
    plain = Payload(b"p", b"o", b"l", "q", "a")
    old = msgspec.msgpack.encode(
        {"prompt": b"p", "output": b"o", "logprobs": b"l", "request": "q", "answer": "a"}
    )
    assert codec.encode(plain) == old
    assert codec.decode(old) == plain
    told = msgspec.structs.replace(plain, experts=RoutedExperts(b"abcd", 1, 2, 1, 2))
    assert codec.decode(codec.encode(told)) == told


def test_what_is_remembered_of_sessions_is_bounded() -> None:
    """100 sessions of 40 ids: 160 bytes each, and room for ten."""
    cache = SessionCache(1600)
    for n in range(100):
        cache.add((f"s{n}",), f"g{n}", tokens(list(range(39)), [n]), 0)
    kept = [n for n in range(100) if cache.base((f"s{n}",), np.arange(39, dtype=np.int32))[0]]
    assert kept == list(range(90, 100)), "the longest unused went first"
    cache.of_segment(1)
    cache.add(("s",), "g", tokens(list(range(399)), [1]), 0)
    assert cache.base(("s",), np.arange(399, dtype=np.int32)) == ("g", 399, 1), "room for 400 again"


def test_a_reader_remembers_a_bounded_number_of_tokens(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    for n in range(50):
        spool.append_generation(generation(f"g{n}", session=f"s{n}"), tokens(list(range(39)), [n]))
    spool.close()
    reader, vault = Spool.open(tmp_path / "spool"), Vault.open(tmp_path / "keys")
    chains = ChainReader(vault, reader.record, max_bytes=1600)
    for n in range(50):
        assert chains.open(*reader.record(f"g{n}"))[1].prompt.tolist() == list(range(39))
    assert list(chains._full) == [f"g{n}" for n in range(40, 50)]
    reader.close()
