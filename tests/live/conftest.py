"""A service over a small fleet whose time stands still until it is set, and a day that is played through it."""

import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from command_line import CommandLine
from live.callers import local_client
from live.kube_site import KubeSite
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief
from noonward.decision.cluster.view import STOPS
from noonward.live.clock import ManualClock
from noonward.live.config import LiveConfig
from noonward.live.controller import Controller
from noonward.live.demand.events import EventCall
from noonward.live.grid.sources import SignalSource, _part
from noonward.live.orders import stated_run_s
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.setup import Setup
from noonward.live.store import sqlite
from noonward.live.store.postgres import PostgresDatabase
from noonward.live.store.store import Store
from noonward.live.store.submit import submission


class FixedSource(SignalSource):
    """Signals of an environment, and one hour more: the last job may end when the last hour does."""

    name = "environment"

    def __init__(self, environment):
        self.environment, signals = environment, environment.signals
        longer = {name: np.pad(value, ((0, 0), (0, 1)), "edge") for name, value in signals.value_ZH.items()}
        self.signals = replace(signals, value_ZH=longer, parts={})

    def fetch(self, zones, start, hours):
        return self.signals.select(zones).window(start, hours)

    def published(self, zones, start, hours):
        return _part(self.signals, zones, start, hours)


def call_of(asked):
    """How an operator calls an event at its notice."""
    event = asked.event
    return EventCall(
        site=asked.site, target_kw=event.target_kw, hours=(event.end_s - event.start_s) / 3600,
        notice_min=event.notice_s / 60, baseline_kw=event.baseline_kw, ramp_min=event.ramp_s / 60,
    )  # fmt: skip


class SimulatedSetup(Setup):
    """Parts of a service that knows of the jobs to come what a simulation's schedulers know."""

    def brief(self, needs):
        told = super().brief(needs)
        if not needs.samples:
            return told
        of_run = Brief.of(self.source.environment, needs)
        return replace(of_run, late_until_s=told.late_until_s, late_usd_per_gpu_hour=told.late_usd_per_gpu_hour)


class Service:
    """A service over an environment: its jobs, signals and sites; nothing runs, jobs take what the model says."""

    def __init__(self, folder, scenario, policy, index=0, database=None, executors=None, live=None):
        self.scenario, self.executors, self.live = scenario, executors or {}, live or {}
        self.environment = build_environment(scenario, index)
        self.clock = ManualClock(self.environment.start)
        self.folder, self.policy, self.database = folder, policy, database
        self.checker = RequestChecker(scenario.fleet, 64, priorities=scenario.priorities)
        self.open()

    def open(self):
        where = self.folder
        if self.database is not None:
            where = PostgresDatabase(self.database)
            assert where.wait_to_lead(threading.Event())
        self.store = Store(where, self.clock)
        config = LiveConfig(
            scenario=self.scenario.name,
            policy=self.policy,
            folder=self.folder,
            sites={name: {"executor": "model"} for name in self.scenario.fleet.site_names},
            **self.live,
        )
        made = Setup.of(config, self.scenario, self.store)
        source = FixedSource(self.environment) if made.source else None
        pairs = zip(made.sites, made.executors, strict=True)
        executors = tuple(self.executors.get(name, modelled) for name, modelled in pairs)
        setup = SimulatedSetup(**{**vars(made), "source": source, "executors": executors})
        self.controller = Controller(setup, self.store)

    def restart(self):
        """Ends the service between two steps and starts it again from its store."""
        self.store.close()
        self.open()

    def set_time(self, seconds):
        self.clock.seconds = seconds

    def submit(self, *requests, owner=""):
        return self.store.do(submission([self.checker.row(request) for request in requests], owner))[0]

    def owner(self, j):
        """Who submits a job of the environment: its tenant, where tenants are stated."""
        tenants = self.environment.tenants
        return "" if tenants is None else tenants.names[self.environment.tenant_J[j]]

    def steps(self):
        sites = range(len(self.controller.setup.sites))
        for s in sites:
            self.controller.track(s)
        self.controller.look_for_events()
        self.controller.decide()
        for s in sites:
            self.controller.deliver(s)
        self.controller.measure()

    def request(self, j):
        jobs, fleet = self.environment.jobs, self.scenario.fleet
        slack_s = float(jobs.slack_s_J[j])
        return JobRequest(
            name=f"job {j}",
            work=float(jobs.work_J[j]),
            class_=fleet.classes[jobs.class_J[j]],
            origin=fleet.ingress_points[jobs.origin_J[j]].name,
            gpus_min=int(jobs.gpus_min_J[j]),
            gpus_max=int(jobs.gpus_max_J[j]),
            max_delay_s=None if math.isinf(slack_s) else slack_s,
            priority=None if self.environment.priority_J is None else int(self.environment.priority_J[j]),
            data_gb=float(jobs.data_gb_J[j]),
            model_gb=float(jobs.model_gb_J[j]),
            result_gb=float(jobs.result_gb_J[j]),
        )

    def play(self, restart_every=0):
        """Plays the environment's jobs and grid events through the service until all have ended."""
        jobs, coming, steps = self.environment.jobs, 0, 0
        events = sorted(self.environment.events, key=lambda each: -each.event.known_s)
        while True:
            rows = self.store.read("SELECT * FROM jobs WHERE start_s IS NOT NULL AND ended_s IS NULL")
            times = [
                row["start_s"] + stated_run_s(row) if row["finish_s"] is None else row["finish_s"]
                for row in rows
                if row["state"] != "suspended" and (not row["life"] or json.loads(row["life"])["state"] != STOPS)
            ]
            if coming < len(jobs):
                times.append(float(jobs.arrival_s_J[coming]))
            if events:
                times.append(events[-1].event.known_s)
            world, slot_s = self.controller.world, self.scenario.slot_s
            if self.store.read("SELECT 1 FROM jobs WHERE serial IS NULL AND state = 'submitted'"):
                times.append(slot_s * (self.clock.seconds // slot_s + 1) if slot_s else math.inf)
            times.append(world.next_slot_s() if self.environment.protocol == "each-slot" else world.next_event_s())
            time = max(min(times), self.clock.seconds)  # a world that was opened again is where it last asked
            if not math.isfinite(time) or (time >= self.environment.window_s and not self.environment.drained):
                return
            self.set_time(time)
            while coming < len(jobs) and jobs.arrival_s_J[coming] <= time:
                self.submit(self.request(coming), owner=self.owner(coming))
                coming += 1
            while events and events[-1].event.known_s <= time:
                self.controller.grid_events.call(call_of(events.pop()), "operator")
            self.steps()
            steps += 1
            if restart_every and steps % restart_every == 0:
                self.restart()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Services in the tests' own process write as services do, but do not wait until the disk has it."""
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")


@pytest.fixture(scope="session")
def kube_site():
    """A real Kubernetes API server; tests of it are of one xdist group, so that it is started once."""
    with KubeSite() as site:
        yield site


@pytest.fixture
def noonward(monkeypatch, capsys, tmp_path):
    """The command line, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def service(tmp_path):
    """Makes services; closes them."""
    made = []

    def make(policy, *settings, scenario="tiny", database=None, executors=None, live=None):
        folder = tmp_path / f"live{len(made)}"
        loaded = load_scenario(scenario, settings)
        made.append(Service(folder, loaded, policy, database=database, executors=executors, live=live))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


@pytest.fixture
def live(service):
    """A service whose policy is local-fcfs."""
    return service("local-fcfs")


@pytest.fixture
def http(live):
    """A client on the machine of the service."""
    with local_client(live) as client:
        yield client
