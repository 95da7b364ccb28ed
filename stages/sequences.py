"""Exact tokens of one episode, joined into sequences. Pure; files and seals are `stages/tokens.py`'s.

Generations that extend one another's prefix are one sequence, or a chain of 30 calls would cost 15
times its tokens. What the lengths contradict is named, never repaired: nothing is re-tokenised,
padded or truncated.

    T  tokens of a sequence: the last generation's prompt and output; outputs of the earlier
       generations stand inside it, because each prompt extends the one before
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stages import routing
from stages.errors import IntegrityError
from stages.records import Payload, RoutedExperts, Sampling, Span

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

_ENDS = 8  # chains of an episode that may be gone on with
_GREEDY_BELOW = 1e-5  # the temperature under which vLLM takes the likeliest token (its _SAMPLING_EPS)


@dataclass(frozen=True)
class GenerationInfo:
    """Where one generation's output stands in its sequence, and how it was sampled.

    Its prompt is `token_ids[:output_start]`.
    """

    id: str
    output_start: int
    output_end: int
    sampling: Sampling


@dataclass(frozen=True, eq=False)
class Sequence:
    """One prefix-extending sequence of an episode; arrays have length T.

    Attributes:
        token_ids: int32, prompts, tool outputs and sampled tokens alike.
        logprobs: float32, natural log, as the engine reported them; 0 where not sampled.
        sampled: True where the policy chose the token: prompts and tool outputs are masked out.
        checkpoint_index: int16 into `checkpoints` (digests of the samplers), -1 where not sampled.
        generation_index: int16 into `generations`, -1 where not sampled.
        request: text of the user's message that the first generation answers, "" where there was none.
        routing: the experts of its tokens where the engine reported any.
    """

    episode_id: str
    user: str
    token_ids: Int32
    logprobs: Float32
    sampled: npt.NDArray[np.bool_]
    checkpoint_index: npt.NDArray[np.int16]
    checkpoints: tuple[str, ...]
    generation_index: npt.NDArray[np.int16]
    generations: tuple[GenerationInfo, ...]
    request: str = ""
    routing: routing.Routing | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """One generation with its payload opened."""

    id: str
    user: str
    prompt: Int32  # after `prompt_prefix` ids of the base's prompt and output
    output: Int32
    logprobs: Float32
    prompt_base: str
    prompt_prefix: int
    spans: tuple[Span, ...]
    sampling: Sampling
    request: str = ""
    experts: RoutedExperts | None = None


def not_reproducible(sampling: Sampling) -> str:
    """Why the distribution its tokens came from cannot be computed again; "" when it can."""
    if sampling.temperature < _GREEDY_BELOW or sampling.top_k == 1:
        return "greedy"
    if sampling.unknown:
        return "unknown_sampling"
    return "grammar" if sampling.grammar else ""


def payload_defect(row: Mapping[str, Any], payload: Payload) -> str:  # noqa: PLR0911
    """Why a payload's lengths contradict each other or the record; "" when they do not.

    `row` needs prompt_tokens, output_tokens, prompt_prefix and spans (start, end).
    """
    if len(payload.prompt) != 4 * (row["prompt_tokens"] - row["prompt_prefix"]):
        return "prompt_length"
    if len(payload.output) != 4 * row["output_tokens"]:
        return "output_length"
    if len(payload.logprobs) != len(payload.output):
        return "logprobs_length"
    end = 0
    for span in row["spans"]:
        if span["start"] != end or span["end"] < end:
            return "spans"
        end = span["end"]
    if end != row["output_tokens"]:
        return "spans"
    if not np.isfinite(np.frombuffer(payload.logprobs, dtype="<f4")).all():
        return "logprobs_not_finite"
    return routing.defect(payload.experts, row["prompt_tokens"] + row["output_tokens"], row["prompt_prefix"])


def chains(rows: Rows[Mapping[str, Any]]) -> list[list[int]]:
    """Indices of an episode's generations, in capture order, grouped into prefix-extending chains.

    `rows` need id, prompt_base, prompt_prefix, prompt_tokens, output_tokens. A generation joins the
    chain whose last member it extends in full; a retry or a side branch begins a chain of its own.
    """
    tails: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for n, row in enumerate(rows):
        chain = tails.get(row["prompt_base"])
        base = rows[chain[-1]] if chain else None
        if (
            chain is None
            or base is None
            or row["prompt_prefix"] != base["prompt_tokens"] + base["output_tokens"]
        ):
            chain = []
            found.append(chain)
        else:
            del tails[row["prompt_base"]]
        chain.append(n)
        tails[row["id"]] = chain
    return found


class Ends:
    """How the latest chains of one episode end, to know of a prompt that is stored in full from which it goes
    on. The spool stores it so where its base is in another segment, or too many links deep.

    Hashes of all tokens so far, and no tokens: thousands of episodes are open at once.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, hashlib.blake2b]] = {}  # by the last generation: tokens, their hash

    def base(self, row: Mapping[str, Any], payload: Payload) -> tuple[str, int]:
        """The row's prompt_base and prompt_prefix; where it has none, the generation that its prompt has all
        tokens of in front ("" for none), and how many these are.

        To be asked about each generation that is exact, in capture order. `row` needs what `chains` does.
        """
        base, prefix, new = row["prompt_base"], row["prompt_prefix"], payload.prompt
        if not prefix:
            base = self._in_front_of(new)
            prefix = self._ends[base][0] if base else 0
            new = new[4 * prefix :]
        tokens, seen = self._ends.get(base, (0, hashlib.blake2b()))
        if tokens == prefix:  # else it takes a part of its base, which has no hash
            self._ends.pop(base, None)
            seen.update(new)
            seen.update(payload.output)
            self._ends[row["id"]] = row["prompt_tokens"] + row["output_tokens"], seen
            if len(self._ends) > _ENDS:
                del self._ends[next(iter(self._ends))]
        return base, prefix

    def _in_front_of(self, prompt: bytes) -> str:
        for name, (tokens, seen) in sorted(self._ends.items(), key=lambda end: -end[1][0]):
            front = prompt[: 4 * tokens]
            if len(front) == 4 * tokens and hashlib.blake2b(front).digest() == seen.digest():
                return name
        return ""


def full_prompts(records: Mapping[str, Record]) -> dict[str, Int32]:
    """Prompt ids of each record with the base's tokens in front; records in capture order.

    A record whose base is missing or too short is left out.
    """
    prompts: dict[str, Int32] = {}
    for record in records.values():
        if not record.prompt_prefix:
            prompts[record.id] = record.prompt
        elif record.prompt_base in prompts:
            whole = np.concatenate([prompts[record.prompt_base], records[record.prompt_base].output])
            if record.prompt_prefix <= len(whole):
                prompts[record.id] = np.concatenate([whole[: record.prompt_prefix], record.prompt])
    return prompts


def assemble(
    episode_id: str, generations: Rows[tuple[Record, Int32]], records: Mapping[str, Record] | None = None
) -> Sequence:
    """Join generations, given with their full prompts, into one sequence.

    `records` are the episode's, whose routed experts may be extended. Raises IntegrityError when a
    prompt does not extend the generation before it, or routed experts extend what is not there.
    """
    last, prompt = generations[-1]
    tokens = np.concatenate([prompt, last.output])
    sampled = np.zeros(len(tokens), dtype=np.bool_)
    logprobs = np.zeros(len(tokens), dtype=np.float32)
    checkpoint_index = np.full(len(tokens), -1, dtype=np.int16)
    generation_index = np.full(len(tokens), -1, dtype=np.int16)
    checkpoints = list(dict.fromkeys(span.checkpoint for record, _ in generations for span in record.spans))
    infos = []
    for n, (record, prompt) in enumerate(generations):
        start, end = len(prompt), len(prompt) + len(record.output)
        if not np.array_equal(tokens[:end], np.concatenate([prompt, record.output])):
            raise IntegrityError(
                f"the prompt after generation {record.id} does not extend it", hint="distill again"
            )
        sampled[start:end] = True
        logprobs[start:end] = record.logprobs
        generation_index[start:end] = n
        for span in record.spans:
            checkpoint_index[start + span.start : start + span.end] = checkpoints.index(span.checkpoint)
        infos.append(GenerationInfo(record.id, start, end, record.sampling))
    return Sequence(
        episode_id=episode_id,
        user=last.user,
        token_ids=tokens,
        logprobs=logprobs,
        sampled=sampled,
        checkpoint_index=checkpoint_index,
        checkpoints=tuple(checkpoints),
        generation_index=generation_index,
        generations=tuple(infos),
        request=generations[0][0].request,
        routing=routing.of_chain([record for record, _ in generations], records or {}, len(tokens)),
    )
