"""`GET /v1/models`: the one model there is."""

from __future__ import annotations

from typing import Any

from stages.gateway.errors import no_model

MODEL = "/v1/models/"  # and a name


class Models:
    """A list of one.

    Args:
        name: what clients call the model; it stays when the weights change.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def told(self, path: str) -> dict[str, Any]:
        """The answer to that path: the list, or the model it names. Raises ApiError 404."""
        card = {"id": self._name, "object": "model", "created": 0, "owned_by": "rtrl"}
        if not path.startswith(MODEL):
            return {"object": "list", "data": [card]}
        asked = path.removeprefix(MODEL)
        if asked != self._name:
            raise no_model(asked, self._name)
        return card
