"""Answers over HTTP: content as JSON, and why a request was refused."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noonward.errors import DataError, ScenarioError
from noonward.live.api.guard import RefusedError
from noonward.live.logs import REQUEST
from noonward.live.refusals import ClusterAwayError, NoSuchJobError, NotYoursError, Problem, TooLateError
from noonward.live.store.database import StoreError
from noonward.live.store.submit import KeyConflictError

_STATUS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (KeyConflictError, 409, "key"),
    (NoSuchJobError, 404, "unknown"),
    (NotYoursError, 403, "owner"),
    (TooLateError, 409, "state"),
    (StoreError, 503, "store"),
    (ClusterAwayError, 503, "cluster"),
    (DataError, 422, "invalid"),
    (ScenarioError, 422, "invalid"),
)
"""Status and code of each kind of error, the first that fits."""
_encode: Final = msgspec.json.Encoder().encode


def refusal(error: Exception) -> RefusedError | None:
    """Returns an error as a request is refused with it; None for a defect."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return RefusedError(status, code, str(error))
    return None


def answer(content: Any, status: int = 200) -> Response:
    """Returns content as JSON."""
    return Response(_encode(content), status, media_type="application/json")


def problem(status: int, code: str, message: str, after_s: float | None = None) -> Response:
    """Returns why a request was refused.

    Args:
        status: HTTP status.
        code: Word for programs.
        message: What is wrong and what to do.
        after_s: When it may be tried again, s; None: after five seconds where the service is at fault.
    """
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if after_s is not None or status == 503:
        headers = {"Retry-After": str(math.ceil(5.0 if after_s is None else after_s))}
    response = answer(Problem(code=code, message=message), status)
    response.headers.update(headers or {})
    return response


async def not_allowed(request: Request, error: Exception) -> Response:
    """Answers a method that there is not at a path."""
    return problem(405, "method", f"{request.method} is not possible at {request.url.path}")


async def defect(request: Request, error: Exception) -> Response:
    """Answers a request that met a defect of the service."""
    return problem(500, "defect", f"the service failed at this request; its log says more of {REQUEST.get()}")
