"""The forms of the pages: log in, submit a job, and what an operator changes."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs, quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from noonward.errors import DataError, NoonwardError
from noonward.live import operator
from noonward.live.api import shown
from noonward.live.api.guard import RefusedError, body_of
from noonward.live.api.handlers import refusal
from noonward.live.requests import JobRequest
from noonward.live.store.submit import submission
from noonward.live.tenants import limit_of
from noonward.live.tokens import Scope
from noonward.live.web.html import HEADERS, SAID
from noonward.live.web.pages import Pages
from noonward.live.web.sessions import Visitor

FORM: Final = "application/x-www-form-urlencoded"
MOST_FIELDS: Final = 100
_NUMBERS: Final = ("work", "gpus_min", "gpus_max", "data_gb", "retries")
_TEXTS: Final = ("name", "command", "class", "origin", "site", "key")


class Forms:
    """What the pages' forms do; each needs its visitor's word and scope.

    Args:
        pages: The pages.
    """

    def __init__(self, pages: Pages) -> None:
        self.pages, self.api, self.controller = pages, pages.api, pages.controller

    def routes(self) -> list[Route]:
        """Returns the routes."""

        def post(path: str, scope: Scope, handler: Callable[..., Awaitable[Response]]) -> Route:
            return Route(path, self.pages.guarded(scope, self._with_fields(handler)), methods=["POST"])

        return [
            Route("/login", self.login_page),
            Route("/login", self.login, methods=["POST"]),
            post("/logout", "read", self.log_out),
            Route("/submit", self.pages.guarded("submit", self.submit_page)),
            post("/submit", "submit", self.submit),
            post("/jobs/{job:job}/{action}", "submit", self.change_job),
            post("/sites/{site}/switch", "admin", self.switch_site),
            post("/policy", "admin", self.use_policy),
        ]

    def _with_fields(self, handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        """Returns a handler that is given the form's fields, once its word is checked."""

        async def answer(request: Request, visitor: Visitor) -> Response:
            fields = await _fields(request)
            self.pages.sessions.require_word(visitor, fields.get("word", ""))
            return await handler(request, visitor, fields)

        return answer

    # Log in and out.

    async def login_page(self, request: Request) -> Response:
        """Asks for a token; where there are no tokens, there is nothing to ask for."""
        try:
            await self.pages.sessions.visitor(request)
        except RefusedError as refused:
            if refused.status != 401:
                return self.pages.refused(request, refused.status, refused.message)
            return self._login(200, _own_path(request.query_params.get("next")), "")
        return _to("/")

    async def login(self, request: Request) -> Response:
        """Opens a session for a token."""
        try:
            self.api.guard.refuse_foreign(request)
            fields = await _fields(request)
            path = _own_path(fields.get("next"))
            response = _to(path)
            await self.pages.sessions.open(request, response, fields.get("token", "").strip())
        except RefusedError as refused:
            return self._login(refused.status, "/", refused.message)
        return response

    def _login(self, status: int, path: str, message: str) -> Response:
        return self.pages.html.page("login.html", status, title="Log in", next=path, message=message, service=None)

    async def log_out(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Ends the session."""
        response = _to("/login")
        self.pages.sessions.close(request, response)
        return response

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
            by_duration=all(timed[name] == "duration" for name in checker.classes),
        )  # fmt: skip

    async def submit(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Submits a job; one that is not valid is shown again with what is wrong."""
        try:
            row, who = self.api.checker.row(_job_of(fields)), visitor.holder.name
            limit = limit_of(self.api.tenants, who)
            self.api.check_gangs(limit, [row])
            check = None if limit is None else limit.check_waiting
            ids, new = await run_in_threadpool(self.api.store.do, submission([row], who, check))
        except NoonwardError as error:
            known = refusal(error)
            status = 422 if known is None else known.status
            return await self._submit_page(request, visitor, fields, str(error), status)
        self.controller.decide_wake.set()
        said = f"Job {ids[0]} is submitted." if new else f"Job {ids[0]} was submitted by this form before."
        return _to(f"/jobs/{ids[0]}", said)

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
        return _to(f"/jobs/{job}", f"Job {job} {what}.")

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
        return _to(_own_path(fields.get("back")), f"{site} {words}.")

    async def use_policy(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Lets another policy decide."""
        policy = fields.get("policy", "").strip()
        await run_in_threadpool(self.api.use_policy, visitor.holder.name, policy)
        return _to("/", f"Policy {policy} decides from now on.")


async def _fields(request: Request) -> dict[str, str]:
    """Returns the fields of a form; of one that is given twice, the last.

    Raises:
        RefusedError: The body is no form, too large, or not UTF-8.
    """
    body = await body_of(request, FORM)
    try:
        parsed = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise RefusedError(400, "form", f"the form cannot be read: {error}.") from None
    return {name: values[-1] for name, values in parsed.items()}


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
            content[name] = int(text) if name in ("gpus_min", "gpus_max", "retries") else float(text)
        except ValueError:
            raise DataError(f"{name.replace('_', ' ')} is {text!r}; it must be a number") from None
    if "max_delay_h" in content:
        content["max_delay_s"] = content.pop("max_delay_h") * 3600.0
    content["held"] = bool(fields.get("held"))
    try:
        return msgspec.convert(content, JobRequest)
    except msgspec.ValidationError as error:
        raise DataError(f"the job is not valid: {error}") from None


def _own_path(path: str | None) -> str:
    """Returns a path of this service, or "/" for anything else."""
    inside = path is not None and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if inside and path is not None and path.isprintable() else "/"


def _to(path: str, said: str | None = None) -> Response:
    """Sends the browser to a page, with what was done."""
    response = RedirectResponse(path, 303, headers=HEADERS)
    if said is not None:
        response.set_cookie(SAID, quote(said[:500]), max_age=30, httponly=True, samesite="lax")
    return response
