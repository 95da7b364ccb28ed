"""Generations and events survive the way through Arrow and Parquet unchanged."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stages import rows, schemas, tables
from stages.records import EVENT_TYPES, Event, Generation, Sampling, Span, ToolCall

# a client's text as UTF-8 can carry it: anything but lone surrogates
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(-(2**53), 2**53)
ms = st.floats(0, 1e9)

samplings = st.builds(
    Sampling,
    temperature=st.floats(0, 2),
    top_k=st.integers(0, 100),
    max_tokens=st.none() | st.integers(1, 4096),
    stop=st.lists(text, max_size=2).map(tuple),
    unknown=st.lists(text, max_size=2).map(tuple),
    grammar=text,
)
calls = st.builds(
    ToolCall,
    id=text,
    name=text,
    arguments=st.just(""),
    error=st.sampled_from(["", "unparsable", "unknown_tool", "schema"]),
)
generations = st.builds(
    Generation,
    **dict.fromkeys(("id", "key_id", "user", "session", "episode", "line", "arm", "deployment"), text),
    **dict.fromkeys(("finish_reason", "tools_digest", "prompt_base", "defect"), text),
    **dict.fromkeys(
        ("ordinal", "prompt_tokens", "output_tokens", "prompt_prefix", "invalid_tool_calls"), int32
    ),
    at=int64,
    wall=int64,
    api=st.sampled_from(["chat", "completions"]),
    sampling=samplings,
    spans=st.lists(st.builds(Span, start=int32, end=int32, checkpoint=text), max_size=3).map(tuple),
    ttft_ms=ms,
    duration_ms=ms,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    features=st.dictionaries(text, text, max_size=3),
    no_train=st.just(False),
)
sealed_generations = st.builds(rows.SealedGeneration, int64, generations, st.binary(max_size=40))

data = st.dictionaries(text, text | st.integers(-(2**53), 2**53) | st.booleans() | st.none(), max_size=3)
sealed_events = st.builds(
    lambda seq, event, user, sealed, episode, derived: rows.SealedEvent(
        seq, event if not sealed else Event(**{**_fields(event), "data": {}}), user, sealed, episode, derived
    ),
    int64,
    st.builds(
        Event,
        id=text,
        key_id=text,
        generation_id=text,
        type=st.sampled_from(EVENT_TYPES),
        at=int64,
        wall=int64,
        data=data,
    ),
    text,
    st.binary(max_size=20),
    text,
    st.booleans(),
)


def _fields(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


@settings(max_examples=50)
@given(st.lists(sealed_generations, max_size=6))
def test_generations_round_trip(found: list[rows.SealedGeneration]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / schemas.GENERATIONS_FILE
        with tables.TableWriter(path, schemas.GENERATIONS) as writer:
            writer.write(rows.generation_batch(found))
        assert [
            row for batch in tables.batches(path, schemas.GENERATIONS) for row in rows.generations(batch)
        ] == found


@settings(max_examples=50)
@given(st.lists(sealed_events, max_size=6))
def test_events_round_trip(found: list[rows.SealedEvent]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / schemas.EVENTS_FILE
        with tables.TableWriter(path, schemas.EVENTS) as writer:
            writer.write(rows.event_batch(found))
        assert [row for batch in tables.batches(path, schemas.EVENTS) for row in rows.events(batch)] == found


def test_equal_sampling_parameters_have_one_text_whichever_objects_they_are() -> None:
    read = Sampling(temperature=float("1"), top_p=float("1.0"), min_p=float("0"), presence_penalty=-0.0)
    cooler = Sampling(temperature=0.5, max_tokens=7)
    for first, second in ((Sampling(), read), (read, Sampling())):
        rows.sampling_json.cache_clear()
        assert rows.sampling_json(first) == rows.sampling_json(second) == "{}"
    assert rows.sampling_json(cooler) == '{"max_tokens":7,"temperature":0.5}'
    assert rows.sampling(rows.sampling_json(cooler)) == cooler
