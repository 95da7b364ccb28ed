"""What capture and the stages exchange: generations, events, and their sealed payloads.

Plain validated data (msgspec: typed decoding at the speed of the JSON parser), no behaviour.
The Arrow schemas of the artifacts made from these are in `stages/schemas.py`.

Time is milliseconds since the epoch. `at` is *event time*: when it happened for the user (the
client's clock where the gateway is told to accept it, else the gateway's). Durations are
wall-clock milliseconds measured by the gateway.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

EventType = Literal[
    "edit_applied",
    "edit_rejected",
    "edit_reverted",
    "edit_survival",
    "user_message",
    "tool_result",
    "thumbs",
    "interrupted",
    "outcome",
    "feedback",
    "completion_shown",
    "completion_accepted",
    "completion_rejected",
    "session_closed",
]
EVENT_TYPES: tuple[str, ...] = get_args(EventType)

GROUP = "group"  # the feature that names the task of which several rollouts were asked for
POPULATION = "population"  # the feature that names it; fixed by the API key
GOES_ON = "goes_on"  # the feature that names the episode of the answer it follows, of several to one history
ANOTHER_ANSWER = "-[0-9a-f]{12}$"  # ends the name of an episode that `another_answer` made
BEGUN = "thought_begun"  # the feature that says whether the prompt ended within a thought: "1" or "0"
RETRIED = "retried"  # the feature of a request that its client sent again by itself, nobody having asked
TEXT_ONLY = "text_only"  # the defect of a generation read from a log: its tokens are not known
# of an edit's data: it was read off the call that made it, no client told it; its file was written anew, and
# nobody tells what stood there
BY_CALL, WHOLE = "by_call", "whole"
LIVE, CANARY, HOLDBACK = "live", "canary", "holdback"  # arms

# "untold": read from a log that does not say whether its calls were valid
CallError = Literal["", "unparsable", "unknown_tool", "schema", "untold"]


class Span(msgspec.Struct, frozen=True):
    """Output tokens [start, end) were sampled by `checkpoint` (artifact digest)."""

    start: int
    end: int
    checkpoint: str


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every parameter that shapes the distribution a token was drawn from. top_k 0 is off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str = ""  # canonical JSON of response_format, structured_outputs, forced_calls; "" for none
    unknown: tuple[str, ...] = ()  # names of parameters that change the distribution and are not modelled


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call of an answer. `error` is "" for a valid call, "untold" where nobody said."""

    id: str
    name: str
    arguments: str  # raw JSON text as the model wrote it
    error: CallError = ""


class RoutedExperts(msgspec.Struct, frozen=True):
    """Which experts tokens went to: rows [n, layers, top_k].

    `rows` are little-endian unsigned integers of `width` bytes. Row i is of the token at position
    `first` + i of prompt and output. The last output token was sampled and never forwarded, so it has
    none; rows before `first` are those of the prompt's base.
    """

    rows: bytes
    first: int
    layers: int
    top_k: int
    width: int


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sealed part of a generation: exact tokens and raw text.

    Arrays are little-endian bytes: prompt and output int32, logprobs float32, one per output id.
    `prompt` holds only the ids after `Generation.prompt_prefix` ids taken from `prompt_base`
    (that generation's full prompt followed by its output).
    """

    prompt: bytes
    output: bytes
    logprobs: bytes
    request: str  # the text of the last user message of the request ("" for plain completions)
    answer: str  # the raw text the model wrote, tool calls included
    experts: RoutedExperts | None = None  # of a mixture-of-experts model, where its engine reports them


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One model call, everything about it that is not user content."""

    id: str
    key_id: str  # the API key that made it; only this key may send events for it
    user: str
    session: str
    episode: str
    ordinal: int  # position in the episode's chain, from 0
    at: int
    wall: int
    line: str
    arm: str  # "live" outside of a canary
    deployment: str  # "" before the first deployment
    api: Literal["chat", "completions"]
    sampling: Sampling
    spans: tuple[Span, ...]
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    ttft_ms: float
    duration_ms: float
    tool_calls: tuple[ToolCall, ...] = ()  # arguments are blanked here; the answer in the payload has them
    invalid_tool_calls: int | None = 0  # None: none is known to be, and of some it is not told
    tools_digest: str = ""
    prompt_base: str = ""  # generation id whose tokens this prompt extends, "" for none
    prompt_prefix: int = 0
    features: dict[str, str] = {}  # known before the first sampled token
    no_train: bool = False  # served and counted; the payload was never written
    defect: str = ""  # why the tokens cannot be trained on ("" when exact), e.g. "logprobs_length"

    @property
    def population(self) -> str:
        """The organisation or kind of work that its API key was of when it was made, "" for none."""
        return self.features.get(POPULATION, "")


def another_answer(first: str, generation_id: str) -> str:
    """The episode of one more answer to a history whose first answer has the episode `first`."""
    return f"{first}-{generation_id[-12:]}"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something the client saw after a generation. Unique by (key_id, id)."""

    id: str
    key_id: str
    generation_id: str
    type: EventType
    at: int
    wall: int
    data: dict[str, Any] = {}
