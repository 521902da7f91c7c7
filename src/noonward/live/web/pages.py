"""The pages: what each shows, and who may see it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from noonward.live.api.guard import RefusedError
from noonward.live.api.handlers import Api, number
from noonward.live.demand.shown import event_list, meter_list, power_lines, remark
from noonward.live.store.database import Row
from noonward.live.store.schema import ENDED, IS_OPEN, OPEN
from noonward.live.tenants import said_of, tenants_shown
from noonward.live.web.entry import Entry, Handler
from noonward.live.web.html import SAID, Html
from noonward.live.web.sessions import Visitor
from noonward.live.web.timelines import LEADS, busy_gpus, signal_lines
from noonward.live.web.words import event_words, headline, problems
from noonward.live.web.world_map import places
from noonward.live.why import reasons, why
from noonward.schedule.policies import policies
from noonward.units import DAY_S

ROWS: Final = 50
"""Rows of a page."""
REFRESH_S: Final = 5
"""How often a page brings itself up to date, s; of a service whose time runs faster, ``FAST_REFRESH_S``."""
FAST_REFRESH_S: Final = 2
WEEK_DAYS: Final = 7
"""Days whose savings the overview shows."""
_log: Final = logging.getLogger("noonward.live")


class Pages:
    """The pages of a service.

    Args:
        api: Its interface, which the pages read from.
    """

    def __init__(self, api: Api) -> None:
        self.api, self.controller, self.store = api, api.controller, api.store
        self.html = Html()
        self.entry = Entry(api.guard, self.html)
        self.refresh_s = REFRESH_S if self.store.clock.speed == 1 else FAST_REFRESH_S
        self._settling: asyncio.Task[object] | None = None

    def routes(self) -> list[BaseRoute]:
        """Returns the routes of pages, of static files, to log in and out."""
        pages: tuple[tuple[str, Handler], ...] = (
            ("/", self.overview),
            ("/jobs", self.jobs),
            ("/jobs/{job:job}", self.job),
            ("/sites/{site}", self.site),
            ("/plan", self.plan),
            ("/signals", self.signals),
            ("/grid", self.grid),
            ("/savings", self.savings),
            ("/decisions", self.decisions),
        )
        return [
            *(Route(path, self.entry.guarded("read", handler)) for path, handler in pages),
            *self.entry.routes(),
        ]

    async def show(
        self, request: Request, visitor: Visitor, template: str, status: int = 200, **content: Any
    ) -> Response:
        """Returns a page with what all pages share: the service, its problems, the visitor, what a form just did."""
        service = await run_in_threadpool(self.api.service_shown)
        sites = content.pop("sites", None) or await run_in_threadpool(self.api.site_list)
        said = request.cookies.get(SAID)
        response = self.html.page(
            template,
            status,
            visitor=visitor,
            service=service,
            sites=sites,
            problems=problems(service, sites),
            said=None if said is None else unquote(said),
            here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            refresh_s=self.refresh_s,
            rollback=self.rollback,
            metered=bool(self.controller.meters.of),
            **content,
        )
        if said is not None:
            response.delete_cookie(SAID)
        return response

    @property
    def rollback(self) -> str:
        """Name of the policy that a service is rolled back to: local FCFS, or the reference where that does not fit."""
        scenario = self.controller.setup.scenario
        return "local-fcfs" if scenario.protocol == "each-slot" else scenario.baseline or "most-free(gpus=1)"

    # Pages.

    async def overview(self, request: Request, visitor: Visitor) -> Response:
        """Shows what was saved, the sites, open jobs and what happened last."""
        found = self._savings_so_far()

        def gather() -> dict[str, Any]:
            counted = self.store.read(f"SELECT state, count(*) AS n FROM jobs WHERE {IS_OPEN} GROUP BY state")
            counts = {row["state"]: row["n"] for row in counted}
            ended = self.store.read(
                "SELECT state, count(*) AS n FROM jobs WHERE ended_s >= ? GROUP BY state", self.store.now_s() - DAY_S
            )
            lately = {row["state"]: row["n"] for row in ended}
            last = self.store.read("SELECT coalesce(max(id), 0) AS n FROM events")[0]["n"]
            events = [self.api.shower.event(row) for row in self._newest_events(last)]
            return {
                "counts": [(state, counts.get(state, 0)) for state in OPEN],
                "lately": [(state, lately.get(state, 0)) for state in ENDED],
                "reasons": reasons(self.controller, ROWS),
                "looked_at": ROWS,
                "meters": meter_list(self.controller),
                "tenants": tenants_shown(self.store, self.controller.world, self.api.tenants),
                "jobs": self.api.job_list(None, None, 2**53, 8).jobs,
                "events": [(event, event_words(event)) for event in events],
            }

        content = await run_in_threadpool(gather)
        known = [policy.name for policy in policies() if policy.kind == "cluster"]
        return await self.show(
            request, visitor, "overview.html", title="Overview", savings=found, headline=headline(found),
            policies=known, places=places(self.controller.setup.scenario.fleet), budget_words=said_of, **content,
        )  # fmt: skip

    def _newest_events(self, last: int) -> list[Row]:
        return self.store.read("SELECT * FROM events WHERE id > ? ORDER BY id DESC LIMIT 10", last - 10)

    def _savings_so_far(self) -> Any:
        """Returns the savings of a week computed last, and has them computed again in the background."""
        if self._settling is None or self._settling.done():
            self._settling = asyncio.ensure_future(self._settle())
        return self.api.last_savings(WEEK_DAYS)

    async def _settle(self) -> None:
        """Computes the savings of a week; a failure is logged, and the next visit tries again."""
        try:
            await self.api.settled(WEEK_DAYS)
        except RefusedError:
            return  # others were computed just now
        except Exception:
            _log.exception("the savings of the last week could not be computed")

    async def jobs(self, request: Request, visitor: Visitor) -> Response:
        """Lists jobs, with what each waiting one waits for."""
        state, site = request.query_params.get("state") or None, request.query_params.get("site") or None
        before = number(request, "before", 2**53, 2**53)

        def gather() -> dict[str, Any]:
            found = self.api.job_list(state, site, before, ROWS)
            waits = {
                job.id: why(self.controller, job.id)
                for job in found.jobs
                if job.state in ("submitted", "transit", "waiting")
            }
            return {"jobs": found.jobs, "next": found.next, "waits": waits}

        content = await run_in_threadpool(gather)
        return await self.show(
            request, visitor, "jobs.html", title="Jobs", state=state, site=site, states=(*OPEN, *ENDED),
            first_page=before == 2**53, **content,
        )  # fmt: skip

    async def job(self, request: Request, visitor: Visitor) -> Response:
        """Shows a job: why it is where it is, what was decided and what happened."""
        number_ = int(request.path_params["job"])

        def gather() -> dict[str, Any]:
            job = self.api.shown_job(number_)
            asked = json.loads(self.store.read("SELECT request FROM jobs WHERE id = ?", number_)[0]["request"])
            rows = self.store.read("SELECT * FROM events WHERE job = ? ORDER BY id DESC LIMIT ?", number_, ROWS)
            events = [self.api.shower.event(row) for row in rows]
            kinds = self.controller.setup.scenario.fleet.gpu_types.values()
            return {
                "job": job,
                "by_duration": all(kind.classes[job.class_].time == "duration" for kind in kinds),
                "asked": asked,
                "why": why(self.controller, number_),
                "decisions": self.api.decision_list(number_, 2**53, 10),
                "events": [(event, event_words(event)) for event in events],
            }

        content = await run_in_threadpool(gather)
        return await self.show(request, visitor, "job.html", title=f"Job {number_}", **content)

    async def site(self, request: Request, visitor: Visitor) -> Response:
        """Shows a site: its switches, its jobs, plan and signals."""
        name = request.path_params["site"]
        if name not in self.controller.setup.sites:
            raise RefusedError(404, "unknown", f"there is no site {name}.")

        def gather() -> dict[str, Any]:
            here = self.store.read(
                f"SELECT j.id FROM jobs j WHERE j.site = ? AND j.state IN ({', '.join(repr(s) for s in OPEN)}) "
                "ORDER BY j.id DESC LIMIT ?",
                name,
                ROWS,
            )
            return {
                "jobs": [self.api.shown_job(row["id"]) for row in here],
                "busy": busy_gpus(self.controller)[name],
                "lines": signal_lines(self.controller).get(name),
            }

        sites = await run_in_threadpool(self.api.site_list)
        shown = next(each for each in sites if each.name == name)
        content = await run_in_threadpool(gather)
        return await self.show(request, visitor, "site.html", title=name, site=shown, sites=sites, lead=6, **content)

    async def plan(self, request: Request, visitor: Visitor) -> Response:
        """Shows busy GPUs as decided, as they were, and as they are expected to be."""
        busy = await run_in_threadpool(busy_gpus, self.controller)
        curves = self.controller.world.curves
        planned = None if curves is None else "hard" if curves.hard else "advisory"
        return await self.show(request, visitor, "plan.html", title="Plan and actual", busy=busy, planned=planned)

    async def signals(self, request: Request, visitor: Visitor) -> Response:
        """Shows prices and intensities as forecast and as they came."""
        lead = number(request, "lead", 6, 24)
        if lead not in LEADS:
            raise RefusedError(422, "invalid", f"lead is {lead}; it must be one of {', '.join(map(str, LEADS))}.")
        lines = await run_in_threadpool(signal_lines, self.controller, lead)
        return await self.show(request, visitor, "signals.html", title="Signals", lines=lines, lead=lead, leads=LEADS)

    async def grid(self, request: Request, visitor: Visitor) -> Response:
        """Shows what metered sites draw, what grid events allow, and how they were kept."""

        def gather() -> dict[str, Any]:
            return {
                "meters": meter_list(self.controller),
                "lines": power_lines(self.controller),
                "grid_events": event_list(self.controller, ROWS),
                "takes_events": self.controller.grid_events.settings is not None,
                "remark": remark(self.controller),
            }

        content = await run_in_threadpool(gather)
        return await self.show(request, visitor, "grid.html", title="Grid", **content)

    async def savings(self, request: Request, visitor: Visitor) -> Response:
        """Shows what was saved against the reference policy, day by day."""
        days = number(request, "days", 7, 31)
        if days < 1:
            raise RefusedError(422, "invalid", "days is 0; it must be from 1 to 31.")
        found = await self.api.settled(days)
        return await self.show(
            request, visitor, "savings.html", title="Savings", savings=found, headline=headline(found), days=days
        )

    async def decisions(self, request: Request, visitor: Visitor) -> Response:
        """Lists decisions with what was known when each was made."""
        before = number(request, "before", 2**53, 2**53)
        rows = await run_in_threadpool(self.api.decision_list, None, before, ROWS)
        return await self.show(
            request, visitor, "decisions.html", title="Decisions", decisions=rows,
            next=rows[-1].id if len(rows) == ROWS else None, first_page=before == 2**53,
        )  # fmt: skip
