"""The controller: signals, decisions, hand-over, tracking and reconciliation, each a step that may be repeated."""

from __future__ import annotations

import functools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from noonward.errors import NoonwardError
from noonward.live.books import Books, new_arrivals
from noonward.live.decided import finish_parts
from noonward.live.demand.events import EventBook
from noonward.live.demand.feeds import MeterReadings
from noonward.live.demand.meters import Meters
from noonward.live.demand.reports import EventReports
from noonward.live.demand.sources import EventSource
from noonward.live.executors.protocol import ClusterError
from noonward.live.grid.keeper import HISTORY_H
from noonward.live.handover import SiteAgent
from noonward.live.known_jobs import StatedTimes
from noonward.live.names import Names, take_fleet
from noonward.live.requests import JobRow
from noonward.live.run_times import RunTimeLearner, RunTimeTeller
from noonward.live.service_name import service_name
from noonward.live.setup import Setup
from noonward.live.shadow.executor import ShadowExecutor
from noonward.live.shadow.watcher import Watcher
from noonward.live.states import UnreadableStateError
from noonward.live.store.database import Connection
from noonward.live.store.dependencies import let_arrive
from noonward.live.store.retention import retire
from noonward.live.store.set_back import set_back
from noonward.live.store.store import Store
from noonward.live.turns import in_turns
from noonward.live.webhook import Webhook
from noonward.live.world.hours import Hours
from noonward.live.world.seats import Arrival
from noonward.live.world.world import World
from noonward.seeding import stream
from noonward.units import DAY_S, HOUR_S, MINUTE_S

LONGEST_PAUSE_S: Final = 60.0
"""Longest pause of a loop after failures, real seconds."""
LEAST_PAUSE_S: Final = 0.02
"""Shortest pause of a loop, however often it is woken, real seconds."""
START_WAIT_S: Final = 5.0
"""How long a service that has signals waits for its publishers when it starts, real s."""
OPENED_AGAIN: Final = 0.1
"""Share of the time for which the service keeps its past after which its books are opened again."""
_log = logging.getLogger("noonward.live")


@dataclass
class Heartbeat:
    """When a loop last ended a step, and what went wrong.

    Attributes:
        every_s: Real seconds between its steps.
        beaten: ``time.monotonic()`` of its start, or of its last step that ended by itself: also one that failed as
            something outside failed, e.g. a cluster that is away, which a restart of the service does not mend.
        problem: Message of the last failure; empty after a step that ended well.
        failures: Failures in a row.
    """

    every_s: float
    beaten: float = field(default_factory=time.monotonic)
    problem: str = ""
    failures: int = 0

    @property
    def late(self) -> bool:
        """Whether it hangs, or its steps meet a defect again and again: ten periods and a minute without ``beaten``."""
        return time.monotonic() - self.beaten > 10 * self.every_s + 60.0


class Controller:
    """Runs a service over its store.

    Every step reads what it needs from the store or from the books in memory, and may be repeated: after a crash the
    books are opened from the store, and the steps carry on. ``run`` starts each step in a loop of its own; a test or a
    replay calls the steps itself.

    Args:
        setup: Parts of the service.
        store: Its store.
        policy: Policy that decides; None: the one stored last, or that of the configuration.

    Attributes:
        world: The books in memory; read and write them under ``lock``.
        lock: Lock of the books.
    """

    def __init__(self, setup: Setup, store: Store, policy: str | None = None) -> None:
        self.setup, self.store = setup, store
        finish_parts(store)
        self.lock = threading.RLock()
        self.service = service_name(store)
        self.keeper = setup.keeper(store)
        self.heartbeats: dict[str, Heartbeat] = {}
        self.decide_wake = threading.Event()
        self.site_wakes, self.track_wakes = ([threading.Event() for _ in setup.sites] for _ in range(2))
        self.decision_s: list[float] = []
        self.round_s: list[float] = []
        self._ended: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._bent: queue.SimpleQueue[tuple[str, int, float, tuple[int, ...]]] = queue.SimpleQueue()
        self._touched: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._wakes: list[threading.Event] = []
        self._threads: list[threading.Thread] = []
        self._announced = setup.setting(window_s=np.inf, drained=True).withheld
        self.names = Names.of(setup.scenario.fleet, setup.scenario.tenants)
        take_fleet(store, self.names)
        self._store_sites()
        self._clock_problem = self._policy_problem = ""
        self._note_clock(set_back(store))
        self._first_signals()
        self.policy = policy or store.value("policy") or setup.config.policy
        self.grid_events = EventBook(store, setup.scenario.fleet, setup.config.events)
        events = setup.config.events
        sourced = events is not None and (events.openadr is not None or events.path is not None)
        self.event_source = EventSource(events, self.grid_events, store.now_s) if events and sourced else None
        self.event_reports = (
            EventReports(events, store, setup.scenario.fleet, self.modelled) if events and events.reports else None
        )
        shadow = any(isinstance(executor, ShadowExecutor) for executor in setup.executors)
        webhook = None if shadow else setup.config.webhook
        self.webhook = Webhook(webhook, store, self.service.name, self.time_of) if webhook else None
        self.meters = self._metering()
        self.teller = self._telling()
        self.world, self.books = self._opened(self.policy)
        self.agents = [
            SiteAgent(store, executor, name, self.service, self._job_ended, self._job_bent, self._cap_power)
            for name, executor in zip(setup.sites, setup.executors, strict=True)
        ]
        for agent in self.agents:
            agent.others = [other for other in self.agents if other is not agent]
        self.watchers = self._watching()

    def _watching(self) -> dict[int, Watcher]:
        """Returns what watches a cluster in shadow, by the number of its site."""
        config, fleet = self.setup.config, self.setup.scenario.fleet
        return {
            s: Watcher(
                self.store, executor.slurm, s, fleet, config.shadow, config.largest_gang, lambda: self.world, self.touch
            )
            for s, executor in enumerate(self.setup.executors)
            if isinstance(executor, ShadowExecutor)
        }

    def _metering(self) -> Meters:
        """Returns the meters of the sites that have one."""
        setup, now_s = self.setup, self.store.now_s
        readings = {name: MeterReadings(feed, name, setup.start, now_s) for name, feed in setup.config.meters.items()}
        modelled = [executor.exact_ends for executor in setup.executors]
        return Meters(self.store, setup.scenario.fleet, readings, modelled, self.time_of)

    def _telling(self) -> RunTimeLearner | RunTimeTeller | None:
        """Returns what tells the scheduler of run times; None where it is told what users state."""
        known = self.setup.known_jobs()
        if known is None:
            return None
        if isinstance(known, StatedTimes):
            return RunTimeTeller(known, self.names)
        return RunTimeLearner(known, self.store, self.names)

    def _store_sites(self) -> None:
        sites = [(site.name, site.gpus) for site in self.setup.scenario.fleet.sites]

        def change(connection: Connection, now_s: float) -> None:
            connection.executemany(
                "INSERT INTO sites (name, gpus) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET gpus = excluded.gpus",
                sites,
            )

        self.store.do(change)

    def _opened(self, policy: str, *, without_state: bool = False) -> tuple[World, Books]:
        """Returns the books of a policy, opened from the store; its scheduler as it was stored, or again.

        A scheduler that cannot read its stored state starts again without it: jobs do not wait for an operator.
        """
        try:
            return self._books(policy, without_state=without_state)
        except UnreadableStateError as error:
            self._policy_problem = f"{error}; it has begun again without it, and all jobs keep their places"
            _log.warning("policy: %s", self._policy_problem)
            world, books = self._books(policy, without_state=True)
            self.store.do(books.take_over)
            return world, books

    def _books(self, policy: str, *, without_state: bool) -> tuple[World, Books]:
        """Returns what ``_opened`` does; raises UnreadableStateError where the stored state cannot be read."""
        scheduler = self.setup.scheduler(policy)
        seed = self.setup.config.seed
        world = World(
            self.setup.brief(scheduler.needs),
            scheduler,
            self._hours(scheduler.needs.forecast),
            stream(seed, "policy", 0),
            [executor.exact_ends for executor in self.setup.executors],
            [executor.keeps_gpus for executor in self.setup.executors],
            self.setup.part_s,
        )
        books = Books(self.store, world, self.names, policy, self.service)
        books.open(without_state=without_state)
        return world, books

    def _hours(self, forecast: object) -> Hours | None:
        if self.keeper is None:
            return None
        until = (self.keeper.last_hour or 0) + 1
        signals = self.keeper.signals(-HISTORY_H, until)
        zones = [site.zone for site in self.setup.scenario.fleet.sites]
        rng = stream(self.setup.config.seed, "forecast", 0)
        setting = self.setup.setting(window_s=np.inf, drained=True)
        published = self.keeper.published(0, until)
        return Hours(signals, self.setup.start, zones, forecast, rng, setting.pue, published, setting.prices)  # type: ignore[arg-type]

    # Steps.

    def signals(self) -> None:
        """Asks publishers for the signals, and stores those of every hour up to the current one."""
        if self.keeper is not None:
            hour = int(self.store.now_s() // HOUR_S)
            self.keeper.refresh(hour)
            self.keeper.update(hour)

    def _first_signals(self) -> None:
        """Stores the signals of every hour up to the current one when the service starts.

        A service that has signals waits for its publishers a few seconds at most: what they say later is taken later.
        """
        keeper = self.keeper
        if keeper is None or keeper.last_hour is None:
            self.signals()
            return
        hour = int(self.store.now_s() // HOUR_S)
        asking = threading.Thread(target=keeper.refresh, args=(hour,), name="first signals", daemon=True)
        asking.start()
        asking.join(START_WAIT_S)
        keeper.update(hour)

    def decide(self) -> bool:
        """Takes what has happened, asks the scheduler and stores what it decided; returns whether it asked."""
        if self.store.ahead_s:
            self._mend_clock()
        let_arrive(self.store)
        if self._asked_up_to(max(self.store.now_s(), self.store.stamp_s)):
            return False
        # A change of its own: whatever was stamped before it is committed.
        until_s = self._question_s(self.store.do(lambda connection, now_s: now_s))
        self._bring_hours(int(until_s // HOUR_S))
        with self.lock:
            began = time.perf_counter()
            ready = self.books.save()  # what an earlier step could not store
            self._take_operator(float(until_s))
            self.grid_events.tell(self.world)
            self._take_ended()
            self.world.arrive(new_arrivals(self.store, self.names, until_s, self.teller))
            asked = self.world.asks
            self.world.run_to(float(until_s))
            ready += self.books.save()
            if self.world.asks > asked:
                self.round_s.append(time.perf_counter() - began)
                self.decision_s.append(self.round_s[-1] / (self.world.asks - asked))
                del self.decision_s[:-10_000], self.round_s[:-10_000]
        for s in ready:
            self.site_wakes[s].set()
        return self.world.asks > asked

    def take_new(self, rows: Iterable[JobRow]) -> None:
        """Has jobs that were just stored decided about now if a question is due; otherwise the next one is in time."""
        if not self._asked_up_to(self.store.now_s()) or any(row.after for row in rows):
            self.decide_wake.set()

    def _question_s(self, now_s: float) -> float:
        """Returns the time of the last question that is due: now, or the last slot boundary."""
        slot_s = self.setup.scenario.slot_s
        return now_s if self.setup.scenario.protocol == "on-arrival" else math.floor(now_s / slot_s) * slot_s

    def _asked_up_to(self, now_s: float) -> bool:
        """Returns whether no question is due: the last slot boundary was asked about."""
        return self.setup.scenario.protocol == "each-slot" and self._question_s(now_s) <= self.world.asked_s

    def _mend_clock(self) -> None:
        """Goes on where the clock was ahead for a time and was set right."""
        with self.lock:
            self.books.save()
            ahead_s = set_back(self.store)
            if ahead_s:
                self.signals()
                self.teller = self._telling()
                self.world, self.books = self._opened(self.policy)
                self._note_clock(ahead_s)

    def _note_clock(self, ahead_s: float) -> None:
        if ahead_s:
            self._clock_problem = (
                f"it was {ahead_s / HOUR_S:.1f} h ahead and was set back at {self.time_of(self.store.now_s())}; what "
                "was stamped meanwhile counts as of then, and the policy's plans have begun again"
            )
            _log.warning("clock: %s", self._clock_problem)

    def _bring_hours(self, hour: int) -> None:
        """Adds the hours that have begun to what the books know."""
        hours = self.world.hours
        if hours is None or self.keeper is None or hours.known_h > hour:
            return
        self.keeper.update(hour)
        first = hours.known_h
        hours.append(self.keeper.signals(first, hour + 1), self.keeper.published(first, hour + 1))

    def _take_ended(self) -> None:
        while not self._bent.empty():
            what, serial, time_s, more = self._bent.get()
            self.world.running.told(what, serial, time_s, *more)
        while not self._ended.empty():
            serial, time_s = self._ended.get()
            self.world.finish(serial, time_s)

    def _take_operator(self, until_s: float) -> None:
        """Takes over what operators changed: holds, pins, vetoes, cancellations, drained sites, withheld GPUs.

        GPUs that the scenario announced to be withheld are, whatever a cluster has; it may have fewer.
        """
        by_job = {seat.about.job: seat for seat in self.world.seat_of.each()} if not self._touched.empty() else {}
        while not self._touched.empty():
            job = self._touched.get()
            seat = by_job.get(job)
            row = self.store.read("SELECT * FROM jobs WHERE id = ?", job)[0]
            if seat is None:
                continue
            if row["state"] == "cancelled":
                self.world.withdraw(seat.serial)
                continue
            now = self.names.arrival(row)
            self.world.steer(seat.serial, now.held, now.pinned, now.vetoed)
        for row in self.store.read("SELECT * FROM sites"):
            if row["name"] in self.setup.sites:
                s = self.setup.sites.index(row["name"])
                self.world.drain(s, bool(row["drained"]) or not row["reachable"])
                announced = 0 if self._announced is None else int(self._announced.at(np.array([until_s]))[0, s])
                self.world.withhold(s, max(row["withheld"], announced))

    def deliver(self, s: int) -> None:
        """Hands a site's jobs over."""
        self.agents[s].deliver()

    def track(self, s: int) -> None:
        """Follows a site's jobs."""
        self._at_site(s, self.agents[s].track)

    def watch(self, s: int) -> None:
        """Reads what a watched cluster runs."""
        self._at_site(s, self.watchers[s].step)

    def reconcile(self, s: int) -> None:
        """Cleans up what a crash left at a site."""
        self._at_site(s, self.agents[s].reconcile)

    def look_for_events(self) -> None:
        """Takes what the source of grid events says, where there is one."""
        if self.event_source is not None and self.event_source.look():
            self.decide_wake.set()

    def measure(self) -> None:
        """Reads the sites' power, and holds the intervals that are over against the targets of grid events."""
        if self.meters.of:
            self.meters.refresh()
            with self.lock:
                kw_S = self.world.site_kw(self.setup.start + timedelta(seconds=self.store.now_s()))
            self.meters.step(kw_S)

    def _at_site(self, s: int, step: Callable[[], None]) -> None:
        try:
            step()
        except ClusterError as error:
            self.agents[s].failed(error)
            raise

    def _job_ended(self, serial: int, time_s: float) -> None:
        self._ended.put((serial, time_s))
        self.decide_wake.set()

    def _job_bent(self, what: str, serial: int, time_s: float, *more: int) -> None:
        self._bent.put((what, serial, time_s, more))
        self.decide_wake.set()

    def modelled(self, site: str | None) -> bool:
        """Returns whether nothing runs at a site: what is decided happens there as the model says."""
        return site in self.setup.sites and self.setup.executors[self.setup.sites.index(site)].exact_ends

    def _cap_power(self, class_: str, cap: int) -> float:
        """Returns the share of full power that a class runs at under a power cap."""
        return float(self.world.view.freedom_C["cap_power"][self.names.classes.index(class_), cap])

    def retain(self) -> None:
        """Deletes what ended longer ago than the service keeps it.

        A replay begins where books were opened. So in a service that runs for long they are opened again from time to
        time, as after a restart, and the journal before can be deleted in the end.
        """
        now_s, kept_s = self.store.now_s(), self.setup.config.retention_days * DAY_S
        last_s = self.store.read("SELECT max(opened_s) AS last FROM journal")[0]["last"]
        if last_s is not None and now_s - last_s > OPENED_AGAIN * kept_s:
            with self.lock:
                self.books.save()
                self.world, self.books = self._opened(self.policy)
        retire(self.store, now_s - kept_s)

    def touch(self, job: int) -> None:
        """Notes that an operator changed a job."""
        self._touched.put(job)
        self.decide_wake.set()

    def use_policy(self, policy: str) -> None:
        """Lets a policy decide from the next decision on, with no memory of earlier ones; jobs keep their places.

        Raises:
            ScenarioError: There is no such policy, or it cannot run here.
            StoreError: The store cannot be written now; the policy stays.
        """
        with self.lock:
            world, books = self._opened(policy, without_state=True)
            self.store.do(books.take_over)
            # What had ended and was not yet taken is repeated to the new books, which pass over what they do not hold.
            self.world, self.books, self.policy, self._policy_problem = world, books, policy, ""

    def rehearse(self) -> None:
        """Decides about a job that is not stored, in books of its own, so that all functions are compiled."""
        scheduler = self.setup.scheduler(self.policy)
        fleet = self.setup.scenario.fleet
        seed = self.setup.config.seed
        rehearsal = World(self.setup.brief(scheduler.needs), scheduler, self.world.hours, stream(seed, "policy", 0))
        tables = fleet.tables(1)
        class_, _ = np.argwhere(tables.range_CS)[0]
        rehearsal.arrive(
            [Arrival(-1, 0, 0.0, 0, int(class_), 1, 1, work=1.0, max_delay_s=np.inf, move_gb=0.0, result_gb=0.0)]
        )
        rehearsal.run_to(0.0)

    # Loops.

    def run(self) -> None:
        """Starts the loops; cleans up after an earlier crash first."""
        config, speed = self.setup.config, self.store.clock.speed
        poll_s = max(config.poll_s / speed, 0.1)
        decide_s = poll_s if self.setup.scenario.protocol == "on-arrival" else self.setup.scenario.slot_s / speed / 4
        self._loop("signals", self.signals, min(60.0, HOUR_S / speed / 6), threading.Event())
        for s, name in enumerate(self.setup.sites):
            self._loop(f"hand-over {name}", self._hand_over_step(s), poll_s, self.site_wakes[s])
            self._loop(f"site {name}", functools.partial(self.track, s), poll_s, self.track_wakes[s])
        for s in self.watchers:
            self._loop(f"watch {self.setup.sites[s]}", functools.partial(self.watch, s), poll_s, threading.Event())
        if self.event_source is not None:
            looks_s = max(self.event_source.every_s / speed, 0.1)
            self._loop("grid events", self.look_for_events, looks_s, threading.Event())
        if self.event_reports is not None:
            self._loop("reports of grid events", self.event_reports.step, MINUTE_S / speed, threading.Event())
        if self.webhook is not None:
            self._loop("webhook", self.webhook.step, poll_s, threading.Event())
        if self.meters.of:
            self._loop("meters", self.measure, poll_s, threading.Event())
        self._loop("retention", self.retain, HOUR_S / speed, threading.Event())
        self._loop("decide", in_turns()(self.decide), min(max(decide_s, 0.05), 5.0), self.decide_wake)

    def _hand_over_step(self, s: int) -> Callable[[], None]:
        """Returns the step that hands a site's jobs over, whatever becomes of the cleaning up before it."""
        reconciled = -math.inf

        def step() -> None:
            nonlocal reconciled
            try:
                if time.monotonic() - reconciled > 60.0:
                    self.reconcile(s)
                    reconciled = time.monotonic()
            finally:
                self.deliver(s)

        return step

    def _loop(self, name: str, step: Callable[[], object], every_s: float, wake: threading.Event) -> None:
        beat = self.heartbeats[name] = Heartbeat(every_s)
        self._wakes.append(wake)

        def loop() -> None:
            while not self._stop.is_set():
                try:
                    step()
                    beat.beaten, beat.problem, beat.failures = time.monotonic(), "", 0
                except NoonwardError as error:
                    beat.beaten, beat.problem, beat.failures = time.monotonic(), str(error), beat.failures + 1
                    _log.warning("%s: %s", name, error)
                except Exception as error:  # a loop outlives a defect, shows it and tries again
                    beat.problem, beat.failures = f"{type(error).__name__}: {error}", beat.failures + 1
                    _log.exception("%s failed", name)
                pause_s = min(LONGEST_PAUSE_S, every_s * 2 ** min(beat.failures, 10)) if beat.failures else every_s
                wake.wait(pause_s)
                self._stop.wait(LEAST_PAUSE_S)
                wake.clear()

        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ends the loops, each after its step."""
        self._stop.set()
        for wake in self._wakes:
            wake.set()
        for thread in self._threads:
            thread.join(timeout=35.0 if thread.name != "signals" else 1.0)

    @property
    def problems(self) -> dict[str, str]:
        """Loops that are late or failed last, with what is wrong."""
        found = {name: beat.problem for name, beat in self.heartbeats.items() if beat.problem}
        found |= {name: f"no step for {time.monotonic() - beat.beaten:.0f} s" for name, beat in self.heartbeats.items()
                  if beat.late and name not in found}  # fmt: skip
        if self.keeper is not None and self.keeper.problem:
            found.setdefault("signals", self.keeper.problem)
        found |= self.meters.problems
        if self._clock_problem:
            found["clock"] = self._clock_problem
        if self._policy_problem:
            found["policy"] = self._policy_problem
        return found

    def time_of(self, seconds: float) -> str:
        """Returns a UTC time, as it is shown; of one beyond the calendar, the calendar's end."""
        shown_s = min(seconds, (datetime.max.replace(tzinfo=UTC) - self.setup.start).total_seconds() - 1.0)
        return (self.setup.start + timedelta(seconds=shown_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
