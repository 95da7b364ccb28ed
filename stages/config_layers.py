"""Settings given outside of `rtrl.toml`: variables of the environment and `--set`, as layers.

Not here: what the settings are, and which layer wins (`config.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stages.errors import UsageError

_VARIABLE = re.compile(r"RTRL_([A-Z]+)__([A-Z0-9_]+)")
_NAMED = ("populations", "targets")  # sections of sections: [targets.NAME]
_EXAMPLE = "train.learning_rate=1e-4"
Layer = tuple[str, dict[str, Any]]  # where it stands, nested settings


def refuse_misspelt(environment: Mapping[str, str], known: Mapping[str, Collection[str]]) -> None:
    """Refuse variables that nearly are a setting's: passed over, they would leave it as it was, unsaid.

    `known` are the settings' names by section. Raises UsageError (exit 2): small letters
    (`rtrl_deploy__canary_share`), or one underscore where two belong (`RTRL_DEPLOY_CANARY_SHARE`).
    """
    single = {f"RTRL_{section}_{key}".upper(): (section, key) for section in known for key in known[section]}
    for name in sorted(environment):
        upper = name.upper()
        meant = upper if name != upper and _VARIABLE.fullmatch(upper) else ""
        if upper in single:
            meant = "RTRL_{}__{}".format(*single[upper]).upper()
        for section in _NAMED:
            if upper.startswith(f"RTRL_{section}_".upper()) and not _VARIABLE.fullmatch(upper):
                meant = f"RTRL_{section}__NAME__KEY".upper()
        if meant:
            raise UsageError(f"environment variable {name} sets nothing", hint=f"did you mean {meant}?")


def environment_layers(environment: Mapping[str, str]) -> list[Layer]:
    """One layer per variable `RTRL_SECTION__KEY`; `RTRL_TARGETS__NAME__KEY` where sections have names."""
    layers: list[Layer] = []
    for name in sorted(environment):
        if match := _VARIABLE.fullmatch(name):
            section, key = match[1].lower(), match[2].lower()
            keys = key.split("__") if section in _NAMED else [key]
            layers.append(
                (f"environment variable {name}", {section: _nested(keys, _value(environment[name]))})
            )
    return layers


def override_layer(text: str) -> Layer:
    """The layer of one `section.key=value`, named without the value, which may be a secret.

    Raises UsageError (exit 2).
    """
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot or not key:
        raise UsageError(f"--set {name!r} is not section.key=value", hint=f"for example --set {_EXAMPLE}")
    keys = key.split(".") if section in _NAMED else [key]
    return f"--set {name.strip()}", {section: _nested(keys, _value(value.strip()))}


def how_written(key: str, known: Mapping[str, FieldInfo]) -> str:
    """How `judge.votes` of `--set`, or `judge__votes` of the environment, is written; "" for none such."""
    table, *below = re.split(r"\.|__", key, maxsplit=1)
    kind = known[table].annotation if below and table in known else None
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return f"a table is written as JSON: {table}='{{\"{below[0]}\": ...}}'"
    return ""


def elsewhere(key: str, known: Mapping[str, Collection[str]]) -> str:
    """That other sections have a setting of this name, or "". `known` as for `refuse_misspelt`."""
    found = [f"{section}.{key}" for section in sorted(known) if key in known[section]]
    return f"did you mean {' or '.join(found)}?" if found else ""


def truth_for_number(given: Mapping[str, Any], settings: object) -> list[str]:
    """Where `given` has the first `true` or `false` that pydantic took for 1 or 0; empty for nowhere.

    `settings` is what pydantic made of it. A learning rate of `true` was one of 1.
    """
    for key, raw in given.items():
        value = settings[key] if isinstance(settings, Mapping) else getattr(settings, key)
        if isinstance(raw, Mapping):
            if below := truth_for_number(raw, value):
                return [key, *below]
        elif isinstance(raw, bool) and isinstance(value, int | float) and not isinstance(value, bool):
            return [key]
    return []


def where_set(layers: Sequence[Layer], path: Sequence[str]) -> str:
    """The last layer that sets what stands at `path`; where it is missing, what it would be part of."""
    for length in range(len(path), 0, -1):
        if found := [name for name, layer in layers if _names(layer, path[:length])]:
            return found[-1]
    return "the defaults"


def _names(layer: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a layer sets what stands at `path`, or something it is part of."""
    value: Any = layer
    for key in path:
        if not isinstance(value, Mapping):
            return True
        if key not in value:
            return False
        value = value[key]
    return bool(path)


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    return {keys[0]: _nested(keys[1:], value) if keys[1:] else value}


def _value(text: str) -> Any:
    """Lists, tables and `null` are read as JSON; the rest stays text, which pydantic converts by type."""
    if text[:1] in ("[", "{") or text == "null":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{text[:200]!r} is not valid JSON", hint="lists and tables are JSON") from error
    return text
