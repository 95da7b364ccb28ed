"""JSON schemas of tools, applied to the arguments of calls: in bounded work, whoever wrote the schema.

Schemas come from clients and from telemetry, arguments from models. So nothing is fetched, every keyword
costs steps and there are `STEPS` of them a check: a `$ref` that doubles at each level ends, the same way on
every machine. Not judged are `pattern`, `patternProperties` (regular expressions that may take exponential
time) and `unevaluated*`. A schema that has one of them is applied so that nothing is called wrong because of
it: without `not`, `if` and `maxContains`, and with `oneOf` as `anyOf`. So is one where a reference is met
that leads nowhere in it.
Not for: what a call is (`call_parser.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

STEPS = 100_000  # of one check: a third of a second. An ordinary one takes a few dozen
SCHEMA_STEPS = 300_000  # to find that a schema is one: 500 properties take 120,000
SET_STEPS = 600_000  # the same for all tools of a set: two seconds
ANSWER_STEPS = 50_000  # of all calls of an answer, where others wait for it: a sixth of a second
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNJUDGED = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties")
_NOT_MONOTONE = ("not", "if", "disallow", "maxContains")
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


class BadSchemaError(ValueError):
    """It is no JSON schema, or one that takes too long to apply."""


@dataclass
class Allowance:
    """What the checks of several calls may cost together, in steps."""

    left: int = ANSWER_STEPS


@dataclass
class _Work:
    """What a check may still cost, and what its parts cost that are not counted by keyword."""

    left: int
    per_anchor: int  # a reference by name searches the whole schema
    per_error: int  # an error quotes schema and arguments

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise BadSchemaError("it takes too long to apply")


_WORK: ContextVar[_Work] = ContextVar("_WORK")


class ToolSchema:
    """One tool's schema, found to be one. What that costs is taken off `allowance`, its set's.

    Raises BadSchemaError.
    """

    def __init__(self, schema: object, allowance: Allowance | None = None) -> None:
        # jsonschema takes 0.1 s to import: only who checks calls pays for it
        from jsonschema.validators import validator_for
        from referencing import Registry

        try:
            base = validator_for(schema)
            self._size = _size(schema)
            meta = _bounded(base, False)(base.META_SCHEMA)
            steps = SCHEMA_STEPS if allowance is None else min(SCHEMA_STEPS, allowance.left)
            if not self._applied(meta, schema, steps, 1, self._size, allowance):
                raise BadSchemaError("it is no JSON schema")
            # an empty registry: a remote $ref would be fetched
            self._lenient = _bounded(base, True)(schema, registry=Registry())
            judged = not _leaves_out(schema)
            self._validator = _bounded(base, False)(schema, registry=Registry()) if judged else self._lenient
        except BadSchemaError:
            raise
        except Exception as error:
            # what a stranger's schema makes the library raise is of many kinds: UnknownType, RecursionError,
            # KeyError, OverflowError, ValueError of a URL
            raise BadSchemaError(f"it cannot be read: {type(error).__name__}") from error

    def fits(self, arguments: str, allowance: Allowance | None = None) -> bool:
        """Whether a call's arguments (JSON text) do. What takes too long to apply fits nothing.

        Args:
            allowance: of this and further checks; what is used is taken off.
        """
        from referencing.exceptions import Unresolvable

        def applied(validator: Any) -> bool:
            steps = STEPS if allowance is None else min(STEPS, allowance.left)
            return self._applied(validator, value, steps, per_anchor, self._size + len(arguments), allowance)

        try:
            value = json.loads(arguments)
            per_anchor = 1 + self._size // 16
            try:
                return isinstance(value, dict) and applied(self._validator)
            except Unresolvable:
                return applied(self._lenient)
        except Exception:  # noqa: BLE001  see above; also arguments nested too deep, numbers too long
            return False

    def _applied(
        self,
        validator: Any,
        value: object,
        steps: int,
        per_anchor: int,
        length: int,
        allowance: Allowance | None = None,
    ) -> bool:
        work = _Work(steps, per_anchor, 1 + (length >> 10))
        token = _WORK.set(work)
        try:
            return bool(validator.is_valid(value))
        finally:
            _WORK.reset(token)
            if allowance is not None:
                allowance.left -= steps - max(work.left, 0)


def _size(schema: object) -> int:
    """Characters of it as JSON."""
    return len(json.dumps(schema))


def _leaves_out(schema: object) -> bool:
    """Whether it says what is not judged. Properties may be called so: their values are tables."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("pattern"), str) or any(name in one for name in _UNJUDGED[1:]):
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


@cache
def _bounded(base: Any, lenient: bool) -> Any:
    """The validator of a draft with keywords that count; stays itself where a part names another draft."""
    import attrs
    from jsonschema.validators import extend

    own: dict[str, Keyword | None] = {"enum": _enum, "const": _const, "uniqueItems": _unique_items}
    keywords = {name: own.get(name) or keyword for name, keyword in base.VALIDATORS.items()}
    left_out = (*_UNJUDGED, *(_NOT_MONOTONE if lenient else ()))
    for name in left_out:
        if name in keywords:
            keywords[name] = _nothing
    if lenient:
        keywords["additionalProperties"] = _without_patterns(base.VALIDATORS["additionalProperties"])
        keywords["contains"] = _contains
        if "oneOf" in keywords:
            keywords["oneOf"] = keywords["anyOf"]
        keywords |= {name: _where_it_leads(keywords[name]) for name in _REFERENCES if name in keywords}
    found = extend(base, {name: _counted(name, keyword) for name, keyword in keywords.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        _WORK.get().spend(1)
        return attrs.evolve(self, **changes)

    found.evolve = evolve
    return found


def _counted(name: str, keyword: Keyword) -> Keyword:
    """The keyword, at the price of what it may walk over."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        work = _WORK.get()
        work.spend(1 + _length(value) + _length(instance))
        if name in _REFERENCES and isinstance(value, str):
            work.spend(len(value) // 16 + (0 if value == "#" or value.startswith("#/") else work.per_anchor))
        for error in keyword(validator, value, instance, schema) or ():
            work.spend(work.per_error)
            yield error

    return counted


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Of a keyword that is not judged."""
    return iter(())


def _where_it_leads(reference: Keyword) -> Keyword:
    """Of what a reference that leads nowhere asks for, nobody knows anything."""
    from referencing.exceptions import Unresolvable

    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        with contextlib.suppress(Unresolvable):
            yield from reference(validator, value, instance, schema) or ()

    return keyword


def _without_patterns(additional: Keyword) -> Keyword:
    """Where some names are given by pattern, none is known to be additional."""

    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        return None if "patternProperties" in schema else additional(validator, value, instance, schema)

    return keyword


def _contains(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """`contains` without an upper bound."""
    if isinstance(instance, list):
        inner = validator.evolve(schema=value)
        if sum(inner.is_valid(one) for one in instance) < schema.get("minContains", 1):
            yield _error("too few items match")


def _enum(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    found = _key(instance)
    if all(_key(one) != found for one in value):
        yield _error("not one of the values")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if _key(value) != _key(instance):
        yield _error("not the value")


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if value and isinstance(instance, list) and len({_key(one) for one in instance}) < len(instance):
        yield _error("items are not unique")


def _key(value: object) -> str:
    """Equal for values that JSON schema calls equal (1 and 1.0, not 1 and true). Costs what it walks over."""
    parts: list[str] = []
    _write(value, parts, _WORK.get())
    return "".join(parts)


def _write(value: Any, parts: list[str], work: _Work) -> None:
    work.spend(1)
    if isinstance(value, list):
        parts.append("[")
        for one in value:
            _write(one, parts, work)
            parts.append(",")
        parts.append("]")
    elif isinstance(value, dict):
        parts.append("{")
        for name in sorted(value):
            _write(name, parts, work)
            _write(value[name], parts, work)
        parts.append("}")
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        parts.append(format(int(value), "x"))
    else:
        work.spend(len(value) >> 10 if isinstance(value, str) else 0)
        parts.append(json.dumps(value))


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)
