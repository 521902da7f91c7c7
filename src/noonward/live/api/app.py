"""The service as an ASGI application: interface, pages, and what is answered where there is nothing."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from noonward.live.api.answers import defect, not_allowed, problem
from noonward.live.api.guard import Bodies
from noonward.live.api.handlers import Api
from noonward.live.api.watched import watched
from noonward.live.controller import Controller
from noonward.live.web.forms import Forms
from noonward.live.web.pages import Pages


def make_app(controller: Controller) -> ASGIApp:
    """Returns the service as an ASGI application.

    Args:
        controller: Controller of the service.
    """
    api = Api(controller)
    pages = Pages(api)

    async def not_found(request: Request, error: Exception) -> Response:
        message = f"there is nothing at {request.url.path}"
        if "text/html" in request.headers.get("accept", ""):
            return pages.entry.refused(request, 404, f"{message}.")
        return problem(404, "unknown", f"{message}; /openapi.json lists what there is")

    app = Starlette(
        routes=[*api.routes(), *pages.routes(), *Forms(pages).routes()],
        exception_handlers={404: not_found, 405: not_allowed, 500: defect},
    )
    app.state.bodies = Bodies()
    return watched(app, api.requests)
