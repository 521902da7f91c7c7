"""The forms of the pages: submit a job, and what an operator changes."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noonward.errors import DataError, NoonwardError
from noonward.live import operator
from noonward.live.api import shown
from noonward.live.api.answers import refusal
from noonward.live.api.guard import RefusedError
from noonward.live.demand.events import EventCall
from noonward.live.requests import JobRequest
from noonward.live.store.submit import submission
from noonward.live.tokens import Scope
from noonward.live.web.entry import own_path, to
from noonward.live.web.pages import Pages
from noonward.live.web.sessions import Visitor

_NUMBERS: Final = ("work", "gpus_min", "gpus_max", "data_gb", "retries", "priority")
_TEXTS: Final = ("name", "command", "class", "origin", "site", "key")


class Forms:
    """What the pages' forms do; each needs its visitor's word and scope.

    Args:
        pages: The pages.
    """

    def __init__(self, pages: Pages) -> None:
        self.pages, self.entry, self.api, self.controller = pages, pages.entry, pages.api, pages.controller

    def routes(self) -> list[Route]:
        """Returns the routes."""

        def post(path: str, scope: Scope, handler: Callable[..., Awaitable[Response]]) -> Route:
            return Route(path, self.entry.guarded(scope, self.entry.with_fields(handler)), methods=["POST"])

        return [
            Route("/submit", self.entry.guarded("submit", self.submit_page)),
            post("/submit", "submit", self.submit),
            post("/jobs/{job:job}/{action}", "submit", self.change_job),
            post("/sites/{site}/switch", "admin", self.switch_site),
            post("/policy", "admin", self.use_policy),
            post("/grid-events", "admin", self.call_event),
            post("/grid-events/{job:job}/cancel", "admin", self.cancel_event),
        ]

    # Jobs.

    async def submit_page(self, request: Request, visitor: Visitor) -> Response:
        """Shows an empty form for a job."""
        return await self._submit_page(request, visitor, {}, "", 200)

    async def _submit_page(
        self, request: Request, visitor: Visitor, fields: dict[str, str], message: str, status: int
    ) -> Response:
        checker = self.api.checker
        fleet = self.controller.setup.scenario.fleet
        timed = {name: of.time for kind in fleet.gpu_types.values() for name, of in kind.classes.items()}
        given = {"gpus_min": "1", "key": f"page-{secrets.token_hex(8)}", **fields}
        return await self.pages.show(
            request, visitor, "submit.html", status, title="Submit a job", message=message, given=given,
            classes=checker.classes, ingress=checker.ingress, largest_gang=checker.largest_gang,
            ranked=checker.priorities is not None,
            by_duration=all(timed[name] == "duration" for name in checker.classes),
        )  # fmt: skip

    async def submit(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Submits a job; one that is not valid is shown again with what is wrong."""
        try:
            row, who = self.api.checker.row(_job_of(fields)), visitor.holder.name
            limit = self.api.limit_of(who)
            self.api.check_limits(limit, [row])
            check = None if limit is None else limit.check_waiting
            ids, new = await run_in_threadpool(self.api.store.do, submission([row], who, check))
        except NoonwardError as error:
            known = refusal(error)
            status = 422 if known is None else known.status
            return await self._submit_page(request, visitor, fields, str(error), status)
        self.controller.take_new([row])
        said = f"Job {ids[0]} is submitted." if new else f"Job {ids[0]} was submitted by this form before."
        return to(f"/jobs/{ids[0]}", said)

    async def change_job(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Holds, releases, cancels, pins a job, or vetoes sites for it."""
        job, action, who = int(request.path_params["job"]), request.path_params["action"], visitor.holder.name
        only_of = visitor.holder.only_own
        sites = [site for site in self.controller.setup.sites if fields.get(f"not_{site}")]
        pin = fields.get("site") or None
        actions: dict[str, tuple[Callable[[], None], str]] = {
            "hold": (lambda: operator.hold_job(self.controller, job, True, who, only_of=only_of), "is held"),
            "release": (lambda: operator.hold_job(self.controller, job, False, who, only_of=only_of), "is let go"),
            "cancel": (lambda: operator.cancel_job(self.controller, job, who, only_of=only_of), "is cancelled"),
            "steer": (
                lambda: operator.steer_job(
                    self.controller, job, who, pin=pin, unpin=pin is None, veto=sites, only_of=only_of
                ),
                "is steered",
            ),
        }
        if action not in actions:
            raise RefusedError(404, "unknown", f"there is no job {job}, or nothing like {action}.")
        act, what = actions[action]
        await run_in_threadpool(act)
        return to(f"/jobs/{job}", f"Job {job} {what}.")

    # Sites and policy.

    async def switch_site(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Drains a site or opens it; switches dispatch to it."""
        site = request.path_params["site"]
        changes = {
            "drain": (shown.SiteChange(drained=True), "is drained: nothing more starts there"),
            "open": (shown.SiteChange(drained=False), "is open"),
            "dispatch-off": (shown.SiteChange(dispatch=False), "is handed nothing until dispatch is on again"),
            "dispatch-on": (shown.SiteChange(dispatch=True), "is handed its jobs"),
        }
        if fields.get("what") not in changes:
            raise RefusedError(422, "invalid", f"what must be one of {', '.join(changes)}.")
        change, words = changes[fields["what"]]
        await run_in_threadpool(self.api.switch_site, site, visitor.holder.name, change)
        return to(own_path(fields.get("back")), f"{site} {words}.")

    async def use_policy(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Lets another policy decide."""
        policy = fields.get("policy", "").strip()
        await run_in_threadpool(self.api.use_policy, visitor.holder.name, policy)
        return to("/", f"Policy {policy} decides from now on.")

    # Grid events.

    async def call_event(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Calls a grid event."""
        percent, hours = _number_of(fields, "cut_percent"), _number_of(fields, "hours")
        call = EventCall(
            site=fields.get("site", ""),
            cut=None if percent is None else percent / 100,
            target_kw=_number_of(fields, "target_kw"),
            hours=3.0 if hours is None else hours,
            notice_min=_number_of(fields, "notice_min"),
        )
        called = await run_in_threadpool(self.api.called, call, visitor.holder.name)
        return to("/grid", f"Grid event {called.event.id} at {called.event.site} is called.")

    async def cancel_event(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Cancels a grid event."""
        number = int(request.path_params["job"])
        await run_in_threadpool(self.api.cancelled, number, visitor.holder.name)
        return to("/grid", f"Grid event {number} is cancelled.")


def _number_of(fields: dict[str, str], name: str) -> float | None:
    """Returns a number of a form; None where the field is empty.

    Raises:
        DataError: It is none.
    """
    text = fields.get(name, "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise DataError(f"{name.replace('_', ' ')} is {text!r}; it must be a number") from None


def _job_of(fields: dict[str, str]) -> JobRequest:
    """Returns the job that a form describes.

    Raises:
        DataError: A field is missing or out of range.
    """
    content: dict[str, Any] = {name: fields[name].strip() for name in _TEXTS if fields.get(name, "").strip()}
    for name in (*_NUMBERS, "max_delay_h"):
        text = fields.get(name, "").strip()
        if not text:
            continue
        try:
            content[name] = int(text) if name in ("gpus_min", "gpus_max", "retries", "priority") else float(text)
        except ValueError:
            raise DataError(f"{name.replace('_', ' ')} is {text!r}; it must be a number") from None
    if "max_delay_h" in content:
        content["max_delay_s"] = content.pop("max_delay_h") * 3600.0
    content["held"] = bool(fields.get("held"))
    try:
        return msgspec.convert(content, JobRequest)
    except msgspec.ValidationError as error:
        raise DataError(f"the job is not valid: {error}") from None
