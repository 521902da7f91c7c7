"""The description of the interface, made from the types of its answers."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from noonward import __version__
from noonward.live.accounts import Savings
from noonward.live.api import shown
from noonward.live.demand.events import EventCall
from noonward.live.demand.shown import GridEventCalled, GridEventShown, MeterShown
from noonward.live.output import JobOutput
from noonward.live.refusals import Problem
from noonward.live.requests import JobRequest
from noonward.live.tenants import TenantShown
from noonward.live.why import Plan, Why

_NUMBER: Final = {"type": "integer", "minimum": 0}
_PAGE: Final = (("limit", _NUMBER), ("before", _NUMBER))
_JOB: Final = {"name": "job", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
_SITE: Final = {"name": "site", "in": "path", "required": True, "schema": {"type": "string"}}
_ROUTES: Final[tuple[tuple[str, str, str, Any, Any, tuple[int, ...], tuple[tuple[str, Any], ...]], ...]] = (
    ("post", "/v1/jobs", "Submit one job or a batch", JobRequest | list[JobRequest], shown.Submitted,
     (201, 200, 400, 408, 409, 413, 415, 422, 503), ()),
    ("get", "/v1/jobs", "List jobs, newest first", None, shown.JobList, (200, 422, 503),
     (("state", {"type": "string"}), ("site", {"type": "string"}), ("owner", {"type": "string"}), *_PAGE)),
    ("get", "/v1/jobs/{job}", "Show a job", None, shown.JobShown, (200, 404, 503), ()),
    ("patch", "/v1/jobs/{job}", "Pin a job to a site or veto sites", shown.Change, shown.JobShown,
     (200, 400, 404, 408, 409, 413, 415, 422, 503), ()),
    ("get", "/v1/jobs/{job}/why", "Why a job is where it is", None, Why, (200, 404, 503), ()),
    ("get", "/v1/jobs/{job}/output", "The end of what a job has printed", None, JobOutput, (200, 404, 422, 503),
     (("bytes", _NUMBER),)),
    ("post", "/v1/jobs/{job}/cancel", "Cancel a job", None, shown.JobShown, (202, 404, 503), ()),
    ("post", "/v1/jobs/{job}/hold", "Hold a waiting job", None, shown.JobShown, (200, 404, 409, 503), ()),
    ("post", "/v1/jobs/{job}/release", "Let a held job go on", None, shown.JobShown, (200, 404, 409, 503), ()),
    ("get", "/v1/sites", "List the sites", None, list[shown.SiteShown], (200, 503), ()),
    ("patch", "/v1/sites/{site}", "Drain a site, switch dispatch to it", shown.SiteChange, shown.SiteShown,
     (200, 400, 404, 408, 413, 415, 422, 503), ()),
    ("get", "/v1/tenants", "List the tenants: quotas, use, waiting jobs", None, list[TenantShown], (200, 503), ()),
    ("get", "/v1/plans", "What is expected of the coming hours", None, list[Plan], (200, 503), ()),
    ("get", "/v1/savings", "What was saved against the baseline", None, Savings, (200, 404, 422, 503),
     (("days", {"type": "integer", "minimum": 1, "maximum": 31}),)),
    ("get", "/v1/decisions", "List decisions, newest first", None, list[shown.DecisionShown], (200, 422, 503),
     (("job", _NUMBER), *_PAGE)),
    ("get", "/v1/audit", "List what operators changed, newest first", None, list[shown.AuditShown], (200, 422, 503),
     _PAGE),
    ("get", "/v1/events", "List events, or stream them", None, list[shown.Event], (200, 422, 503),
     (("after", _NUMBER), ("limit", _NUMBER))),
    ("get", "/v1/meters", "What the metered sites draw", None, list[MeterShown], (200, 503), ()),
    ("get", "/v1/grid-events", "List grid events, newest first", None, list[GridEventShown], (200, 422, 503),
     (("limit", _NUMBER),)),
    ("post", "/v1/grid-events", "Call a grid event", EventCall, GridEventCalled,
     (201, 400, 408, 413, 415, 422, 503), ()),
    ("post", "/v1/grid-events/{job}/cancel", "Cancel a grid event", None, GridEventShown, (200, 404, 409, 503), ()),
    ("get", "/v1/service", "The service itself", None, shown.ServiceShown, (200, 503), ()),
    ("post", "/v1/policy", "Let another policy decide", shown.PolicyChange, shown.ServiceShown,
     (200, 400, 408, 413, 415, 422, 503), ()),
)  # fmt: skip
"""Method, path, summary, body, answer, statuses besides 401, 403 and 429, query parameters."""
_WORDS: Final = {
    200: "Answer", 201: "Stored", 202: "Accepted", 400: "Not JSON", 401: "No valid token", 403: "Too little scope",
    404: "Unknown", 408: "Too slow", 409: "Conflict", 413: "Too large", 415: "Not JSON", 422: "Not as described",
    429: "Too often", 503: "Try again later",
}  # fmt: skip


@functools.cache
def document() -> dict[str, Any]:
    """Returns the OpenAPI document."""
    kinds = [kind for route in _ROUTES for kind in route[3:5] if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    schema_of = dict(zip((str(kind) for kind in [*kinds, Problem]), schemas, strict=True))
    paths: dict[str, Any] = {}
    for method, path, summary, body, given, statuses, query in _ROUTES:
        paths.setdefault(path, {})[method] = {
            "summary": summary,
            "parameters": [
                *([_JOB] if "{job}" in path else [_SITE] if "{site}" in path else []),
                *({"name": name, "in": "query", "schema": schema} for name, schema in query),
            ],
            **({"requestBody": {"required": True, "content": _json(schema_of[str(body)])}} if body else {}),
            "responses": {
                str(status): {
                    "description": _WORDS[status],
                    "content": _json(schema_of[str(given if status < 300 else Problem)]),
                }
                for status in (*statuses, 401, 403, 429)
            },
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Noonward live", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
