"""A client of the service, for programs and for the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from noonward.errors import MissingExtraError, NoonwardError
from noonward.live.accounts import Savings
from noonward.live.api.shown import (
    AuditShown,
    DecisionShown,
    Event,
    JobList,
    JobShown,
    ServiceShown,
    SiteShown,
    Submitted,
)
from noonward.live.demand.events import EventCall
from noonward.live.demand.shown import GridEventCalled, GridEventShown, MeterShown
from noonward.live.output import JobOutput
from noonward.live.refusals import Problem
from noonward.live.requests import JobRequest
from noonward.live.tenants import TenantShown
from noonward.live.why import Plan, Why

ADDRESS: Final = "http://127.0.0.1:8470"
"""Where a service listens unless its configuration says otherwise."""
TOKEN_VARIABLE: Final = "NOONWARD_TOKEN"
"""Environment variable that holds the token."""
T = TypeVar("T")


def as_json(found: Any) -> str:
    """Returns an answer of the service as indented JSON, as its interface gives it."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


class ServiceError(NoonwardError):
    """The service did not answer, or refused.

    Args:
        message: What it said.
        status: HTTP status; 0 if it did not answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Talks to a service.

    Args:
        address: Its address.
        token: Token; None: the environment variable NOONWARD_TOKEN, if it is set.
        timeout_s: How long an answer may take, s.
        transport: httpx transport, for tests.

    Raises:
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(
        self, address: str = ADDRESS, token: str | None = None, *, timeout_s: float = 30.0, transport: Any = None
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(error.name or "httpx", "live") from error
        token = token or os.environ.get(TOKEN_VARIABLE)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._httpx = httpx
        self._client = httpx.Client(base_url=address, headers=headers, timeout=timeout_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def submit(self, *jobs: JobRequest, key: str | None = None) -> Submitted:
        """Submits jobs; returns when they are on the service's disk.

        Args:
            jobs: Jobs.
            key: Idempotency key: the same call with the same key submits nothing twice.

        Raises:
            ServiceError: It did not answer or refused; without a key it is open whether the jobs were stored.
        """
        body = msgspec.json.encode(jobs[0] if len(jobs) == 1 else jobs)
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        return self._call("POST", "/v1/jobs", Submitted, content=body, headers=headers)

    def job(self, job: int) -> JobShown:
        """Returns a job."""
        return self._call("GET", f"/v1/jobs/{job}", JobShown)

    def jobs(
        self, *, state: str | None = None, site: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[JobShown]:
        """Returns the newest jobs, of a state, a site or an owner if one is given."""
        given = {"state": state, "site": site, "owner": owner, "limit": str(limit)}
        query = {name: value for name, value in given.items() if value is not None}
        return self._call("GET", "/v1/jobs", JobList, params=query).jobs

    def why(self, job: int) -> Why:
        """Returns why a job is where it is."""
        return self._call("GET", f"/v1/jobs/{job}/why", Why)

    def cancel(self, job: int) -> JobShown:
        """Cancels a job."""
        return self._call("POST", f"/v1/jobs/{job}/cancel", JobShown)

    def hold(self, job: int) -> JobShown:
        """Holds a waiting job."""
        return self._call("POST", f"/v1/jobs/{job}/hold", JobShown)

    def release(self, job: int) -> JobShown:
        """Lets a held job go on."""
        return self._call("POST", f"/v1/jobs/{job}/release", JobShown)

    def steer(self, job: int, **changes: str | Sequence[str] | None) -> JobShown:
        """Pins a waiting job (``site``) or vetoes sites (``not_sites``)."""
        return self._call("PATCH", f"/v1/jobs/{job}", JobShown, json=changes)

    def sites(self) -> list[SiteShown]:
        """Returns the sites as they are now."""
        return self._call("GET", "/v1/sites", list[SiteShown])

    def drain(self, site: str, drained: bool = True) -> SiteShown:
        """Stops starts at a site, or resumes them."""
        return self._call("PATCH", f"/v1/sites/{site}", SiteShown, json={"drained": drained})

    def dispatch(self, site: str, on: bool) -> SiteShown:
        """Stops or resumes the hand-over of jobs to a site's cluster."""
        return self._call("PATCH", f"/v1/sites/{site}", SiteShown, json={"dispatch": on})

    def tenants(self) -> list[TenantShown]:
        """Returns the tenants as they are now; none where the scenario states none."""
        return self._call("GET", "/v1/tenants", list[TenantShown])

    def plans(self) -> list[Plan]:
        """Returns what is expected of every site in the coming 24 hours."""
        return self._call("GET", "/v1/plans", list[Plan])

    def savings(self, days: int = 7) -> Savings:
        """Returns what was saved in the last days (1 to 31) against the reference policy."""
        return self._call("GET", "/v1/savings", Savings, params={"days": str(days)})

    def decisions(self, job: int | None = None, limit: int = 100) -> list[DecisionShown]:
        """Returns the newest decisions, of one job if it is given, with what was known when each was made."""
        query = {"limit": str(limit)} | ({} if job is None else {"job": str(job)})
        return self._call("GET", "/v1/decisions", list[DecisionShown], params=query)

    def audit(self, limit: int = 100) -> list[AuditShown]:
        """Returns what operators changed last."""
        return self._call("GET", "/v1/audit", list[AuditShown], params={"limit": str(limit)})

    def meters(self) -> list[MeterShown]:
        """Returns what the metered sites draw now."""
        return self._call("GET", "/v1/meters", list[MeterShown])

    def grid_events(self, limit: int = 100) -> list[GridEventShown]:
        """Returns the newest grid events, and how they were kept."""
        return self._call("GET", "/v1/grid-events", list[GridEventShown], params={"limit": str(limit)})

    def call_event(self, call: EventCall) -> GridEventCalled:
        """Calls a grid event."""
        headers = {"Content-Type": "application/json"}
        return self._call(
            "POST", "/v1/grid-events", GridEventCalled, content=msgspec.json.encode(call), headers=headers
        )

    def cancel_event(self, number: int) -> GridEventShown:
        """Cancels a grid event that has not ended."""
        return self._call("POST", f"/v1/grid-events/{number}/cancel", GridEventShown)

    def output(self, job: int, *, most: int = 65_536) -> JobOutput:
        """Returns the end of what a job has printed, at most so many bytes."""
        return self._call("GET", f"/v1/jobs/{job}/output", JobOutput, params={"bytes": most})

    def service(self) -> ServiceShown:
        """Returns the service itself."""
        return self._call("GET", "/v1/service", ServiceShown)

    def use_policy(self, policy: str) -> ServiceShown:
        """Lets another policy decide from now on."""
        return self._call("POST", "/v1/policy", ServiceShown, json={"policy": policy})

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yields the events so far after a number."""
        while found := self._call("GET", "/v1/events", list[Event], params={"after": str(after)}):
            yield from found
            after = found[-1].id

    def _call(self, method: str, path: str, kind: type[T], **given: Any) -> T:
        try:
            response = self._client.request(method, path, **given)
        except self._httpx.HTTPError as error:
            raise ServiceError(
                f"no answer from {self._client.base_url}: {error}; start it with 'noonward serve', or name another "
                "address with --address"
            ) from error
        if response.is_success:
            return msgspec.json.decode(response.content, type=kind)
        try:
            message = msgspec.json.decode(response.content, type=Problem).message
        except msgspec.DecodeError:
            message = f"status {response.status_code}"
        raise ServiceError(message, response.status_code)
