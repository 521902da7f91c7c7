"""The service over HTTP, on this machine: images as OpenAI's clients ask for them, tasks, page, health and metrics."""

from __future__ import annotations

import asyncio
import base64
import hmac
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, Literal

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from noonward.errors import NoonwardError, nearest
from noonward.live.api.exposition import CONTENT_TYPE
from noonward.live.api.guard import Bodies, RefusedError, bearer_of, body_of, decoded
from noonward.live.edge.metrics import metrics
from noonward.live.web.headers import COMMON

_BODY: Final = msgspec.json.Decoder()
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'"
}
"""The page holds its styles and images, and loads nothing."""
MOST_IMAGES: Final = 10
"""Most images of one request, as OpenAI has it."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether who asked for an image is still there."""
UNUSED: Final = frozenset({"user", "quality", "style", "background", "moderation", "output_compression"})
"""Fields of OpenAI's clients that are accepted and change nothing."""

Answer = Callable[[str, dict[str, Any]], Any]
"""``(name, content) -> answer``: carries out a request; raises NoonwardError for a wrong one."""


class Generation(msgspec.Struct, kw_only=True):
    """A request for images: OpenAI's fields, and those of diffusion models.

    Attributes:
        prompt: What to draw.
        model: Name of the model; by default the first.
        n: Images, with seeds one after the other.
        size: ``WIDTHxHEIGHT`` in pixels, or ``auto``: the model's own.
        response_format: ``b64_json``: the images themselves; ``url``: where they are.
        output_format: ``png``.
        seed: Seed of the first image; by default its number.
        steps: Most inference steps; the policy may choose fewer.
        guidance: Scale of classifier-free guidance, 1 for none; by default the service's.
        negative_prompt: What not to draw; it needs guidance.
        gang: Servers that draw an image together.
        deadline_s: Latest end, seconds from now.
    """

    prompt: Any
    model: Any = None
    n: int = 1
    size: str = "auto"
    response_format: Literal["b64_json", "url"] = "b64_json"
    output_format: Literal["png"] = "png"
    seed: Any = None
    steps: Any = None
    guidance: Any = None
    negative_prompt: Any = None
    gang: Any = 1
    deadline_s: Any = None

    def tasks(self) -> list[dict[str, Any]]:
        """Returns what is submitted, a task an image.

        Raises:
            NoonwardError: There are too many images.
        """
        if not 1 <= self.n <= MOST_IMAGES:
            raise NoonwardError(f"n is {self.n}; allowed: 1 to {MOST_IMAGES}")
        given = {"prompt": self.prompt, "gang": self.gang, "model": self.model, "steps_max": self.steps}
        given |= {"guidance": self.guidance, "negative": self.negative_prompt, "deadline_s": self.deadline_s}
        given["size"] = None if self.size == "auto" else self.size
        counted = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        return [{**given, "seed": self.seed + i if counted else self.seed} for i in range(self.n)]


class WebServer:
    """Serves a service on a free port of the loopback address, in a thread of its own.

    Every request but ``GET /health`` needs the token, in the header ``Authorization: Bearer TOKEN``, for the page and
    images also as ``?token=TOKEN``.

    Args:
        token: Token of the service.
        answer: Who answers.
        watch: Returns a future that holds the record of a task once it is done or failed.
    """

    def __init__(self, token: str, answer: Answer, watch: Callable[[str], Future[dict[str, Any]]]) -> None:
        self._token, self._answer, self._watch = token, answer, watch
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.server_port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            self.app(), log_level="error", access_log=False, lifespan="off", loop="asyncio", http="h11", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def shutdown(self) -> None:
        """Answers no longer."""
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()

    def app(self) -> Starlette:
        """Returns the service as an ASGI application."""

        def get(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
            return Route(path, self._guarded(handler), methods=["GET"])

        app = Starlette(
            routes=[
                Route("/health", self.health),
                get("/metrics", self.metrics),
                get("/v1/models", self.models),
                Route("/v1/images/generations", self._guarded(self.generate), methods=["POST"]),
                get("/images/{name}.png", self.image),
                get("/status", self.status),
                get("/page", self.page),
                get("/tasks/{id}", self.task),
                Route("/tasks/{id}", self._guarded(self.cancel), methods=["DELETE"]),
                Route("/tasks", self._guarded(self.submit), methods=["POST"]),
                Route("/stop", self._guarded(self.stop), methods=["POST"]),
            ],
            exception_handlers={404: _not_found, 405: _not_found},
        )
        app.state.bodies = Bodies()
        return app

    # Images as OpenAI's clients ask for them.

    async def generate(self, request: Request) -> Response:
        """Draws images and answers when they are done; who goes away before cancels them."""
        content = await _content(request)
        unknown = [name for name in content if name not in Generation.__struct_fields__ and name not in UNUSED]
        if unknown:
            raise NoonwardError(f"unknown field {unknown[0]!r}; {nearest(unknown[0], Generation.__struct_fields__)}")
        try:
            asked = msgspec.convert(content, Generation)
        except msgspec.ValidationError as error:
            raise NoonwardError(str(error)) from error
        names: list[str] = []
        tasks: list[dict[str, Any]] = []
        try:
            for given in asked.tasks():
                names.append((await self._do("submit", given))["id"])
            for name in names:
                tasks.append(await self._done(request, name))
        finally:
            for name in names[len(tasks) :]:
                await self._do("cancel", {"id": name})
        failed = [task for task in tasks if task["state"] != "done"]
        if failed:
            return _refusal(request, 500, f"{failed[0]['id']}: {failed[0]['reason']}")
        data = [await self._shown(request, task, asked.response_format) for task in tasks]
        return JSONResponse({"created": int(max(task["ended_unix_s"] for task in tasks)), "data": data})

    async def _done(self, request: Request, name: str) -> dict[str, Any]:
        """Waits for a task's end; returns its record.

        Raises:
            NoonwardError: Who asked for it has gone.
        """
        end = asyncio.wrap_future(self._watch(name))
        while not (await asyncio.wait({end}, timeout=LOOK_S))[0]:
            if await request.is_disconnected():
                end.cancel()
                raise NoonwardError("who asked has gone; the images were canceled")
        return end.result()

    async def _shown(self, request: Request, task: dict[str, Any], how: str) -> dict[str, Any]:
        """Returns an image as its request wanted it, with what it was drawn with."""
        about = {"id": task["id"], "seed": task["seed"], "steps": task["attempts"][-1]["steps"]}
        if how == "url":
            return {"url": f"{request.base_url}images/{task['id']}.png?token={self._token}", **about}
        png = await self._do("image", {"id": task["id"]})
        return {"b64_json": base64.b64encode(png).decode(), **about}

    async def models(self, request: Request) -> Response:
        """Lists the models."""
        names = [model["name"] for model in (await self._do("status", {}))["models"]]
        return JSONResponse(
            {"object": "list", "data": [{"id": each, "object": "model", "owned_by": "local"} for each in names]}
        )

    async def image(self, request: Request) -> Response:
        """Answers with the image of a task."""
        png = await self._do("image", {"id": request.path_params["name"]})
        return Response(png, media_type="image/png")

    # Tasks and state.

    async def submit(self, request: Request) -> Response:
        """Queues a task."""
        return JSONResponse(await self._do("submit", await _content(request)))

    async def task(self, request: Request) -> Response:
        """Answers with the record of a task."""
        return JSONResponse(await self._do("task", {"id": request.path_params["id"]}))

    async def cancel(self, request: Request) -> Response:
        """Cancels a task that is not finished."""
        return JSONResponse(await self._do("cancel", {"id": request.path_params["id"]}))

    async def status(self, request: Request) -> Response:
        """Answers with the state of the service."""
        return JSONResponse(await self._do("status", {}))

    async def page(self, request: Request) -> Response:
        """Answers with the page."""
        return HTMLResponse(await self._do("page", {}), headers=PAGE_HEADERS)

    async def stop(self, request: Request) -> Response:
        """Ends the service."""
        return JSONResponse(await self._do("stop", {}))

    async def health(self, request: Request) -> Response:
        """Says whether images can be generated: 200 if a worker is ready or at work, else 503; needs no token."""
        try:
            servers = (await self._do("status", {}))["servers"]
        except Exception as error:
            return JSONResponse({"status": "fails", "reason": repr(error)}, 503)
        ready = sum(server["state"] not in ("waiting", "starting", "lost") for server in servers)
        words = {"status": "ok" if ready else "unavailable", "workers": len(servers), "ready": ready}
        return JSONResponse(words, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """Answers with the state of the service in the text format of Prometheus."""
        return PlainTextResponse(metrics(await self._do("status", {})), media_type=CONTENT_TYPE)

    async def _do(self, name: str, content: dict[str, Any]) -> Any:
        """Has a request carried out by the controller."""
        return await run_in_threadpool(self._answer, name, content)

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Returns a handler that asks for the token and answers what is raised."""

        async def answer(request: Request) -> Response:
            try:
                self._require_token(request)
                response = await handler(request)
            except RefusedError as refused:
                return _refusal(request, refused.status, refused.message)
            except NoonwardError as error:
                return _refusal(request, 400, str(error))
            except TypeError as error:
                return _refusal(request, 400, f"a field is missing or unknown: {error}")
            except Exception as error:
                return _refusal(request, 500, repr(error))
            response.headers.update({**COMMON, **response.headers})
            return response

        return answer

    def _require_token(self, request: Request) -> None:
        """Raises RefusedError unless a request carries the token."""
        named = request.query_params.get("token") if request.method == "GET" else None
        given = named if named is not None and "authorization" not in request.headers else bearer_of(request)
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RefusedError(401, "token", "the token is wrong; service.json in the service's folder has it")


def _refusal(request: Request, status: int, message: str) -> Response:
    """Returns an error, in OpenAI's form where that is asked for."""
    if request.url.path.startswith("/v1/"):
        kind = "invalid_request_error" if status < 500 else "server_error"
        error: Any = {"message": message, "type": kind, "param": None, "code": None}
        return JSONResponse({"error": error}, status)
    return JSONResponse({"error": message}, status)


async def _not_found(request: Request, error: Exception) -> Response:
    return _refusal(request, getattr(error, "status_code", 404), f"there is no {request.method} {request.url.path}")


async def _content(request: Request) -> dict[str, Any]:
    """Returns the JSON object of a request's body.

    Raises:
        RefusedError: It is too large or no JSON.
        NoonwardError: It is no JSON object.
    """
    content = decoded(_BODY, await body_of(request))
    if not isinstance(content, dict):
        raise NoonwardError("the body is no JSON object")
    return content
