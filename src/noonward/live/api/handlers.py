"""The handlers of the HTTP interface: routes, answers and errors."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from noonward import __version__
from noonward.live import operator
from noonward.live.accounts import Savings, savings
from noonward.live.api import shown
from noonward.live.api.answers import answer
from noonward.live.api.exposition import CONTENT_TYPE
from noonward.live.api.figures import Figures
from noonward.live.api.guard import Guard, RefusedError, body_of, decoded
from noonward.live.api.guarded import Guarded, Handler
from noonward.live.api.openapi import document
from noonward.live.api.watched import RequestCounts
from noonward.live.controller import Controller
from noonward.live.decided import seen_sites
from noonward.live.demand.events import EventCall
from noonward.live.demand.shown import (
    GridEventCalled,
    GridEventShown,
    event_list,
    meter_list,
    remark,
)
from noonward.live.output import MOST_BYTES, job_output
from noonward.live.refusals import NoSuchJobError
from noonward.live.requests import MOST_JOBS, JobRequest, JobRow, RequestChecker, expanded
from noonward.live.segments import stored_segments
from noonward.live.store.database import Connection, StoreError
from noonward.live.store.schema import ENDED, IS_OPEN, OPEN
from noonward.live.store.submit import submission
from noonward.live.tenants import Limit, limit_of, tenants_shown
from noonward.live.tokens import Holder, Scope
from noonward.live.why import plans, why
from noonward.schedule.policies import default_registry

MOST_ROWS: Final = 1000
"""Rows of a page, at most."""
MOST_STREAMS: Final = 20
"""Streams of events that a token may have open."""
SETTLE_SHARE: Final = 0.2
"""Share of the time in which savings are computed, at most."""
NEWS_S: Final = 1.0
"""How often a stream of events looks for new ones, s."""
SETTLED_S: Final = 600.0
"""How long savings that were computed are shown, s of the service's time; at least ``LEAST_SETTLED_S`` real ones."""
LEAST_SETTLED_S: Final = 15.0
AT_ONCE: Final = 200
"""Jobs of a batch that are checked before another request may have its turn."""
READY_S: Final = 1.0
"""How long an answer about readiness holds, s."""
UNDISPATCHED: Final = "SELECT count(*) AS n FROM outbox WHERE site = ? AND stage IN ('queued', 'intent', 'placed')"
LATEST_SOURCES: Final = """
SELECT s.zone, s.source FROM signals s
JOIN (SELECT zone, max(hour) AS hour FROM signals GROUP BY zone) last ON last.zone = s.zone AND last.hour = s.hour
"""


class Api:
    """The service's handlers.

    Args:
        controller: Controller of the service.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller, self.store = controller, controller.store
        fleet = controller.setup.scenario.fleet
        config = controller.setup.config
        self.guard = Guard(
            controller.store,
            needs_tokens=bool(controller.setup.needs_tokens),
            requests_per_s=config.requests_per_s,
            jobs_per_s=config.jobs_per_s,
        )
        self.checker = RequestChecker(
            fleet,
            controller.setup.config.largest_gang,
            [agent.executor.takes for agent in controller.agents],
            controller.setup.scenario.priorities,
        )
        self.tenants = controller.setup.scenario.tenants
        # The same object for the same user: submissions that are stored together then share its check.
        self.limit_of = functools.lru_cache(maxsize=MOST_ROWS)(functools.partial(limit_of, self.tenants))
        self.shower = shown.Shower(fleet.site_names, controller.time_of)
        self._jobs: msgspec.json.Decoder[JobRequest | list[JobRequest]] = msgspec.json.Decoder(
            JobRequest | list[JobRequest]
        )
        self._settling, self._readying = asyncio.Lock(), asyncio.Lock()
        self._ready = (-math.inf, "")
        self._streams: Counter[str] = Counter()
        self.requests = RequestCounts()
        self.figures = Figures(controller, self.requests)
        self._settle_from = -math.inf
        self._savings: dict[int, tuple[float, Savings | None]] = {}
        self._change = msgspec.json.Decoder(shown.Change)
        self._site_change = msgspec.json.Decoder(shown.SiteChange)
        self._event_call = msgspec.json.Decoder(EventCall)
        self._policy_change = msgspec.json.Decoder(shown.PolicyChange)

    def routes(self) -> list[Route]:
        """Returns the routes."""

        def route(path: str, scope: Scope, handler: Handler, method: str = "GET") -> Route:
            return Route(path, Guarded(self.guard, scope, handler), methods=[method])

        return [
            route("/v1/jobs", "submit", self.submit, "POST"),
            route("/v1/jobs", "read", self.jobs),
            route("/v1/jobs/{job:job}", "read", self.job),
            route("/v1/jobs/{job:job}", "submit", self.change_job, "PATCH"),
            route("/v1/jobs/{job:job}/why", "read", self.why),
            route("/v1/jobs/{job:job}/output", "submit", self.output),
            route("/v1/jobs/{job:job}/cancel", "submit", self.cancel, "POST"),
            route("/v1/jobs/{job:job}/hold", "submit", self.hold, "POST"),
            route("/v1/jobs/{job:job}/release", "submit", self.release, "POST"),
            route("/v1/sites", "read", self.sites),
            route("/v1/sites/{site}", "admin", self.change_site, "PATCH"),
            route("/v1/tenants", "read", self.tenant_list),
            route("/v1/plans", "read", self.plans),
            route("/v1/savings", "read", self.savings),
            route("/v1/decisions", "read", self.decisions),
            route("/v1/events", "read", self.events),
            route("/v1/audit", "admin", self.audit),
            route("/v1/meters", "read", self.meters),
            route("/v1/grid-events", "read", self.grid_events),
            route("/v1/grid-events", "admin", self.call_event, "POST"),
            route("/v1/grid-events/{job:job}/cancel", "admin", self.cancel_event, "POST"),
            route("/v1/service", "read", self.service),
            route("/v1/policy", "admin", self.change_policy, "POST"),
            route("/metrics", "read", self.metrics),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/openapi.json", self.openapi),
        ]

    # Jobs.

    async def submit(self, request: Request, holder: Holder) -> Response:
        """Stores one job or a batch; answers once they are on the disk."""
        given = decoded(self._jobs, await body_of(request))
        many = given if isinstance(given, list) else [given]
        if not many or len(many) > MOST_JOBS:
            raise RefusedError(422, "invalid", f"{len(many)} jobs were sent; a batch holds 1 to {MOST_JOBS}")
        key = request.headers.get("idempotency-key")
        if key is not None:
            many = _with_keys(many, key)
        many = expanded(many)
        self.guard.charge_jobs(holder, len(many))
        limit = self.limit_of(holder.name)
        rows = await self._checked(many)
        self.check_limits(limit, rows)
        check = None if limit is None else limit.check_waiting
        ids, new = await self.store.written(submission(rows, holder.name, check))
        self.controller.take_new(rows)
        return answer(shown.Submitted(ids=ids, new=new), 201 if new else 200)

    async def _checked(self, many: list[JobRequest]) -> list[JobRow]:
        """Returns jobs as they are stored; other requests are answered between parts of a large batch."""
        rows: list[JobRow] = []
        for first in range(0, len(many), AT_ONCE):
            if first:
                await asyncio.sleep(0)
            rows += [self.checker.row(one) for one in many[first : first + AT_ONCE]]
        return rows

    def check_limits(self, limit: Limit | None, rows: Iterable[JobRow]) -> None:
        """Raises DataError where jobs exceed what their submitter's tenant may submit, or its budget is used up."""
        if limit is not None:
            limit.check_budget(self.controller.world)
            for row in rows:
                limit.check_gang(row.name, row.gpus_min, row.gpus_max)
                limit.check_priority(row.name, row.priority)

    async def jobs(self, request: Request, holder: Holder) -> Response:
        """Lists jobs, newest first."""
        state, site = request.query_params.get("state"), request.query_params.get("site")
        owner = request.query_params.get("owner")
        limit, before = number(request, "limit", 100, MOST_ROWS), number(request, "before", 2**53, 2**53)
        return answer(await run_in_threadpool(self.job_list, state, site, before, limit, owner))

    def job_list(
        self, state: str | None, site: str | None, before: int, limit: int, owner: str | None = None
    ) -> shown.JobList:
        """Returns jobs below a number, newest first; of a state, a site, an owner where one is given.

        Raises:
            RefusedError: The state or the site is unknown.
        """
        where: list[str] = ["j.id < ?"]
        values: list[object] = [before]
        if state is not None:
            if state not in (*OPEN, *ENDED):
                raise RefusedError(422, "invalid", f"unknown state {state!r}; known: {', '.join((*OPEN, *ENDED))}")
            where.append("j.state = ?")
            values.append(state)
        if site is not None:
            if site not in self.shower.sites:
                raise RefusedError(422, "invalid", f"unknown site {site!r}; known: {', '.join(self.shower.sites)}")
            where.append("j.site = ?")
            values.append(site)
        if owner is not None:
            where.append("j.owner = ?")
            values.append(owner)
        query = f"{shown.JOB_COLUMNS} WHERE {' AND '.join(where)} ORDER BY j.id DESC LIMIT ?"
        jobs = [self.shower.job(row) for row in self.store.read(query, *values, limit)]
        return shown.JobList(jobs=jobs, next=jobs[-1].id if len(jobs) == limit and limit else None)

    def shown_job(self, job: int) -> shown.JobShown:
        """Returns a job.

        Raises:
            NoSuchJobError: There is none of this number.
        """
        rows = self.store.read(f"{shown.JOB_COLUMNS} WHERE j.id = ?", job)
        if not rows:
            raise NoSuchJobError(f"there is no job {job}")
        modelled = self.controller.modelled(rows[0]["site"])
        segments = stored_segments(self.store, job, modelled) if rows[0]["start_s"] is not None else ()
        return self.shower.job(rows[0], segments)

    async def job(self, request: Request, holder: Holder) -> Response:
        """Shows a job."""
        return answer(await run_in_threadpool(self.shown_job, _job(request)))

    async def why(self, request: Request, holder: Holder) -> Response:
        """Says why a job is where it is."""
        await run_in_threadpool(self.shown_job, _job(request))
        return answer(await run_in_threadpool(why, self.controller, _job(request)))

    async def output(self, request: Request, holder: Holder) -> Response:
        """Shows the end of what a job has printed."""
        most = number(request, "bytes", 65_536, MOST_BYTES)
        shown_ = functools.partial(job_output, self.controller, _job(request), most, only_of=holder.only_own)
        return answer(await run_in_threadpool(shown_))

    async def change_job(self, request: Request, holder: Holder) -> Response:
        """Pins a waiting job to a site, or vetoes sites."""
        change: shown.Change = decoded(self._change, await body_of(request))
        job, pin = _job(request), change.site
        veto = None if change.not_sites is msgspec.UNSET else change.not_sites

        def steer() -> None:
            operator.steer_job(
                self.controller,
                job,
                holder.name,
                pin=pin if isinstance(pin, str) else None,
                unpin=pin is None,
                veto=veto,
                only_of=holder.only_own,
            )

        await run_in_threadpool(steer)
        return answer(await run_in_threadpool(self.shown_job, job))

    async def cancel(self, request: Request, holder: Holder) -> Response:
        """Cancels a job."""
        await run_in_threadpool(
            operator.cancel_job, self.controller, _job(request), holder.name, only_of=holder.only_own
        )
        return answer(await run_in_threadpool(self.shown_job, _job(request)), 202)

    async def hold(self, request: Request, holder: Holder) -> Response:
        """Holds a waiting job."""
        await self._hold(request, holder, True)
        return answer(await run_in_threadpool(self.shown_job, _job(request)))

    async def release(self, request: Request, holder: Holder) -> Response:
        """Lets a held job go on."""
        await self._hold(request, holder, False)
        return answer(await run_in_threadpool(self.shown_job, _job(request)))

    async def _hold(self, request: Request, holder: Holder, held: bool) -> None:
        await run_in_threadpool(
            operator.hold_job, self.controller, _job(request), held, holder.name, only_of=holder.only_own
        )

    # Sites, plans, decisions, events.

    async def sites(self, request: Request, holder: Holder) -> Response:
        """Lists the sites as they are now."""
        return answer(await run_in_threadpool(self.site_list))

    def site_list(self) -> list[shown.SiteShown]:
        """Returns the sites as they are now."""
        stored = {row["name"]: row for row in self.store.read("SELECT * FROM sites")}
        latest = {row["zone"]: row["source"] for row in self.store.read(LATEST_SOURCES)}
        undispatched = [self.store.read(UNDISPATCHED, site)[0]["n"] for site in self.shower.sites]
        with self.controller.lock:
            now = self.controller.world.view.site_S.copy()
            held_S = self.controller.world.engine.world.state_S["withheld"].tolist()
        return [
            shown.SiteShown(
                name=site.name, zone=site.zone, executor=self.controller.setup.config.sites[site.name].executor,
                gpus=site.gpus, free=int(now["free"][s]), withheld=max(stored[site.name]["withheld"], held_S[s]),
                waiting=int(now["waiting"][s]), waiting_gpus=int(now["waiting_gpus"][s]),
                drained=bool(stored[site.name]["drained"]), dispatch=bool(stored[site.name]["dispatch"]),
                undispatched=undispatched[s], reachable=bool(stored[site.name]["reachable"]),
                seen=self.shower.time(stored[site.name]["seen_s"]), remark=stored[site.name]["remark"],
                price_usd_per_mwh=_known(now["price"][s]), carbon_g_per_kwh=_known(now["carbon"][s]),
                signal_source=latest.get(site.zone),
            )
            for s, site in enumerate(self.controller.setup.scenario.fleet.sites)
        ]  # fmt: skip

    async def change_site(self, request: Request, holder: Holder) -> Response:
        """Drains a site or takes it up again; stops or resumes dispatch to it."""
        change: shown.SiteChange = decoded(self._site_change, await body_of(request))
        site = request.path_params["site"]
        if site not in self.shower.sites:
            raise RefusedError(404, "unknown", f"there is no site {site!r}; sites: {', '.join(self.shower.sites)}")
        if change.drained is msgspec.UNSET and change.dispatch is msgspec.UNSET:
            raise RefusedError(422, "invalid", "say what changes: drained or dispatch, each true or false")
        await run_in_threadpool(self.switch_site, site, holder.name, change)
        return answer(next(one for one in await run_in_threadpool(self.site_list) if one.name == site))

    def switch_site(self, site: str, who: str, change: shown.SiteChange) -> None:
        """Carries out what an operator changes about a site, and notes it in the audit log."""
        if isinstance(change.drained, bool):
            operator.drain_site(self.controller, site, change.drained, who)
            operator.audit(self.controller, who, "drain" if change.drained else "undrain", site)
        if isinstance(change.dispatch, bool):
            operator.set_dispatch(self.controller, site, change.dispatch, who)
            operator.audit(self.controller, who, "dispatch on" if change.dispatch else "dispatch off", site)

    async def tenant_list(self, request: Request, holder: Holder) -> Response:
        """Lists the tenants: what each may hold, holds and has waiting."""
        return answer(await run_in_threadpool(tenants_shown, self.store, self.controller.world, self.tenants))

    async def plans(self, request: Request, holder: Holder) -> Response:
        """Shows what is expected of every site in the coming 24 hours."""
        return answer(await run_in_threadpool(plans, self.controller))

    async def savings(self, request: Request, holder: Holder) -> Response:
        """Shows what was saved in the last days against the reference policy; computed every ten minutes at most."""
        days = number(request, "days", 7, 31)
        if days < 1:
            raise RefusedError(422, "invalid", "days is 0; it must be from 1 to 31")
        found = await self.settled(days)
        if found is None:
            raise RefusedError(404, "unknown", "the scenario has no signals or no baseline to compare with")
        return answer(found)

    async def settled(self, days: int) -> Savings | None:
        """Returns what was saved in the last days, as computed lately; None without signals or reference policy.

        Raises:
            RefusedError: These days were not computed before, and others were so lately that this one must wait.
        """
        async with self._settling:
            began = time.monotonic()
            at, found = self._savings.get(days, (-math.inf, None))
            kept_s = max(LEAST_SETTLED_S, SETTLED_S / self.store.clock.speed)
            if began - at <= kept_s:
                return found
            if (pause_s := self._settle_from - began) > 0:
                if days in self._savings:
                    return found
                raise RefusedError(
                    429, "busy", f"savings of {days} days can be computed in {pause_s:.0f} s; those of other days were "
                    "computed just now", pause_s,
                )  # fmt: skip
            found = await run_in_threadpool(savings, self.controller, days)
            ended = time.monotonic()
            self._savings[days] = (ended, found)
            self._settle_from = ended + (ended - began) * (1.0 / SETTLE_SHARE - 1.0)
        return found

    def last_savings(self, days: int) -> Savings | None:
        """Returns what was saved in the last days, as computed last; None if that has not been done yet."""
        return self._savings[days][1] if days in self._savings else None

    async def decisions(self, request: Request, holder: Holder) -> Response:
        """Lists decisions, newest first."""
        limit, before = number(request, "limit", 100, MOST_ROWS), number(request, "before", 2**53, 2**53)
        job = None if request.query_params.get("job") is None else number(request, "job", 0, 2**53)
        return answer(await run_in_threadpool(self.decision_list, job, before, limit))

    def decision_list(self, job: int | None, before: int, limit: int) -> list[shown.DecisionShown]:
        """Returns decisions below a number, newest first, of all jobs or of one."""
        where, values = ("", [before]) if job is None else (" AND job = ?", [before, job])
        rows = self.store.read(f"SELECT * FROM decisions WHERE id < ?{where} ORDER BY id DESC LIMIT ?", *values, limit)
        rows_of = seen_sites(self.store, {row["seen"] for row in rows})
        return [self.shower.decision(row, rows_of) for row in rows]

    async def audit(self, request: Request, holder: Holder) -> Response:
        """Lists what operators changed, newest first."""
        limit, before = number(request, "limit", 100, MOST_ROWS), number(request, "before", 2**53, 2**53)
        query = "SELECT * FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
        rows = await run_in_threadpool(self.store.read, query, before, limit)
        fields = shown.AuditShown.__struct_fields__
        return answer([shown.AuditShown(**{name: row[name] for name in fields}) for row in rows])

    async def events(self, request: Request, holder: Holder) -> Response:
        """Lists events from a number on; as a stream where the request accepts ``text/event-stream``."""
        after, limit = number(request, "after", 0, 2**53), number(request, "limit", MOST_ROWS, MOST_ROWS)
        if "text/event-stream" in request.headers.get("accept", ""):
            if self._streams[holder.name] >= MOST_STREAMS:
                raise RefusedError(
                    429, "streams", f"{holder.name} has {MOST_STREAMS} streams of events open; close one of them", 1.0
                )
            last = request.headers.get("last-event-id", "")
            start = int(last) if last.isdigit() and len(last) < 16 else after
            return StreamingResponse(self._counted(request, holder, start), media_type="text/event-stream")
        return answer(await run_in_threadpool(self._events, after, limit))

    def _events(self, after: int, limit: int) -> list[shown.Event]:
        rows = self.store.read("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        return [self.shower.event(row) for row in rows]

    async def _counted(self, request: Request, holder: Holder, after: int) -> AsyncIterator[bytes]:
        """Yields a stream of events while it counts as one of its holder's."""
        self._streams[holder.name] += 1
        try:
            async for part in self._stream(request, after):
                yield part
        finally:
            self._streams[holder.name] -= 1

    async def _stream(self, request: Request, after: int) -> AsyncIterator[bytes]:
        while not await request.is_disconnected():
            events = await run_in_threadpool(self._events, after, MOST_ROWS)
            for event in events:
                after = event.id
                yield b"id: %d\ndata: %s\n\n" % (event.id, msgspec.json.encode(event))
            if not events:
                yield b": still here\n\n"
                await asyncio.sleep(NEWS_S)

    # Meters and grid events.

    async def meters(self, request: Request, holder: Holder) -> Response:
        """Lists what the metered sites draw."""
        return answer(await run_in_threadpool(meter_list, self.controller))

    async def grid_events(self, request: Request, holder: Holder) -> Response:
        """Lists grid events, newest first."""
        return answer(await run_in_threadpool(event_list, self.controller, number(request, "limit", 100, MOST_ROWS)))

    async def call_event(self, request: Request, holder: Holder) -> Response:
        """Calls a grid event."""
        call: EventCall = decoded(self._event_call, await body_of(request))
        return answer(await run_in_threadpool(self.called, call, holder.name), 201)

    def called(self, call: EventCall, who: str) -> GridEventCalled:
        """Stores a grid event that an operator calls.

        Raises:
            DataError: It cannot be.
        """
        number_ = self.controller.grid_events.call(call, who)
        self.controller.decide_wake.set()
        (event,) = event_list(self.controller, number=number_)
        return GridEventCalled(event=event, remark=remark(self.controller))

    async def cancel_event(self, request: Request, holder: Holder) -> Response:
        """Cancels a grid event."""
        return answer(await run_in_threadpool(self.cancelled, _job(request), holder.name))

    def cancelled(self, number_: int, who: str) -> GridEventShown:
        """Cancels a grid event that has not ended.

        Raises:
            NoSuchJobError: There is none of this number.
            TooLateError: It has ended, or was cancelled before.
        """
        self.controller.grid_events.cancel(number_, who)
        self.controller.decide_wake.set()
        return event_list(self.controller, number=number_)[0]

    # The service itself.

    async def service(self, request: Request, holder: Holder) -> Response:
        """Shows the service: policy, time, open jobs, problems."""
        return answer(await run_in_threadpool(self.service_shown))

    def service_shown(self) -> shown.ServiceShown:
        """Returns what the service is and how it is."""
        controller, scenario = self.controller, self.controller.setup.scenario
        counted = self.store.read(f"SELECT count(*) AS n FROM jobs WHERE {IS_OPEN}")
        now_s = self.store.now_s()
        slot_s = scenario.slot_s if scenario.protocol == "each-slot" else None
        next_slot = None if slot_s is None else controller.time_of((now_s // slot_s + 1) * slot_s)
        return shown.ServiceShown(
            version=__version__,
            mode="shadow" if controller.setup.runs_nothing else "live",
            policy=controller.policy,
            protocol=scenario.protocol,
            start=controller.time_of(0.0),
            now=controller.time_of(now_s),
            speed=self.store.clock.speed,
            open_jobs=counted[0]["n"],
            problems=controller.problems,
            late_signal_hours=0 if controller.keeper is None else controller.keeper.late_h(),
            next_slot=next_slot,
        )

    async def change_policy(self, request: Request, holder: Holder) -> Response:
        """Lets another policy decide."""
        change: shown.PolicyChange = decoded(self._policy_change, await body_of(request))
        await run_in_threadpool(self.use_policy, holder.name, change.policy)
        return answer(await run_in_threadpool(self.service_shown))

    def use_policy(self, who: str, policy: str) -> None:
        """Lets another policy decide, and notes it in the audit log.

        Raises:
            ScenarioError: No such policy is registered: a name over the network runs no code of its own.
        """
        default_registry().find(policy, "cluster")
        self.controller.use_policy(policy)
        operator.audit(self.controller, who, "policy", policy)

    async def metrics(self, request: Request, holder: Holder) -> Response:
        """Figures for Prometheus."""
        return Response(await run_in_threadpool(self.figures.exposition), media_type=CONTENT_TYPE)

    async def healthz(self, request: Request) -> Response:
        """Says whether every loop makes its steps."""
        late = sorted(name for name, beat in self.controller.heartbeats.items() if beat.late)
        return answer({"healthy": not late, "late": late}, 503 if late else 200)

    async def readyz(self, request: Request) -> Response:
        """Says whether jobs are taken: the store can be written; tried once a second at most."""
        async with self._readying:
            at, reason = self._ready
            if time.monotonic() - at > READY_S:
                reason = await self._why_not_ready()
                self._ready = time.monotonic(), reason
        return answer({"ready": False, "reason": reason}, 503) if reason else answer({"ready": True})

    async def _why_not_ready(self) -> str:
        """Returns why the store cannot be written; empty if it can."""

        def change(connection: Connection, now_s: float) -> None:
            # As much as a job takes, so that a disk that has room for less is noticed.
            self.store.keep(connection, {"ready": f"{now_s:<4096}"})

        try:
            await asyncio.wait_for(self.store.written(change), 5.0)
        except (StoreError, TimeoutError) as error:
            return str(error) or "the store does not answer"
        return ""

    async def openapi(self, request: Request) -> Response:
        """Describes the interface."""
        return answer(document())


def _with_keys(jobs: list[JobRequest], key: str) -> list[JobRequest]:
    """Gives the jobs of a request that has an idempotency key keys of their own."""
    if not 1 <= len(key) <= 150:
        raise RefusedError(422, "invalid", "the header Idempotency-Key holds 1 to 150 characters")
    if any(job.key is not None for job in jobs):
        raise RefusedError(422, "invalid", "give idempotency keys in the jobs or in the header, not in both")
    return [msgspec.structs.replace(job, key=f"{key}/{n}") for n, job in enumerate(jobs)]


def _job(request: Request) -> int:
    return int(request.path_params["job"])


def number(request: Request, name: str, default: int, most: int) -> int:
    """Returns a number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17 and 0 <= int(text) <= most):
        raise RefusedError(422, "invalid", f"{name} is {text!r}; it must be a whole number from 0 to {most}")
    return int(text)


def _known(value: float) -> float | None:
    return None if value != value else float(value)
