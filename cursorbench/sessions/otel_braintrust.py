"""Spans of Braintrust's SDK (0.37, its OpenTelemetry mode): messages, model and scores. For `otel`.

A span of a model's call has `type` `llm` in `braintrust.span_attributes`; what others have is a program's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cursorbench.sessions.items import Feedback, Place
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import json_value, list_of, table_of, text_of
from cursorbench.sessions.records import number

_ATTRIBUTES, _SCORES = "braintrust.span_attributes", "braintrust.scores"


def asked(told: dict[str, Any]) -> object:
    """The messages that the model was sent, None in a span of another kind."""
    return told.get("braintrust.input_json", told.get("braintrust.input")) if _is_call(told) else None


def answered(told: dict[str, Any]) -> object:
    """The messages that it answered, which may stand in OpenAI's choices."""
    given = told.get("braintrust.output_json", told.get("braintrust.output")) if _is_call(told) else None
    choices = list_of(json_value(given))
    return [table_of(one).get("message", one) for one in choices] if choices else given


def model(told: dict[str, Any]) -> str:
    """The model that its metadata names."""
    return text_of(table_of(json_value(told.get("braintrust.metadata"))).get("model"))


def scores(record: Record, session: str, place: Place) -> Iterator[Feedback]:
    """What scorers said of the span; of other values than numbers Braintrust takes none."""
    target = text_of(record.attributes.get("gen_ai.response.id")) or record.span
    for name, score in table_of(json_value(record.attributes.get(_SCORES))).items():
        if (value := number(score)) is not None:
            yield Feedback(session=session, at=record.at, place=place, name=name, target=target, value=value)


def _is_call(told: dict[str, Any]) -> bool:
    return table_of(json_value(told.get(_ATTRIBUTES))).get("type") == "llm"
