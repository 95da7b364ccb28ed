"""The reward spec: which signals make the reward, with which weights, horizons and stabilisers.

A TOML file, `specs/default.toml` unless the workspace names another. Unknown keys and contradictions
fail here, when it is resolved, not hours later. Its digest is part of every experience made with it, and
keys the line's baselines (`rewarded.py`): a changed spec starts new ones.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from stages.errors import InputMissingError, UsageError
from stages.schemas import experience_episodes

SIGNALS = (
    "edit_persistence",
    "edit_rejected",
    "dissatisfied_followup",
    "latency",
    "latency_first_token",
    "invalid_tool_calls",
    "clarified",
    "edited",
    "length_cost",
    "completion_accepted",
    "task_outcome",
)
PRICE = "asking_price"  # the stabiliser's own term, a column beside the signals
COLUMNS = (*SIGNALS, PRICE)
_COUNTED = ("n_calls", "n_reactions", "request_tokens", "total_ms", "first_token_ms")  # while distilling
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_TAKEN = (*COLUMNS, *experience_episodes(()).names, *_COUNTED)  # names that columns have already


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        """True would be read as 1."""
        for name, field in cls.model_fields.items() if isinstance(given, dict) else ():
            if isinstance(given.get(name), bool) and field.annotation is not bool:
                raise ValueError(f"{name} is no switch: true and false mean nothing there")
        return given


class SignalSpec(_Table):
    """One term: weight * (clip(value, low, high) - offset)."""

    function: str | None = Field(
        None,
        description="a team's own signal: package.module:function, see own.py",
    )

    weight: float = Field(..., description="reward per unit of the signal")
    offset: float = Field(0.0, description="the value that is worth nothing")
    low: float | None = Field(None, description="smaller values count as this")
    high: float | None = Field(None, description="larger values count as this")
    unknown: float | Literal["mean", "exclude"] = Field(
        ...,
        description="what the term is while the value is not known: a number in units of reward, the mean "
        "term of the stratum's known episodes, or the episode has no reward",
    )

    @field_validator("function")
    @classmethod
    def _of_a_module(cls, function: str | None) -> str | None:
        if function is not None and not _FUNCTION.fullmatch(function):
            raise ValueError(f'{function!r} is no function of a module: "package.module:function"')
        return function

    @field_validator("unknown", mode="before")
    @classmethod
    def _of_three_kinds(cls, unknown: Any) -> Any:
        if isinstance(unknown, str) and unknown not in ("mean", "exclude"):
            raise ValueError(f'must be a number, "mean" or "exclude", not {unknown!r}')
        return unknown


class Horizons(_Table):
    """Training horizons in seconds. collect's horizon must not be shorter."""

    persistence_s: float = Field(3600.0, gt=0)
    followup_s: float = Field(3600.0, gt=0)
    completion_s: float = Field(600.0, gt=0)
    outcome_s: float = Field(3600.0, gt=0)


class LengthCost(_Table):
    """C(x) and the mix x, see signals/length_cost.py."""

    k: float = Field(0.01, ge=0)
    q: float = Field(1.0, ge=0)
    final: float = Field(1.0, ge=0)
    call: float = Field(1.0, ge=0)
    thinking: float = Field(1.0, ge=0)
    tool: float = Field(0.0, ge=0)
    calls: float = Field(0.0, ge=0)
    turns: float = Field(0.0, ge=0)

    def weights(self) -> dict[str, float]:
        """The weights of the mix by kind of length."""
        return self.model_dump(exclude={"k", "q"})


class Latency(_Table):
    """How long the line's medians remember."""

    memory: float = Field(5000.0, gt=0, description="episodes a running median stands on at most")


class Stabiliser(_Table):
    """The price of a question without an edit, a dual variable of the line: see stabiliser.py."""

    enabled: bool = True
    band: Literal["fixed", "history"] = Field(
        "fixed", description="the band: low and high, or the edit rate of the line's first windows +- width"
    )
    low: float = Field(0.0, ge=0, le=1, description="edit rate under which asking gets dearer")
    high: float = Field(1.0, ge=0, le=1, description="edit rate above which asking gets cheaper")
    width: float = Field(0.1, ge=0.001, le=1, description="half the width of a band of history")
    windows: int = Field(3, ge=1, description="windows at least whose edit rate is its middle")
    step: float = Field(
        ..., gt=0, description="change of the price per window and unit of edit rate off the band"
    )
    ease: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="part of the price given up a window while the rate is in its band",
    )
    initial: float = Field(..., description="price before the first window")
    minimum: float = Field(..., description="bounds of the price; negative is a bonus")
    maximum: float = Field(...)

    @model_validator(mode="after")
    def _ordered(self) -> Stabiliser:
        if not self.low <= self.high or not self.minimum <= self.initial <= self.maximum:
            raise ValueError("low <= high and minimum <= initial <= maximum must hold")
        given, fixed = self.model_fields_set, {"low", "high"}
        if self.band == "fixed" and not fixed <= given:
            raise ValueError('low and high are needed, or band = "history"')
        if self.band == "history" and fixed & given:
            raise ValueError('band = "history" takes its band from the line: leave low and high away')
        return self


class Drop(_Table):
    """A filter: episodes whose signal is known and beyond a bound give no gradient.

    The policy can bring a signal about, so the exclusion audit refuses a filter that the spec does not
    accept by name (`stages/exclusion.py`, docs/hacks.md).
    """

    above: float | None = Field(None, description="episodes with a larger value are left out")
    below: float | None = Field(None, description="episodes with a smaller value are left out")

    @model_validator(mode="after")
    def _bounded(self) -> Drop:
        if self.above is None and self.below is None:
            raise ValueError("say above or below which value an episode is left out")
        if self.above is not None and self.below is not None and self.above < self.below:
            raise ValueError("above must not be less than below: every episode would be left out")
        return self


class RewardSpec(_Table):
    """A resolved reward spec."""

    schema_: Literal["rtrl-reward/1"] = Field(..., alias="schema")
    name: str
    horizons: Horizons = Field(default_factory=Horizons)
    signals: dict[str, SignalSpec]
    length_cost: LengthCost = Field(default_factory=LengthCost)
    latency: Latency = Field(default_factory=Latency)
    stabiliser: Stabiliser | None = None
    clip: tuple[float, float] | None = Field(None, description="bounds of the reward")
    strata: tuple[Literal["kind", "language", "tools"], ...] = ("kind",)
    drop: dict[str, Drop] = Field(default_factory=dict, description="filters, by the signal they look at")
    accepted_exits: dict[str, str] = Field(
        default_factory=dict,
        description="exits between capture and gradient that the policy can steer, each with a reason",
    )

    @model_validator(mode="after")
    def _consistent(self) -> RewardSpec:
        if not self.signals:
            raise ValueError("a reward needs at least one signal")
        if strange := sorted(self.signals.keys() - set(SIGNALS) - self.own.keys()):
            raise ValueError(
                f"no signal is called {strange[0]}; there are {', '.join(SIGNALS)}, and a team's own with a "
                "`function`"
            )
        if taken := sorted(self.own.keys() & {*_TAKEN}):
            raise ValueError(f"a team's own signal cannot be called {taken[0]}")
        if bad := sorted(name for name in self.own if not name.isidentifier() or name.startswith("term_")):
            raise ValueError(f"{bad[0]!r} is no name for a signal")
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip: the lower bound must be below the upper one")
        for name, signal in self.signals.items():
            if signal.low is not None and signal.high is not None and not signal.low < signal.high:
                raise ValueError(f"{name}: low must be below high")
        if strange := sorted(self.drop.keys() - {*self.names}):
            raise ValueError(f"drop.{strange[0]}: no signal is called so")
        if strange := sorted(self.accepted_exits.keys() - {*self.exits}):
            raise ValueError(
                f"accepted_exits: this spec has no exit {strange[0]}; it has "
                f"{', '.join(sorted(self.exits)) or 'none'}"
            )
        if empty := sorted(name for name, reason in self.accepted_exits.items() if not reason.strip()):
            raise ValueError(f"accepted_exits: {empty[0]} needs a reason")
        return self

    @property
    def exits(self) -> tuple[str, ...]:
        """The exits that this spec itself opens: `drop:SIGNAL`, and `unknown:SIGNAL` where that excludes."""
        unknown = (f"unknown:{name}" for name, signal in self.signals.items() if signal.unknown == "exclude")
        return (*(f"drop:{name}" for name in self.drop), *unknown)

    @property
    def own(self) -> dict[str, str]:
        """The team's own signals: function by name."""
        return {name: signal.function for name, signal in self.signals.items() if signal.function}

    @property
    def names(self) -> tuple[str, ...]:
        """All signals of an experience made with this spec."""
        return (*SIGNALS, *self.own)

    @property
    def digest(self) -> str:
        """`sha256:...` over the canonical form: comments and order of keys do not matter."""
        canonical = msgspec.json.encode(self.model_dump(mode="json", by_alias=True), order="sorted")
        return "sha256:" + hashlib.sha256(canonical).hexdigest()

    @property
    def horizon_s(self) -> float:
        """The longest training horizon."""
        return float(max(self.horizons.model_dump().values()))


def load(name: str, root: Path) -> tuple[RewardSpec, str]:
    """The spec and its text.

    Args:
        name: a shipped spec ("default"), or the path of a TOML file, relative to `root`.

    Raises:
        InputMissingError: there is no such file.
        UsageError: it is not UTF-8 or TOML, has an unknown key, lacks one, or contradicts itself.
    """
    text = _read(name, root)
    return parse(text, name), text


def parse(text: str, name: str) -> RewardSpec:
    """The spec in `text`; `name` for messages. Raises UsageError."""
    try:
        return RewardSpec.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"reward spec {name} is not TOML: {error}", hint="correct that line") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        told = ": ".join(filter(None, (name, where, first["msg"].removeprefix("Value error, "))))
        raise UsageError(f"reward spec {told}", hint="see stages/distill/specs/default.toml") from error


def _read(name: str, root: Path) -> str:
    if not name.endswith(".toml") and "/" not in name:
        folder = resources.files("stages.distill.specs")
        shipped = {
            each.name.removesuffix(".toml"): each for each in folder.iterdir() if each.name.endswith(".toml")
        }
        if name in shipped:
            return shipped[name].read_text("utf-8")
        raise InputMissingError(
            f"there is no shipped reward spec {name!r}",
            hint=f"{', '.join(sorted(shipped))}, or the path of a .toml file",
        )
    path = Path(name)
    path = path if path.is_absolute() else root / path
    try:
        return path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
    except FileNotFoundError as error:
        raise InputMissingError(f"there is no reward spec at {path}", hint="set distill.spec") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"reward spec {path} is not UTF-8 (line {line})", hint="save it as UTF-8") from error
