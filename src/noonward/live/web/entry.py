"""The way to the pages: log in with a token, log out, static files, and who may see a page or send a form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from noonward.errors import NoonwardError
from noonward.live.api.answers import refusal
from noonward.live.api.guard import Guard, RefusedError, body_of
from noonward.live.store.database import StoreError
from noonward.live.tokens import Scope
from noonward.live.web.html import HEADERS, SAID, STATIC, Html
from noonward.live.web.sessions import Sessions, Visitor

FORM: Final = "application/x-www-form-urlencoded"
MOST_FIELDS: Final = 100
Handler = Callable[[Request, Visitor], Awaitable[Response]]


class Entry:
    """Lets visitors in, and answers those who are not.

    Args:
        guard: Guard of the service.
        html: Its templates.
    """

    def __init__(self, guard: Guard, html: Html) -> None:
        self._guard, self._html = guard, html
        self.sessions = Sessions(guard)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes to log in and out, and of static files."""
        return [
            Route("/login", self.login_page),
            Route("/login", self.login, methods=["POST"]),
            Route("/logout", self.guarded("read", self.with_fields(self.log_out)), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    def guarded(self, scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Returns a handler that knows its visitor, and answers errors as pages."""

        async def answer(request: Request) -> Response:
            try:
                visitor = await self.sessions.visitor(request, scope)
                request.state.who = visitor.holder.name
                response = await handler(request, visitor)
            except RefusedError as refused:
                return self.refused(request, refused.status, refused.message)
            except NoonwardError as error:
                known = refusal(error)
                if known is None:
                    raise
                return self.refused(request, known.status, known.message)
            return response

        return answer

    def with_fields(self, handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        """Returns a handler that is given the form's fields, once its word is checked."""

        async def answer(request: Request, visitor: Visitor) -> Response:
            fields = await _fields(request)
            self.sessions.require_word(visitor, fields.get("word", ""))
            return await handler(request, visitor, fields)

        return answer

    def refused(self, request: Request, status: int, message: str) -> Response:
        """Returns the page of an error; without a session, the way to the page that asks for a token."""
        if status == 401:
            path = "/login?next=" + quote(request.url.path, safe="/")
            if "hx-request" in request.headers:
                return Response(status_code=401, headers={**HEADERS, "HX-Redirect": path})
            return RedirectResponse(path, 303, headers=HEADERS)
        return self._html.page("problem.html", status, title="Not possible", message=message, service=None)

    async def login_page(self, request: Request) -> Response:
        """Asks for a token; where there are no tokens, there is nothing to ask for."""
        try:
            await self.sessions.visitor(request)
        except RefusedError as refused:
            if refused.status != 401:
                return self.refused(request, refused.status, refused.message)
            return self._login(200, own_path(request.query_params.get("next")), "")
        return to("/")

    async def login(self, request: Request) -> Response:
        """Opens a session for a token."""
        try:
            self._guard.refuse_foreign(request)
            fields = await _fields(request)
            path = own_path(fields.get("next"))
            response = to(path)
            await self.sessions.open(request, response, fields.get("token", "").strip())
        except RefusedError as refused:
            return self._login(refused.status, "/", refused.message)
        except StoreError as error:
            return self._login(503, "/", str(error))
        return response

    def _login(self, status: int, path: str, message: str) -> Response:
        return self._html.page("login.html", status, title="Log in", next=path, message=message, service=None)

    async def log_out(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        """Ends the session."""
        response = to("/login")
        await self.sessions.close(request, response)
        return response


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


def own_path(path: str | None) -> str:
    """Returns a path of this service, or "/" for anything else."""
    inside = path is not None and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if inside and path is not None and path.isprintable() else "/"


def to(path: str, said: str | None = None) -> Response:
    """Sends the browser to a page, with what was done."""
    response = RedirectResponse(path, 303, headers=HEADERS)
    if said is not None:
        response.set_cookie(SAID, quote(said[:500]), max_age=30, httponly=True, samesite="lax")
    return response
