"""How exported sequences stand in Parquet: ours, TRL's names, verl's names. Arrow columns, no files.

    parquet  every sequence; arrays over the whole sequence
    trl      trainable sequences; `prompt_ids`, `completion_ids`, `logprobs`, `env_mask` as a rollout function
             of GRPOTrainer returns them (trl/trainer/grpo_trainer.py, RolloutFunc and _generate, TRL 1.x)
    verl     trainable sequences; `data_source`, `prompt`, `ability`, `reward_model`, `extra_info` as
             RLHFDataset reads them, and `rollout` with the fields of AgentLoopOutput
             (verl/utils/dataset/rl_dataset.py, verl/experimental/agent_loop/agent_loop.py, January 2026)

Positions in `spans` and `generations` count from the first prompt token. Logprobs are natural
logarithms, 0 where the policy did not sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from stages.rows import sampling_json
from stages.train.outside.reading import Row

SPAN = pa.struct(
    [("start", pa.int32()), ("end", pa.int32()), ("checkpoint", pa.string()), ("lag", pa.int32())]
)
GENERATION = pa.struct(
    [
        ("id", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("temperature", pa.float64()),
        ("top_p", pa.float64()),
        ("top_k", pa.int32()),
        ("min_p", pa.float64()),
        ("sampling", pa.string()),  # JSON of all parameters that are not at their default
    ]
)
COMMON = [
    ("id", pa.string()),
    ("episode_id", pa.string()),
    ("sequence", pa.int32()),
    ("group", pa.string()),
    ("stratum", pa.string()),
    ("user", pa.string()),
    ("key_id", pa.string()),
    ("reward", pa.float64()),
    ("baseline", pa.float64()),
    ("advantage", pa.float64()),
    ("lag", pa.int32()),
    ("spans", pa.list_(SPAN)),
    ("generations", pa.list_(GENERATION)),
]
INT32S, INT8S, FLOATS, BOOLS = (pa.list_(kind) for kind in (pa.int32(), pa.int8(), pa.float32(), pa.bool_()))
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
AGENT = "rtrl_replay"  # the agent loop of verl that gives back what is in `rollout`

PARQUET = pa.schema(
    [
        *COMMON,
        ("trainable", pa.bool_()),
        ("why_not", pa.string()),
        ("prompt", pa.string()),
        ("token_ids", INT32S),
        ("logprobs", FLOATS),
        ("sampled", BOOLS),
        ("mask", BOOLS),
    ]
)
TRL = pa.schema(
    [
        ("prompt", pa.string()),
        ("prompt_ids", INT32S),
        ("completion_ids", INT32S),
        ("logprobs", FLOATS),
        ("env_mask", INT8S),
        *COMMON,
    ]
)
VERL = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(MESSAGE)),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string()), *COMMON])),
        ("agent_name", pa.string()),
        (
            "rollout",
            pa.struct(
                [
                    ("prompt_ids", INT32S),
                    ("response_ids", INT32S),
                    ("response_mask", INT8S),
                    ("response_logprobs", FLOATS),
                    ("reward_score", pa.float64()),
                ]
            ),
        ),
    ]
)
Text = Callable[[Row], str]


@dataclass(frozen=True)
class Layout:
    """One way to lay rows out. `all_rows`: also those that cannot be trained on."""

    schema: pa.Schema
    all_rows: bool
    columns: Callable[[Sequence[Row], int, Text, str], dict[str, pa.Array]]

    def batch(self, rows: Sequence[Row], first: int, text: Text, line: str) -> pa.RecordBatch:
        """Rows as Arrow. `first` is the index of the first one, `text` decodes a row's prompt."""
        columns = self.columns(rows, first, text, line)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _parquet(rows: Sequence[Row], first: int, text: Text, line: str) -> dict[str, pa.Array]:
    return {
        **_common(rows),
        "trainable": pa.array([not row.why_not for row in rows], pa.bool_()),
        "why_not": pa.array([row.why_not for row in rows], pa.string()),
        "prompt": pa.array([text(row) for row in rows], pa.string()),
        "token_ids": _lists([row.tokens.token_ids for row in rows], pa.int32()),
        "logprobs": _lists([row.tokens.logprobs for row in rows], pa.float32()),
        "sampled": _lists([row.tokens.sampled for row in rows], pa.bool_()),
        "mask": _lists([row.mask for row in rows], pa.bool_()),
    }


def _split(rows: Sequence[Row]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """(prompt ids, completion ids, completion mask as int8, completion logprobs)."""
    cuts = [row.prompt_tokens for row in rows]
    pairs = list(zip(rows, cuts, strict=True))
    return (
        _lists([row.tokens.token_ids[:cut] for row, cut in pairs], pa.int32()),
        _lists([row.tokens.token_ids[cut:] for row, cut in pairs], pa.int32()),
        _lists([row.mask[cut:].astype(np.int8) for row, cut in pairs], pa.int8()),
        _lists([row.tokens.logprobs[cut:] for row, cut in pairs], pa.float32()),
    )


def _trl(rows: Sequence[Row], first: int, text: Text, line: str) -> dict[str, pa.Array]:
    prompts, completions, mask, logprobs = _split(rows)
    return {
        **_common(rows),
        "prompt": pa.array([text(row) for row in rows], pa.string()),
        "prompt_ids": prompts,
        "completion_ids": completions,
        "logprobs": logprobs,
        "env_mask": mask,
    }


def _verl(rows: Sequence[Row], first: int, text: Text, line: str) -> dict[str, pa.Array]:
    prompts, completions, mask, logprobs = _split(rows)
    rewards = pa.array([row.episode.reward for row in rows], pa.float64())
    index = pa.array(range(first, first + len(rows)), pa.int64())
    info = {"index": index, "split": pa.array(["train"] * len(rows), pa.string()), **_common(rows)}
    rollout = {
        "prompt_ids": prompts,
        "response_ids": completions,
        "response_mask": mask,
        "response_logprobs": logprobs,
        "reward_score": rewards,
    }
    told = [{"style": "rtrl", "ground_truth": repr(row.episode.reward)} for row in rows]
    messages = [[{"role": "user", "content": row.tokens.request or text(row)}] for row in rows]
    return {
        "data_source": pa.array([f"rtrl/{line}"] * len(rows), pa.string()),
        "prompt": pa.array(messages, VERL.field("prompt").type),
        "ability": pa.array([row.episode.stratum for row in rows], pa.string()),
        "reward_model": pa.array(told, VERL.field("reward_model").type),
        "extra_info": _struct(info, VERL.field("extra_info").type),
        "agent_name": pa.array([AGENT] * len(rows), pa.string()),
        "rollout": _struct(rollout, VERL.field("rollout").type),
    }


LAYOUTS = {
    "parquet": Layout(PARQUET, True, _parquet),
    "trl": Layout(TRL, False, _trl),
    "verl": Layout(VERL, False, _verl),
}


def _common(rows: Sequence[Row]) -> dict[str, pa.Array]:
    plain: dict[str, list[Any]] = {
        "id": [row.id for row in rows],
        "episode_id": [row.episode.episode_id for row in rows],
        "sequence": [row.number for row in rows],
        "group": [row.episode.group for row in rows],
        "stratum": [row.episode.stratum for row in rows],
        "user": [row.episode.user for row in rows],
        "key_id": [row.episode.key_id for row in rows],
        "reward": [row.episode.reward for row in rows],
        "baseline": [row.baseline for row in rows],
        "advantage": [row.advantage for row in rows],
        "lag": [None if None in row.lags else max(row.lags, default=None) for row in rows],  # type: ignore[type-var]
        "spans": [spans(row) for row in rows],
        "generations": [_generations(row) for row in rows],
    }
    return {name: pa.array(plain[name], kind) for name, kind in COMMON}


def spans(row: Row) -> list[dict[str, Any]]:
    """Runs of tokens sampled by one checkpoint within one generation: start, end, checkpoint, lag."""
    tokens = row.tokens
    label = tokens.checkpoint_index.astype(np.int64) + (tokens.generation_index.astype(np.int64) << 16)
    label[~tokens.sampled] = -1
    edges = np.flatnonzero(np.diff(label, prepend=-1, append=-1))
    found = []
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if tokens.sampled[start]:
            which = int(tokens.checkpoint_index[start])
            found.append(
                {"start": start, "end": end, "checkpoint": tokens.checkpoints[which], "lag": row.lags[which]}
            )
    return found


def _generations(row: Row) -> list[dict[str, Any]]:
    return [
        {
            "id": one.id,
            "start": one.output_start,
            "end": one.output_end,
            "temperature": one.sampling.temperature,
            "top_p": one.sampling.top_p,
            "top_k": one.sampling.top_k,
            "min_p": one.sampling.min_p,
            "sampling": sampling_json(one.sampling),
        }
        for one in row.tokens.generations
    ]


def _lists(values: Sequence[np.ndarray[Any, Any]], kind: pa.DataType) -> pa.Array:
    """A list column out of arrays, without a Python object per value."""
    offsets = pa.array(accumulate((len(value) for value in values), initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(values), kind))


def _struct(columns: dict[str, pa.Array], kind: pa.StructType) -> pa.Array:
    return pa.StructArray.from_arrays([columns[field.name] for field in kind], fields=list(kind))
