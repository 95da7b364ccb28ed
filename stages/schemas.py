"""The Arrow schemas of `interactions` and `experience`: what each column holds, in which unit.

For the stages that write and read these artifacts. Not for reading files (`stages/tables.py`),
nor for the records themselves (`stages/records.py`). A changed schema gets a new version number.

interactions/
    part-00000/ ...           the episodes in capture order, PART_EPISODES to a part; a part is self-contained
        generations.parquet   one row per model call; `sealed` holds tokens and text, opened by the vault
        events.parquet        what clients saw afterwards; `sealed` where it is content, else `data` (JSON)
        episodes.parquet      one row per episode
    quarantine.parquet        what was left out one by one, each with its reason
experience/
    episodes.parquet      one row per episode: signals, terms of the reward, reward, stratum
    sequences.parquet     which generations of an episode are trained as one sequence
    quarantine.parquet    generations that cannot be trained on, each with its reason
    reward_spec.toml      the spec the reward was computed with
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

INTERACTIONS_SCHEMA = "rtrl-interactions/1"
EXPERIENCE_SCHEMA = "rtrl-experience/2"

PART_EPISODES = 16_384  # a part's payloads fit in memory many times over
PART_BYTES = 128 << 20  # sealed bytes after which a part of session logs is full: theirs may be large

GENERATIONS_FILE = "generations.parquet"
EVENTS_FILE = "events.parquet"
EPISODES_FILE = "episodes.parquet"
QUARANTINE_FILE = "quarantine.parquet"
SEQUENCES_FILE = "sequences.parquet"
SPEC_FILE = "reward_spec.toml"

SPAN = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("checkpoint", pa.string())])
TOOL_CALL = pa.struct([("id", pa.string()), ("name", pa.string()), ("error", pa.string())])

GENERATIONS = pa.schema(
    [
        ("seq", pa.int64()),  # commit number in the spool
        ("id", pa.string()),
        ("key_id", pa.string()),
        ("user", pa.string()),
        ("session", pa.string()),
        ("episode", pa.string()),
        ("ordinal", pa.int32()),
        ("at", pa.int64()),  # ms since the epoch, event time: when the request came, whatever the answer took
        ("wall", pa.int64()),  # ms since the epoch, gateway's clock
        ("line", pa.string()),
        ("arm", pa.string()),
        ("deployment", pa.string()),
        ("api", pa.string()),
        ("sampling", pa.string()),  # JSON of records.Sampling
        ("spans", pa.list_(SPAN)),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int32()),
        ("output_tokens", pa.int32()),
        ("ttft_ms", pa.float64()),
        ("duration_ms", pa.float64()),
        ("tool_calls", pa.list_(TOOL_CALL)),
        ("invalid_tool_calls", pa.int32()),
        ("tools_digest", pa.string()),
        ("prompt_base", pa.string()),  # a generation of the same episode, or ""
        ("prompt_prefix", pa.int32()),
        ("features", pa.map_(pa.string(), pa.string())),
        ("defect", pa.string()),
        ("sealed", pa.binary()),  # msgpack records.Payload, sealed for `user`, associated data = id
    ]
)

EVENTS = pa.schema(
    [
        ("seq", pa.int64()),  # the order in which they were received
        ("id", pa.string()),
        ("key_id", pa.string()),
        ("generation_id", pa.string()),
        ("episode", pa.string()),
        ("user", pa.string()),  # whose key sealed the data
        ("type", pa.string()),
        ("at", pa.int64()),
        ("wall", pa.int64()),
        (
            "derived",
            pa.bool_(),
        ),  # by collect, of the session's next request or of a repository; no client sent it
        ("data", pa.string()),  # JSON; "{}" when sealed
        ("sealed", pa.binary()),
    ]
)

EPISODES = pa.schema(
    [
        ("id", pa.string()),
        ("key_id", pa.string()),
        ("user", pa.string()),
        ("session", pa.string()),
        ("line", pa.string()),
        ("arm", pa.string()),
        ("checkpoint", pa.string()),  # sampler of the first token
        ("lag", pa.int32()),  # largest distance of a sampler to the live checkpoint
        ("first_at", pa.int64()),
        ("last_at", pa.int64()),  # last generation or edit
        ("ripe_at", pa.int64()),  # when its training horizon had passed
        ("n_generations", pa.int32()),
        ("n_events", pa.int32()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
    ]
)

QUARANTINE = pa.schema([("id", pa.string()), ("episode", pa.string()), ("reason", pa.string())])

SEQUENCES = pa.schema(
    [
        ("episode_id", pa.string()),
        ("generation_ids", pa.list_(pa.string())),  # each one's prompt extends the one before it
        ("interactions", pa.string()),  # digest of the artifact that holds the tokens
    ]
)

_EXPERIENCE_HEAD = [
    ("episode_id", pa.string()),
    ("key_id", pa.string()),
    ("user", pa.string()),
    ("session", pa.string()),
    ("arm", pa.string()),
    ("checkpoint", pa.string()),
    ("lag", pa.int32()),
    ("at", pa.int64()),
    ("agent", pa.string()),  # who answered, and on what: "" where it is not told
    ("model", pa.string()),
    ("repository", pa.string()),
    ("work", pa.string()),  # kind of work, by the words of the request
    ("stratum", pa.string()),
    ("group", pa.string()),  # "" or the task several rollouts share
    ("reward", pa.float64()),  # null: not known
    ("trainable", pa.bool_()),
    ("why_not", pa.string()),
    ("n_generations", pa.int32()),
    ("output_tokens", pa.int64()),
    ("edit_persistence_24h", pa.float64()),  # at metric horizons: for reports, never in a reward
    ("edit_persistence_7d", pa.float64()),
]


def part_name(n: int) -> str:
    """Folder of the n-th part of an interactions artifact."""
    return f"part-{n:05d}"


def experience_episodes(signals: Sequence[str]) -> pa.Schema:
    """Schema of experience/episodes.parquet: a value and a reward term per signal, null = not known.

    `<signal>` is the value in the signal's own unit, `term_<signal>` what it contributes to the reward.
    """
    values = [(name, pa.float64()) for name in signals]
    terms = [(f"term_{name}", pa.float64()) for name in signals]
    return pa.schema([*_EXPERIENCE_HEAD, *values, *terms])
