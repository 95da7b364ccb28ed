"""What a client is told when something is wrong: the OpenAI error shape, with codes of our own.

Every code is listed in `docs/http.md`. Not for: errors of commands (`stages/errors.py`).
"""

from __future__ import annotations

from typing import Any

from stages.errors import RtrlError


class ApiError(Exception):
    """One HTTP error answer.

    Attributes:
        status: HTTP status code.
        type: coarse class, as OpenAI names them (`invalid_request_error`, `service_unavailable`, ...).
        code: stable name a program can act on.
        message: one sentence for a person; never any content of a request.
        param: the request's field it is about, or None.
        retry_after: seconds after which trying again makes sense, or None.
        allow: the methods that the route takes, "" unless another one was used.
    """

    def __init__(
        self,
        status: int,
        type: str,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(code)
        self.status = status
        self.type = type
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.allow = allow

    def body(self, request_id: str = "") -> dict[str, Any]:
        """The JSON document of the answer; with the id of the request it answers, where that is known."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error, "request_id": request_id} if request_id else {"error": error}


class SwapError(Exception):
    """A swap that did not work. What is served then is in `ServedState`.

    Attributes:
        code: "swap_running", "drain_timeout", "overtaken", "swap_failed" (the old weights are served) or
            "engine_unknown" (they could not be loaded again; nothing is served).
        cause: the error of the update, if that is what failed.
    """

    def __init__(self, code: str, message: str, cause: RtrlError | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cause = cause


def invalid(message: str, *, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the request is not one this gateway can serve."""
    return ApiError(400, "invalid_request_error", code, message, param=param)


def unavailable(code: str, message: str, *, retry_after: int = 2) -> ApiError:
    """503: the request is fine; try again."""
    return ApiError(503, "service_unavailable", code, message, retry_after=retry_after)


def no_model(asked: Any, model: str) -> ApiError:
    """What a client is told that asks for a model other than `model`, or for none."""
    if not isinstance(asked, str):
        return invalid("model is required", param="model")
    return ApiError(
        404, "invalid_request_error", "model_not_found", f"the model served here is {model}", param="model"
    )  # fmt: skip
