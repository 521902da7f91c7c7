"""How fast the live service is: durable submissions over HTTP, decisions with a long queue, restart with many jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.data.scenarios.load import load_scenario
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.evaluate.metrics import Metric
from noonward.live.clock import ManualClock
from noonward.live.config import checked_config
from noonward.live.controller import Controller
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.setup import Setup
from noonward.live.store.store import Store
from noonward.live.store.submit import submission
from noonward.live.world.seats import Arrival
from noonward.live.world.world import World
from noonward.runtime.executor import Progress
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import HOUR_S

BATCHES, BATCH = 60, 1000
"""Batches and jobs of a batch."""
SINGLES, CONNECTIONS = 10_000, 64
"""Single submissions, and connections that send them."""
WAITING = 10_000
"""Waiting jobs in the measurement of decisions."""
STORED = 1_000_000
"""Jobs that have ended in the store, in the measurement of a restart."""
THROUGH, BUNCH = 2000, 23
"""Jobs that run through a service in the measurement of its memory, and how many come in a minute: 10^6 in a month."""
MONTH = 1_000_000
"""Jobs of a month."""
SITES: Final = ("north", "south")
"""Sites of the service, of ``tiny``."""
ROOM = 32
"""GPUs of each of two sites in that measurement: no queue grows."""
_START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_SERVICE: Final = """
import json
import sys
from pathlib import Path
from noonward.live.config import checked_config
from noonward.live.server import serve
config, scenario = checked_config(json.loads(sys.argv[1]), "the benchmark", Path())
scenario = scenario.model_copy(update={"slot_s": float(sys.argv[2])})
serve(config, scenario, started=lambda address, controller: print(address, flush=True))
"""
_DONE: Final = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO jobs (id, key, digest, name, request, state, origin, class, gpus_min, gpus_max, work, move_gb, result_gb,
    retries, submitted_s, arrival_s, serial, slot, place, site, gpus, level, start_s, run_s, power_w, freed_s, token,
    began_s, ended_s, exit_code)
SELECT n, 'key' || n, x'00', 'job', '{"name": "job"}', 'done', 'north', 'fine-tuning', 1, 1, 60.0, 0.0, 0.0, 0, n, n,
    n, 0, n, 'north', 1, 0, n,
    60.0, 80.0, n + 60.0, 'token' || n, n, n + 60.0, 0 FROM numbers
"""


_THROUGH: Final = """
import sys
from datetime import datetime
from pathlib import Path
from noonward.bench.live import run_through
run_through(Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]), int(sys.argv[3]))
"""
"""A service in a process of its own, whose memory is told when some jobs have run through it."""


def bench_live(step: Progress, *, database: str | None = None, month: bool = False) -> list[Metric]:
    """Measures the live service on this machine; client and service share its cores.

    Args:
        step: Called after each measurement.
        database: Address of an empty PostgreSQL database, to which submissions are measured too; None: none.
        month: Run a month of 10^6 jobs through a service, and measure how its memory grows (7 minutes of CPU time).
    """
    more = []
    with tempfile.TemporaryDirectory() as folder:
        batch, single = asyncio.run(_submissions(Path(folder) / "live", step))
        decision_ms = _decision_p99_ms()
        step("decisions")
        restart_s = _restart_s(Path(folder) / "stored")
        step("restart")
        memory_mb = _memory_mb(Path(folder) / "stored")
        step("memory")
        if database is not None:
            rates = asyncio.run(_submissions(Path(folder) / "postgres", step, database))
            names = ("live/postgresql_batch_jobs_per_s", "live/postgresql_single_jobs_per_s")
            more += [Metric.of(name, rate, "jobs/s") for name, rate in zip(names, rates, strict=True)]
        if month:
            more.append(Metric.of("live/month_rss_growth_mb", _month_growth_mb(Path(folder) / "month"), "MB"))
            step("a month")
    return [
        Metric.of("live/batch_jobs_per_s", batch, "jobs/s"),
        Metric.of("live/single_jobs_per_s", single, "jobs/s"),
        Metric.of("live/decision_p99_ms", decision_ms, "ms"),
        Metric.of("live/restart_s", restart_s, "s"),
        Metric.of("live/rss_mb_after_1e6_jobs", memory_mb, "MB"),
        *more,
    ]


async def _submissions(folder: Path, step: Progress, database: str | None = None) -> tuple[float, float]:
    """Returns durable jobs per second by batches and by single requests, to a service in a process of its own."""
    with served(service_content(folder, database=database)) as (port, _):
        one = {"name": "job", "command": "true", "work": 60.0, "origin": "north", "max_delay_s": 1e6}
        batch = await _rate(port, json.dumps([one] * BATCH), BATCHES, 4) * BATCH
        step("batches")
        single = await _rate(port, json.dumps(one), SINGLES, CONNECTIONS)
        step("single submissions")
    return batch, single


def service_content(
    folder: Path,
    scenario: str = "tiny",
    sites: Sequence[str] = SITES,
    policy: str = "local-fcfs",
    database: str | None = None,
) -> dict[str, Any]:
    """Returns what the file of a service over some sites says, all of them dry runs.

    Args:
        folder: Folder of its store.
        scenario: Name or file of its scenario.
        sites: The scenario's sites.
        policy: Policy.
        database: Address of a PostgreSQL database that holds the store instead; None: a file.
    """
    dry = {name: {"executor": "model"} for name in sites}
    content = {"scenario": scenario, "policy": policy, "folder": str(folder), "sites": dry, "port": 0}
    return content if database is None else content | {"database": database}


@contextlib.contextmanager
def served(content: dict[str, Any], *, slot_s: float = HOUR_S) -> Iterator[tuple[int, int]]:
    """Yields port and process number of a service.

    Args:
        content: What its file says.
        slot_s: How often it decides, s.

    Raises:
        ScenarioError: It did not start, e.g. since its policy does not fit.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVICE, json.dumps(content), str(slot_s)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        assert process.stdout is not None, "it is a pipe"
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        if found is None:
            raise ScenarioError("the service of the benchmark ended before it was ready; what it wrote above says why")
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yields a connection to a service of this machine; it is closed in the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


def request_of(body: str) -> bytes:
    """Returns a submission as it is sent."""
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


async def submitted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> None:
    """Sends a submission and reads the answer.

    Raises:
        RuntimeError: It is not stored.
    """
    writer.write(message)
    await writer.drain()
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 201 " not in answer.split(b"\r\n")[0]:
        raise RuntimeError(f"the service answered {answer.split(bytes([13]))[0].decode()}")
    size = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    await reader.readexactly(0 if size is None else int(size[1]))


async def _rate(port: int, body: str, requests: int, connections: int) -> float:
    """Returns answered submissions per second, wall time."""
    message = request_of(body)
    left = iter(range(requests))

    async def send() -> None:
        async with connected(port) as (reader, writer):
            for _ in left:
                await submitted(reader, writer, message)

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(connections)))
    return requests / (time.perf_counter() - began)


class _Timed(Scheduler):
    """Notes when it is asked."""

    def __init__(self, inner: Scheduler) -> None:
        self.inner, self.needs = inner, inner.needs
        self.at_s: list[float] = []

    def reset(self, brief: Any, rng: np.random.Generator) -> None:
        """Resets the scheduler inside."""
        self.inner.reset(brief, rng)

    def decide(self, view: Any, answers: Any) -> None:
        """Asks the scheduler inside."""
        self.at_s.append(time.perf_counter())
        self.inner.decide(view, answers)


def _decision_p99_ms() -> float:
    """Returns the 99th percentile of the time from one question to the next while many jobs wait, ms."""
    scenario = load_scenario("tiny")
    scheduler = _Timed(make_scheduler("most-free"))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), ManualClock(_START))
        setup = _setup(store, Path(folder))
        store.close()
    brief = setup.brief(scheduler.needs)
    world = World(brief, scheduler, None, stream(0, "policy"))
    sites = len(scenario.fleet.sites)
    world.arrive(
        Arrival(j, 0, 0.0, j % sites, 0, 4, 4, work=36000.0, max_delay_s=1e7, move_gb=0.0, result_gb=0.0)
        for j in range(WAITING)
    )
    world.run_to(0.0)
    scheduler.at_s.clear()
    world.run_to(60.0)
    return float(np.percentile(np.diff(scheduler.at_s), 99) * 1e3)


def _restart_s(folder: Path) -> float:
    """Returns the time from opening a store of many ended and 10,000 waiting jobs to a service that decides, s."""
    store = Store(folder, ManualClock(_START))
    store.do(lambda connection, now_s: connection.execute(_DONE, (STORED,)) and None)
    waiting = _DONE.replace("SELECT n,", f"SELECT n + {STORED},").replace("'done'", "'waiting'")
    waiting = waiting.replace("'key' || n", "'wait' || n").replace("'token' || n", "NULL")
    store.do(lambda connection, now_s: connection.execute(waiting, (WAITING,)) and None)
    reset = "UPDATE jobs SET start_s = NULL, freed_s = NULL, ended_s = NULL, slot = serial WHERE state = 'waiting'"
    store.do(lambda connection, now_s: connection.execute(reset) and None)
    counted = "INSERT INTO meta VALUES ('serial', ?), ('place', ?)"
    store.do(lambda connection, now_s: connection.execute(counted, (STORED + WAITING,) * 2) and None)
    store.close()
    began = time.perf_counter()
    store = Store(folder, ManualClock(_START))
    controller = Controller(_setup(store, folder), store)
    elapsed = time.perf_counter() - began
    assert len(controller.world.seat_of) == WAITING, "every waiting job is in sight again"
    store.close()
    return elapsed


def _memory_mb(folder: Path) -> float:
    """Returns the memory of a service over a store of many jobs after some more have run through it, MB."""
    return float(_run_through(folder, THROUGH).stdout)


def _month_growth_mb(folder: Path) -> float:
    """Returns how much the memory of a service grows from a fifth of a month of 10^6 jobs on to its end, MB."""
    told = _run_through(folder, MONTH).stderr
    memory_mb = [float(found) for found in re.findall(r" jobs, ([\d.]+) MB", told)]
    return memory_mb[-1] - memory_mb[len(memory_mb) // 5 - 1]


def _run_through(folder: Path, jobs: int) -> subprocess.CompletedProcess[str]:
    """Runs jobs through a service in a process of its own; returns what it said of its memory."""
    command = [sys.executable, "-c", _THROUGH, str(folder), _START.isoformat(), str(jobs)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})


def run_through(folder: Path, start: datetime, jobs: int) -> None:
    """Runs jobs through a service over a folder's store, 10^6 a month, and writes its memory in MB to stdout.

    On the way, twenty times, it writes the jobs so far and the memory to stderr.

    Args:
        folder: Folder of the store.
        start: When the store began, UTC.
        jobs: How many jobs.
    """
    clock = ManualClock(start)
    store = Store(folder, clock)
    clock.seconds = float(store.value("asked_s") or 0.0) + 1e6 + 60.0
    controller = Controller(_setup(store, folder, ROOM), store)
    checker = RequestChecker(controller.setup.scenario.fleet, 64)
    rows = [checker.row(JobRequest(name="job", work=60.0, origin=("north", "south")[n % 2])) for n in range(BUNCH)]
    sites = range(len(controller.setup.sites))
    minutes = -(-jobs // BUNCH)
    for minute in range(1, minutes + 1):
        clock.seconds += 60.0
        store.do(submission(rows))
        for s in sites:
            controller.track(s)
        controller.decide()
        for s in sites:
            controller.deliver(s)
        if minute % max(1, minutes // 20) == 0:
            sys.stderr.write(f"{minute * BUNCH} jobs, {resident_mb():.1f} MB\n")
    store.close()
    sys.stdout.write(f"{resident_mb():.1f}")


def resident_mb(process: int | str = "self") -> float:
    """Returns the memory of a process, MB; NaN where the machine does not say."""
    status = Path(f"/proc/{process}/status")
    kilobytes = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.is_file() else None
    return float(kilobytes[1]) * 1024 / 1e6 if kilobytes else float("nan")


def _setup(store: Store, folder: Path, gpus: int | None = None) -> Setup:
    """Returns a service's parts; each site with some GPUs, or as the scenario says."""
    config, scenario = checked_config(service_content(folder), "the benchmark", Path())
    if gpus is not None:
        scenario = scenario.model_copy(update={"fleet": scenario.fleet.with_gpus([gpus] * len(SITES))})
    return Setup.of(config, scenario, store)
