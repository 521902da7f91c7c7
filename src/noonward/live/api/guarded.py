"""Routes whose handlers are told who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette import types
from starlette.requests import Request
from starlette.responses import Response

from noonward.errors import NoonwardError
from noonward.live.api.answers import problem, refusal
from noonward.live.api.guard import Guard, RefusedError
from noonward.live.tokens import Holder, Scope

Handler = Callable[[Request, Holder], Awaitable[Response]]


class Guarded:
    """The ASGI application of a route: checks who asks, calls the handler, and turns errors into answers.

    Args:
        guard: Knows who asks.
        scope: What a caller's token must allow.
        handler: Answers the request.
    """

    def __init__(self, guard: Guard, scope: Scope, handler: Handler) -> None:
        self._guard, self._scope, self._handler = guard, scope, handler

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Answers a request."""
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            holder = await self._guard.holder(request, self._scope)
            request.state.who = holder.name
            return await self._handler(request, holder)
        except RefusedError as refused:
            return problem(refused.status, refused.code, refused.message, refused.after_s)
        except NoonwardError as error:
            known = refusal(error)
            if known is None:
                raise
            return problem(known.status, known.code, known.message)
