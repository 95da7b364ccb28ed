"""Which chains each experiment is made of. What is the same in two experiments is run once.

Specs other than the shipped default stand in `specs/`, with what is wrong with them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from experimenting.planted import LOOPHOLES, planted
from experimenting.setup import Setup
from stages.init import TINY_SETTINGS

SPECS = Path(__file__).resolve().parent / "specs"
TINY_RATE = float(tomllib.loads(TINY_SETTINGS)["train"]["learning_rate"])


@dataclass(frozen=True)
class Size:
    """How large the runs are; defaults are what the figures are made with."""

    seeds: int = 5
    first_seed: int = 1
    cycles: int = 12
    users: int = 200
    requests: int = 450
    heldout: int = 160
    heldout_ends: int = 1200


@dataclass(frozen=True)
class Variant:
    """A reward spec and settings under a name.

    Attributes:
        what: one line for tables.
        spec: a file of `specs/`, or "default" for the shipped one.
        cycles: fewer than the experiment's, 0 for as many.
        keep: cycles after which the checkpoint is kept.
    """

    name: str
    what: str
    spec: str = "default"
    settings: tuple[str, ...] = ()
    lag: int = 0
    gate: bool = False
    without: str = ""
    cycles: int = 0
    keep: tuple[int, ...] = ()

    def setup(self, seed: int, size: Size, shipped: str | None = None) -> Setup:
        """Its chain for one seed; `shipped` as in `setups`."""
        return Setup(
            name=self.name,
            seed=seed,
            spec=shipped if shipped and self.spec == "default" else spec_text(self.spec),
            cycles=min(self.cycles, size.cycles) or size.cycles,
            users=size.users,
            requests=size.requests,
            lag=self.lag,
            gate=self.gate,
            without=self.without,
            keep=tuple(one for one in self.keep if one <= size.cycles),
            heldout=size.heldout,
            heldout_ends=size.heldout_ends,
            settings=self.settings,
        )


def spec_text(name: str) -> str:
    """A reward spec's text."""
    if name == "default":
        return resources.files("stages.distill.specs").joinpath("default.toml").read_text("utf-8")
    return (SPECS / f"{name}.toml").read_text("utf-8")


PLANTED_AFTER = (6, 8, 10)  # cycles of the clean chain
PLANTED_CYCLES = 8  # at most: `thirdhack.settled`

DEFAULT = Variant("default", "the shipped reward and the settings of `rtrl init --tiny`", keep=PLANTED_AFTER)
NAIVE_FILTER = Variant(
    "naive_filter", "episodes with a broken call are left out of training", "naive_filter", without="baseline"
)
NAIVE_ASKING = Variant(
    "naive_asking", "questions are free, and code that was not written is not judged", "naive_asking"
)
FIXED = Variant("fixed", "the same with both holes closed", "fixed")

HACKS = (DEFAULT, NAIVE_FILTER, NAIVE_ASKING, FIXED)

FAST = Variant(
    "fast",
    "a learning rate ten times too high, behind guards and gate",
    settings=(f"train.learning_rate={10 * TINY_RATE:g}",),
    gate=True,
    cycles=3,
)
LEARNING = (DEFAULT, FAST)

ABLATION = (
    DEFAULT,
    Variant("no_baseline", "no baseline: the reward is the advantage", without="baseline"),
    Variant(
        "mean_per_sequence",
        "every sequence's tokens averaged, in place of one constant",
        without="constant_normalisation",
    ),
    Variant("no_kl", "no KL to the anchor", settings=("train.kl_coefficient=0",)),
    Variant("no_truncation", "importance weights not truncated", settings=("train.importance_cap=1e9",)),
    Variant("lag_1", "people are served the checkpoint before the one trained", lag=1),
    Variant("lag_3", "three cycles behind", lag=3),
    Variant("lag_8", "eight cycles behind", lag=8),
)


@dataclass(frozen=True)
class Experiment:
    """A name, its variants, and how many seeds and cycles of them are run unless told otherwise."""

    name: str
    what: str
    variants: Sequence[Variant]
    size: Size = field(default_factory=Size)


EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("hacks", "two published reward hacks, seen to happen and seen to be stopped", HACKS),
        Experiment("learning", "twelve cycles without collapse; a rate too high is stopped", LEARNING),
        Experiment(
            "thirdhack",
            "loopholes nobody wrote a rule for, noticed by the monitors",
            (DEFAULT,),
            Size(seeds=20),  # 180 planted runs: 45 tell 92 % from 80 in one experiment of two
        ),
        Experiment("ablation", "what each part of the objective is worth", ABLATION, Size(seeds=3)),
    )
}


def setups(experiment: Experiment, size: Size, shipped: str | None = None) -> list[Setup]:
    """All chains, seed by seed, so that what is there early compares all variants.

    `shipped` is the text of another spec in the place of the shipped one.
    """
    seeds = range(size.first_seed, size.first_seed + size.seeds)
    found = [variant.setup(seed, size, shipped) for seed in seeds for variant in experiment.variants]
    if experiment.name != "thirdhack":
        return found
    starts = [(base, after) for base in found for after in PLANTED_AFTER if after <= base.cycles]
    return found + [_planted(base, name, after) for base, after in starts for name in LOOPHOLES]


def _planted(base: Setup, name: str, after: int) -> Setup:
    """The chain that goes on from `base` with a loophole in its reward."""
    return replace(
        base,
        name=f"{name}_{after:02}",
        spec=planted(base.spec, name),
        signals=LOOPHOLES[name].signals,
        cycles=PLANTED_CYCLES,
        keep=(),
        base=f"{base.name}-{base.seed}",
        base_cycle=after,
        heldout_ends=base.heldout,
    )
