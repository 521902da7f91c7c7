"""The service over HTTP, on this machine: images as OpenAI's clients ask for them, tasks, page, health and metrics."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from noonward.errors import NoonwardError, ScenarioError, nearest
from noonward.live.api.answers import defect, not_allowed, problem, refusal
from noonward.live.api.connections import http_server, listener_at
from noonward.live.api.exposition import CONTENT_TYPE
from noonward.live.api.guard import Bodies, Guard, RefusedError, body_of, decoded
from noonward.live.api.watched import RequestCounts, Watched, watched
from noonward.live.edge.metrics import metrics
from noonward.live.edge.page import shown_page
from noonward.live.refusals import NoSuchJobError
from noonward.live.store.store import Store
from noonward.live.tokens import Holder, Scope
from noonward.live.web.entry import Entry
from noonward.live.web.headers import COMMON
from noonward.live.web.html import Html
from noonward.live.web.sessions import Visitor

_BODY: Final = msgspec.json.Decoder()
_KEY: Final = "image_key"
"""Value of the store: what the keys of the images' addresses are made with."""
MOST_IMAGES: Final = 10
"""Most images of one request, as OpenAI has it."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether who asked for an image is still there."""
UNUSED: Final = frozenset({"user", "quality", "style", "background", "moderation", "output_compression"})
"""Fields of OpenAI's clients that are accepted and change nothing."""

FIELDS: Final = (
    "prompt", "gang", "seed", "model", "steps_max", "deadline_s", "negative", "guidance", "size",
)  # fmt: skip
"""Fields of a task."""
Handler = Callable[[Request, Holder], Awaitable[Response]]
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
            ScenarioError: There are too many images.
        """
        if not 1 <= self.n <= MOST_IMAGES:
            raise ScenarioError(f"n is {self.n}; allowed: 1 to {MOST_IMAGES}")
        given = {"prompt": self.prompt, "gang": self.gang, "model": self.model, "steps_max": self.steps}
        given |= {"guidance": self.guidance, "negative": self.negative_prompt, "deadline_s": self.deadline_s}
        given["size"] = None if self.size == "auto" else self.size
        counted = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        return [{**given, "seed": self.seed + i if counted else self.seed} for i in range(self.n)]


class WebServer:
    """Serves a service on a free port of the loopback address, in a thread of its own.

    It is that of ``noonward serve`` with other routes: the same tokens and scopes (read, submit, admin), sessions of
    the page, limits on bodies and connections, ids of requests and counts of them. Only errors under ``/v1`` have
    another form, that of OpenAI.

    Args:
        store: Store with the tokens.
        folder: The service's folder, with its images.
        answer: Who answers.
        watch: Returns a future that holds the record of a task once it is done or failed.
    """

    def __init__(
        self, store: Store, folder: Path, answer: Answer, watch: Callable[[str], Future[dict[str, Any]]]
    ) -> None:
        self._folder, self._answer, self._watch = folder, answer, watch
        self._guard = Guard(store, needs_tokens=True)
        self._html = Html()
        self._entry = Entry(self._guard, self._html)
        self._requests = RequestCounts()
        self._key = _image_key(store)
        self._listener = listener_at("127.0.0.1", 0)
        self.port = int(self._listener.getsockname()[1])
        self._server = http_server(self.app())
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def shutdown(self) -> None:
        """Answers no longer."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._listener.close()

    def app(self) -> Watched:
        """Returns the service as an ASGI application."""

        def route(path: str, scope: Scope, handler: Handler, method: str = "GET") -> Route:
            return Route(path, self._guarded(scope, handler), methods=[method])

        app = Starlette(
            routes=[
                Route("/", self._entry.guarded("read", self.page)),
                *self._entry.routes(),
                Route("/health", self.health),
                Route("/images/{name}.png", self.image),
                route("/v1/images/generations", "submit", self.generate, "POST"),
                route("/v1/models", "read", self.models),
                route("/metrics", "read", self.metrics),
                route("/status", "read", self.status),
                route("/tasks/{id}", "read", self.task),
                route("/tasks/{id}", "submit", self.cancel, "DELETE"),
                route("/tasks", "submit", self.submit, "POST"),
                route("/stop", "admin", self.stop, "POST"),
            ],
            exception_handlers={404: _not_found, 405: not_allowed, 500: defect},
        )
        app.state.bodies = Bodies()
        return watched(app, self._requests)

    # Images as OpenAI's clients ask for them.

    async def generate(self, request: Request, holder: Holder) -> Response:
        """Draws images and answers when they are done; who goes away before cancels them."""
        content = await _content(request)
        unknown = [name for name in content if name not in Generation.__struct_fields__ and name not in UNUSED]
        if unknown:
            raise ScenarioError(f"unknown field {unknown[0]!r}; {nearest(unknown[0], Generation.__struct_fields__)}")
        try:
            asked = msgspec.convert(content, Generation)
        except msgspec.ValidationError as error:
            raise ScenarioError(str(error)) from error
        names: list[str] = []
        tasks: list[dict[str, Any]] = []
        try:
            for given in asked.tasks():
                names.append((await self._do("submit", {**given, "owner": holder.name}))["id"])
            for name in names:
                tasks.append(await self._done(request, name))
        finally:
            for name in names[len(tasks) :]:
                await self._do("cancel", {"id": name})
        failed = [task for task in tasks if task["state"] != "done"]
        if failed:
            return _refused(request, RefusedError(500, "failed", f"{failed[0]['id']}: {failed[0]['reason']}"))
        data = [await self._shown(request, task, asked.response_format) for task in tasks]
        return JSONResponse({"created": int(max(task["ended_unix_s"] for task in tasks)), "data": data})

    async def _done(self, request: Request, name: str) -> dict[str, Any]:
        """Waits for a task's end; returns its record.

        Raises:
            RefusedError: Who asked for it has gone.
        """
        end = asyncio.wrap_future(self._watch(name))
        while not (await asyncio.wait({end}, timeout=LOOK_S))[0]:
            if await request.is_disconnected():
                end.cancel()
                raise RefusedError(499, "gone", "who asked has gone; the images were canceled")
        return end.result()

    async def _shown(self, request: Request, task: dict[str, Any], how: str) -> dict[str, Any]:
        """Returns an image as its request wanted it, with what it was drawn with."""
        about = {"id": task["id"], "seed": task["seed"], "steps": task["attempts"][-1]["steps"]}
        if how == "url":
            query = urlencode({"key": self._key_of(task["id"])})
            return {"url": f"{request.base_url}images/{task['id']}.png?{query}", **about}
        png = await run_in_threadpool(self._png, task["id"])
        return {"b64_json": base64.b64encode(png).decode(), **about}

    async def models(self, request: Request, holder: Holder) -> Response:
        """Lists the models."""
        names = [model["name"] for model in (await self._do("status", {}))["models"]]
        return JSONResponse(
            {"object": "list", "data": [{"id": each, "object": "model", "owned_by": "local"} for each in names]}
        )

    async def image(self, request: Request) -> Response:
        """Answers with an image: to its own key in the address, to a token, to a session of the page."""
        name, key = request.path_params["name"], request.query_params.get("key", "")
        try:
            if not hmac.compare_digest(key.encode(), self._key_of(name).encode()):
                await self._reader(request)
            png = await run_in_threadpool(self._png, name)
        except (RefusedError, NoonwardError) as error:
            return _refused(request, error)
        return Response(png, media_type="image/png", headers=COMMON)

    async def _reader(self, request: Request) -> None:
        """Raises RefusedError unless a request may read."""
        if "authorization" in request.headers:
            await self._guard.holder(request, "read")
        else:
            await self._entry.sessions.visitor(request)

    def _key_of(self, name: str) -> str:
        """Returns the key that shows one image, and nothing else, to whoever has it."""
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()

    def _png(self, name: str) -> bytes:
        """Returns the image of a task.

        Raises:
            NoSuchJobError: It has none that can be read.
        """
        try:
            return (self._folder / "images" / f"{name}.png").read_bytes()
        except OSError as error:
            raise NoSuchJobError(f"{name} has no image that can be read: {error.strerror}") from error

    # Tasks and state.

    async def submit(self, request: Request, holder: Holder) -> Response:
        """Queues a task."""
        content = await _content(request)
        unknown = [name for name in content if name not in FIELDS]
        if unknown or "prompt" not in content:
            raise ScenarioError(
                f"unknown field {unknown[0]!r}; {nearest(unknown[0], FIELDS)}" if unknown else "there is no prompt"
            )
        return JSONResponse(await self._do("submit", {"gang": 1, **content, "owner": holder.name}))

    async def task(self, request: Request, holder: Holder) -> Response:
        """Answers with the record of a task."""
        return JSONResponse(await self._do("task", {"id": request.path_params["id"]}))

    async def cancel(self, request: Request, holder: Holder) -> Response:
        """Cancels a task that is not finished."""
        asked = {"id": request.path_params["id"], "only_of": holder.only_own}
        return JSONResponse(await self._do("cancel", asked))

    async def status(self, request: Request, holder: Holder) -> Response:
        """Answers with the state of the service."""
        return JSONResponse(await self._do("status", {}))

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """Shows servers, images and tasks."""
        return shown_page(self._html, await self._do("status", {}), visitor)

    async def stop(self, request: Request, holder: Holder) -> Response:
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

    async def metrics(self, request: Request, holder: Holder) -> Response:
        """Answers with the state of the service in the text format of Prometheus."""
        text = metrics(await self._do("status", {}), self._requests)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    async def _do(self, name: str, content: dict[str, Any]) -> Any:
        """Has a request carried out by the controller."""
        return await run_in_threadpool(self._answer, name, content)

    def _guarded(self, scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Returns a handler that knows who asks, and answers what is refused."""

        async def answer(request: Request) -> Response:
            try:
                holder = await self._guard.holder(request, scope)
                request.state.who = holder.name
                response = await handler(request, holder)
            except (RefusedError, NoonwardError) as error:
                return _refused(request, error)
            response.headers.update({**COMMON, **response.headers})
            return response

        return answer


def _image_key(store: Store) -> bytes:
    """Returns what the keys of images are made with; it is made once, so that addresses outlive the service."""
    if store.value(_KEY) is None:
        store.do(lambda connection, now_s: store.keep(connection, {_KEY: secrets.token_hex(32)}))
    return str(store.value(_KEY)).encode()


def _refused(request: Request, error: RefusedError | NoonwardError) -> Response:
    """Returns why a request was refused, in OpenAI's form under ``/v1``, with its 400 for what is not valid.

    Raises:
        NoonwardError: It is no refusal but a defect.
    """
    found = error if isinstance(error, RefusedError) else refusal(error)
    if found is None:
        raise error
    if not request.url.path.startswith("/v1/"):
        return problem(found.status, found.code, found.message, found.after_s)
    status = 400 if found.status == 422 else found.status
    kind = "invalid_request_error" if status < 500 else "server_error"
    shown: Any = {"message": found.message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": shown}, status)


async def _not_found(request: Request, error: Exception) -> Response:
    return _refused(request, RefusedError(404, "unknown", f"there is nothing at {request.url.path}"))


async def _content(request: Request) -> dict[str, Any]:
    """Returns the JSON object of a request's body.

    Raises:
        RefusedError: It is too large or no JSON.
        ScenarioError: It is no JSON object.
    """
    content = decoded(_BODY, await body_of(request))
    if not isinstance(content, dict):
        raise ScenarioError("the body is no JSON object")
    return content
