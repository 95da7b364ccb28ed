"""What an attempt cost: tokens, calls, seconds, and money by a price table.

Reported beside correctness, never pooled with it. A price table is a TOML file, one table per model:

    ["my-model"]              # the name that is asked for; "*" for any other
    input = 0.5               # money per million prompt tokens
    cached_input = 0.05       # of those that the engine had in its cache; default: as input
    output = 1.5
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cursorbench.errors import InputMissingError, UsageError

_MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Money per million tokens of one model."""

    input: float
    output: float
    cached_input: float | None = None


class Usage(msgspec.Struct, frozen=True):
    """What one attempt used.

    Attributes:
        prompt_tokens: over all model calls, `cached_tokens` included.
        calls: model calls.
        tool_calls: of them `invalid_calls` could not be run.
        seconds: wall time of the agent, tests apart.
        model_seconds: of these, waiting for the model.
        counted: tokens as the engine told them; False when some were estimated.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    tool_calls: int = 0
    invalid_calls: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    counted: bool = True

    @property
    def tokens(self) -> int:
        """Prompt and output tokens together."""
        return self.prompt_tokens + self.output_tokens


def cost(usage: Usage, price: Price) -> float:
    """Money, in the table's currency."""
    cached = price.input if price.cached_input is None else price.cached_input
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (
        fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output
    ) / _MILLION


def price_of(model: str, table: Mapping[str, Price]) -> Price | None:
    """A model's price, or that of "*"; None when neither is there."""
    return table.get(model) or table.get("*")


def read_prices(path: Path) -> dict[str, Price]:
    """A price table.

    Raises:
        InputMissingError: (exit 5) there is no file.
        UsageError: (exit 2) it is no TOML, a table has other fields, or a price is none.
    """
    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, Price])
        for model, price in found.items():
            if not all(0 <= one < math.inf for one in msgspec.structs.astuple(price) if one is not None):
                raise ValueError(f"a price of {model!r} is not 0 or above")
        return found
    except FileNotFoundError as error:
        raise InputMissingError(f"there is no price table {path}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no price table: {error}", hint='["model"] with input and output, per million tokens'
        ) from error
