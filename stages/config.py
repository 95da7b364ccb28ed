"""Typed settings of a workspace: file < environment < `--set`. Unknown keys are errors.

    rtrl.toml     [train] learning_rate = 1e-4
    environment   RTRL_TRAIN__LEARNING_RATE=1e-4
    flag          --set train.learning_rate=1e-4

Tables are merged key by key, at every depth: a later layer replaces only what it names. Where the line
worked on is a population's, `[populations.NAME.SECTION]` of the file stands above its `[SECTION]`, and so in
the environment and among flags. What is wrong in a population's settings is an error whichever line it is.

Each section belongs to its stage (`stages/<name>/config.py`); this module puts them together and
turns what is wrong into one sentence that says where it stands. Not for: settings of a single run
(seed, references), which are flags.

Plain pydantic, not pydantic-settings: an error has to name the layer it came from, RTRL_WORKSPACE is a
path and no section, and the import costs every command 90 ms.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stages.ab.config import AbConfig
from stages.collect.config import CollectConfig
from stages.config_layers import (
    Layer,
    elsewhere,
    environment_layers,
    how_written,
    override_layer,
    refuse_misspelt,
    truth_for_number,
    where_set,
)
from stages.cycle_config import CycleConfig
from stages.deploy.config import DeployConfig
from stages.distill.config import DistillConfig
from stages.engine.config import EngineConfig
from stages.errors import InputMissingError, UsageError
from stages.eval.config import EvalConfig
from stages.gateway.config import GatewayConfig
from stages.monitor.config import MonitorConfig
from stages.population_config import NAME, OWN, PopulationConfig, labels_of
from stages.rollback.config import RollbackConfig
from stages.target.config import NAME as TARGET_NAME
from stages.target.config import TargetConfig
from stages.train.config import TrainConfig

DEFAULT_LINE = "auto"
_HINT = "docs/settings.md lists every setting"


class WorkspaceConfig(BaseModel):
    """What all stages of a workspace share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: str = Field("auto", pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="the checkpoint line worked on")
    serves: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9_.-]*)?$",
        description="the line that `rtrl serve` serves; by default `line`, or `auto` for a population's",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="default of --seed")


class Settings(BaseModel):
    """All settings of a workspace, validated, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspace: WorkspaceConfig = Field(default_factory=WorkspaceConfig)
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    collect: CollectConfig = Field(default_factory=CollectConfig)
    distill: DistillConfig = Field(default_factory=DistillConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    deploy: DeployConfig = Field(default_factory=DeployConfig)
    ab: AbConfig = Field(default_factory=AbConfig)
    rollback: RollbackConfig = Field(default_factory=RollbackConfig)
    cycle: CycleConfig = Field(default_factory=CycleConfig)
    monitor: MonitorConfig = Field(default_factory=MonitorConfig)
    targets: dict[str, TargetConfig] = Field(
        default_factory=dict, description="engines that run elsewhere, by a name of theirs"
    )
    populations: dict[str, PopulationConfig] = Field(
        default_factory=dict, description="populations with a line of their own, by its name"
    )

    @model_validator(mode="after")
    def _one_line_each(self) -> Settings:
        if self.workspace.serves in self.populations:
            raise ValueError(f"workspace.serves is {self.workspace.serves}, which is a population's line")
        named = [(label, name) for name, each in self.populations.items() for label in labels_of(name, each)]
        for label, name in named:
            lines = sorted({line for other, line in named if other == label})
            if len(lines) > 1:
                raise ValueError(
                    f"population {label} is of the lines {' and '.join(lines)}: name it in {name} only"
                )
        return self

    @model_validator(mode="after")
    def _what_drafting_leaves_out(self) -> Settings:
        if self.engine.drafts and self.gateway.sampling.min_p:
            how = "draft_tokens" if self.engine.draft_tokens else "extra_args, which drafts,"
            raise ValueError(f"engine.{how} and gateway.sampling.min_p exclude each other")
        return self

    @classmethod
    def load(cls, path: Path, overrides: Sequence[str] = ()) -> Settings:
        """Settings of the workspace file at `path`.

        Args:
            overrides: `section.key=value` texts.

        Raises:
            InputMissingError: (exit 5) no such file.
            UsageError: (exit 2) not TOML, an unknown key, a bad value, or a contradiction.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
        except FileNotFoundError as error:
            raise InputMissingError(
                f"settings file {path} is missing", hint="`rtrl init` writes one"
            ) from error
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise UsageError(f"{path} is not UTF-8 (line {line})", hint="save it as UTF-8") from error
        return cls.parse(text, source=str(path), overrides=overrides)

    @classmethod
    def parse(cls, text: str, *, source: str, overrides: Sequence[str] = ()) -> Settings:
        """Settings from TOML text, the environment and overrides. Raises UsageError (exit 2)."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{source} is not valid TOML: {error}", hint="correct that line") from error
        except RecursionError as error:
            raise UsageError(f"{source} nests deeper than any setting", hint=_HINT) from error
        refuse_misspelt(os.environ, _keys_of(cls))
        kinds = [[(source, document)], environment_layers(os.environ), [*map(override_layer, overrides)]]
        layers = [each for kind in kinds for each in kind]
        for where, layer in layers:
            _check_keys(cls, where, layer)
        merged = _merged(layers)
        line = merged.get("workspace", {}).get("line", DEFAULT_LINE)
        for other in merged.get("populations", {}):  # what is wrong there is told before somebody works on it
            if other != line:
                cls._of_line(other, kinds)
        return cls._of_line(line, kinds)

    @classmethod
    def _of_line(cls, line: object, kinds: Sequence[Sequence[Layer]]) -> Settings:
        """The settings as they are where `line` is worked on, validated. Raises UsageError."""
        layers = [each for kind in kinds for each in (*kind, *_of_population(line, kind))]
        given = _serving(_merged(layers), layers)
        try:
            settings = cls.model_validate(given)
        except ValidationError as error:
            raise _explain(error, layers) from error
        if path := truth_for_number(given, settings):
            what = f"setting {'.'.join(path)} in {where_set(layers, path)}"
            raise UsageError(f"{what}: Input should be a number, not true or false", hint=_HINT)
        return settings


def _merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """The layers put together key by key, at every depth; the later one wins."""
    merged: dict[str, Any] = {}
    for _, layer in layers:
        merged = _over(merged, layer)
    return merged


def _of_population(line: object, layers: Sequence[Layer]) -> list[Layer]:
    """What layers of one kind say for that line alone: layers that stand above them."""
    found = []
    for where, layer in layers:
        own = layer.get("populations", {}).get(line, {}) if isinstance(line, str) else {}
        if sections := {name: own[name] for name in OWN if name in own}:
            found.append((f"[populations.{line}] of {where}", sections))
    return found


def _serving(merged: dict[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """With `workspace.serves`: the last line named that is no population's."""
    workspace = merged.get("workspace", {})
    if not workspace.get("serves"):
        named = [layer.get("workspace", {}).get("line", "") for _, layer in layers]
        plain = [each for each in named if isinstance(each, str) and each]
        plain = [each for each in plain if each not in merged.get("populations", {})]
        workspace = {**workspace, "serves": plain[-1] if plain else DEFAULT_LINE}
    return {**merged, "workspace": workspace}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _over(below[key], value)
        for key, value in above.items()
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
    }
    return {**below, **above, **both}


def _keys_of(settings: type[Settings]) -> dict[str, set[str]]:
    """Sections with the names of their settings; those whose sections have names of their own have none."""
    found = {}
    for section, field in settings.model_fields.items():
        model = field.annotation
        found[section] = (
            set(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else set()
        )
    return found


def _check_keys(settings: type[Settings], where: str, layer: Mapping[str, Any]) -> None:
    for section, values in layer.items():
        field = settings.model_fields.get(section)
        if field is None:
            raise _unknown(f"section [{section}]", section, where, list(settings.model_fields))
        if not isinstance(values, Mapping):
            raise _no_section(section, where)
        if section == "targets":
            for name, each in values.items():
                _check_target(name, each, where)
            continue
        if section == "populations":
            _check_populations(settings, where, values)
            continue
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, BaseModel)
        known = field.annotation.model_fields
        for key in values:
            if key not in known:
                unknown = _unknown(f"setting {section}.{key}", key, where, list(known))
                hint = how_written(key, known) or elsewhere(key, _keys_of(settings)) or unknown.hint
                raise UsageError(unknown.message, hint=hint)


def _check_populations(settings: type[Settings], where: str, named: Mapping[str, Any]) -> None:
    """Names, their keys, and the settings of stages within, as if they stood in the stages' sections."""
    known = list(PopulationConfig.model_fields)
    for name, values in named.items():
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} in {where} cannot name a population",
                hint="small letters, digits, dots, dashes and underscores, 64 at most",
            )
        if not isinstance(values, Mapping):
            raise _no_section(f"populations.{name}", where)
        for key, value in values.items():
            if key not in known:
                raise _unknown(f"setting populations.{name}.{key}", key, where, known)
            if key in OWN:
                _check_keys(settings, f"populations.{name} in {where}", {key: value})


def _check_target(name: str, values: object, where: str) -> None:
    if not TARGET_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} in {where} cannot name a target",
            hint="letters, digits, dots, dashes and underscores; numbers are engines of this machine",
        )
    if not isinstance(values, Mapping):
        raise _no_section(f"targets.{name}", where)
    known = list(TargetConfig.model_fields)
    for key in values:
        if key not in known:
            raise _unknown(f"setting targets.{name}.{key}", key, where, known)


def _no_section(name: str, where: str) -> UsageError:
    return UsageError(f"{name} in {where} is a value, and must be a section", hint=f"write [{name}]")


def _unknown(what: str, name: str, where: str, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return UsageError(f"unknown {what} in {where}", hint=hint)


def _explain(error: ValidationError, layers: Sequence[Layer]) -> UsageError:
    """The first thing wrong, with where it was set."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    what = "sections contradict each other"
    if path:
        what = f"setting {'.'.join(path)} in {where_set(layers, path)}"
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{what}: {message}", hint=_HINT)
