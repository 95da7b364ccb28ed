"""Schemas of strangers: applied in bounded work; what is not judged accuses nobody."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.harness.tool_schema import BadSchemaError, ToolSchema


def fits(schema: Any, value: Any) -> bool:
    return ToolSchema(schema).fits(json.dumps(value))


def _doubling(keyword: str, end: Any) -> dict[str, Any]:
    parts = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**parts, "a40": end}, "$ref": "#/$defs/a0"}


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
EVIL = {"type": "string", "pattern": "^(a+)+$"}
NOWHERE = {"$ref": "#/$defs/none"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": EVIL}}, {"a": "a" * 30 + "!"}),
        ({"properties": {"a": {"$schema": DRAFT_7, **EVIL}}}, {"a": "a" * 30 + "!"}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 30 + "!": 1}),
        ({"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, {"a" * 30 + "!": 1}),
        (_doubling("allOf", {}), {}),
        (_doubling("anyOf", {"type": "string"}), {"a": "x" * 1_000_000}),
        ({**_doubling("allOf", {}), "unevaluatedProperties": False}, {"a": 1}),
        (
            {"properties": {"a": {"uniqueItems": True}}},
            {"a": [[n] if n % 2 else {"a": n} for n in range(20_000)]},
        ),
        ({"properties": {"a": {"enum": [[n] if n % 2 else n for n in range(20_000)]}}}, {"a": "x"}),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {}),
    ],
)  # fmt: skip
def test_no_schema_takes_long(schema: Any, value: Any) -> None:
    began = time.thread_time()
    with contextlib.suppress(BadSchemaError):
        fits(schema, value)
    assert time.thread_time() - began < 6  # a second; the machine may be busy. Without a bound: hours


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^b"}}},
        {"properties": {"a": {"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}]}}},
        {"properties": {"a": {"not": {"pattern": "^b"}}}},
        {"properties": {"a": {"if": {"pattern": "^b"}, "then": {"type": "number"}}}},
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"b": {"contains": {"pattern": "^b"}, "maxContains": 1}}},
    ],
)
def test_patterns_accuse_nobody(schema: Any) -> None:
    assert fits(schema, {"a": "abc", "b": ["a", "a"]})


@pytest.mark.parametrize(
    ("schema", "fit"),
    [
        ({"properties": {"a": NOWHERE}}, True),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, NOWHERE]}}}, True),
        ({"properties": {"a": {"not": NOWHERE}}}, True),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, NOWHERE]}}}, True),
        ({"properties": {"a": {"if": NOWHERE, "then": {"type": "number"}}}}, True),
        ({"properties": {"a": {"allOf": [NOWHERE, {"type": "number"}]}}}, False),
        ({"properties": {"a": NOWHERE, "b": {"type": "string"}}}, False),
        ({"properties": {"a": NOWHERE}, "required": ["c"]}, False),
        ({"properties": {"c": NOWHERE}}, True),
        ({"properties": {"c": NOWHERE, "a": {"not": {"type": "string"}}}}, False),
    ],
)
@pytest.mark.parametrize("target", ["#/$defs/none", "#none", "https://x.example/a", "other.json#/a"])
def test_a_reference_that_leads_nowhere_accuses_nobody_and_the_rest_is_judged(
    schema: Any, fit: bool, target: str
) -> None:
    told = json.loads(json.dumps(schema).replace(NOWHERE["$ref"], target))
    assert fits(told, {"a": "abc", "b": ["a", "a"]}) is fit


def test_beside_patterns_the_rest_is_judged() -> None:
    schema = {
        "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"oneOf": [{"type": "null"}]}},
        "required": ["a"],
    }
    assert fits(schema, {"a": "x", "b": None})
    assert not fits(schema, {"a": 1})
    assert not fits(schema, {"b": None})
    assert not fits(schema, {"a": "x", "b": 1})


def test_a_property_may_be_called_pattern() -> None:
    schema = {"properties": {"pattern": {"type": "string"}}, "additionalProperties": False}
    assert fits(schema, {"pattern": "("})
    assert not fits(schema, {"pattern": 1})
    assert not fits(schema, {"pattern": "(", "path": "."})


def test_large_honest_ones_are_applied() -> None:
    properties = {f"p{n}": {"type": "string", "description": "x", "enum": ["a", "b"]} for n in range(500)}
    assert fits({"properties": properties, "required": sorted(properties)}, dict.fromkeys(properties, "a"))
    items = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    assert fits(items, {"a": ["x"] * 10_000})
    assert not fits(items, {"a": ["x"] * 10_000 + [1]})


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", '"', "1", "null", "[", ","]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(_VALUES, max_size=4), _VALUES)
@settings(max_examples=80, deadline=None)
def test_equality_is_that_of_the_library(values: list[Any], value: Any) -> None:
    from jsonschema import Draft202012Validator

    for schema, one in (
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": values}),
        ({"properties": {"a": {"enum": values}}}, {"a": value}),
        ({"properties": {"a": {"const": value}}}, {"a": value}),
    ):
        assert fits(schema, one) == Draft202012Validator(schema).is_valid(one)
