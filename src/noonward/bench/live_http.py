"""How the live service takes submissions over HTTP for a long time: rate, latency, memory."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.bench.live import connected, request_of, resident_mb, served, service_content, submitted
from noonward.bench.scale import JOBS, many_sites_content
from noonward.errors import ScenarioError
from noonward.evaluate.metrics import Metric
from noonward.runtime.executor import Progress
from noonward.schedule.policies import find_policy
from noonward.units import HOUR_S

RATE_PER_S: Final = 1000.0
"""Submissions that are sent each second."""
SECONDS: Final = 20.0
"""How long, s."""
CONNECTIONS: Final = 64
"""Connections that send them, each kept open."""
WARM_SHARE: Final = 0.25
"""Share of the time after which the growth of memory is counted."""
LOOK_S: Final = 0.5
"""How often it is asked whether a round of decisions is over, s."""
BATCHES, BATCH = 5, 10_000
"""Batches of the largest size, sent one after the other, and jobs of each."""
STEPS: Final = 2
POLICY: Final = "cheapest-unclaimed"
"""Policy of a service of many sites, unless said otherwise."""
MOST_SLOT_S: Final = 600.0
"""Longest time between decisions where jobs are to be decided about before, s."""
LONG_GPUS: Final = 64
"""GPUs of each of the jobs that wait from the beginning: as many as a job may ask for."""
_JOB: Final = {"name": "job", "command": "true", "work": 60.0, "max_delay_s": 1e6}
_LONG: Final = _JOB | {"work": 1e6, "gpus_min": LONG_GPUS, "max_delay_s": 1e7}
"""A job that waits, or runs on while the measurement lasts."""


def bench_http(
    step: Progress,
    *,
    seconds: float = SECONDS,
    rate_per_s: float = RATE_PER_S,
    slot_s: float = HOUR_S,
    database: str | None = None,
    sites: int | None = None,
    waiting: int = 0,
    policy: str | None = None,
) -> list[Metric]:
    """Measures a service in a process of its own by a client that sends at a steady rate over loopback.

    A submission's latency counts from the moment at which it was due, so that a service which falls behind is seen to.
    Every answer comes after the job is on the disk.

    Args:
        step: Called after each measurement.
        seconds: How long single submissions are sent, s.
        rate_per_s: Single submissions that are due each second.
        slot_s: How often the service decides, s.
        database: Address of an empty PostgreSQL database; None: a file.
        sites: Sites of the fleet of ``noonward bench scale``; None: the two of ``tiny``.
        waiting: Jobs that are submitted and decided about before; all but the few that fill the sites wait.
        policy: Policy that decides; None: ``POLICY``, or without ``sites`` that of ``service_content``.

    Raises:
        ScenarioError: There is no such policy of protocol each-slot, or jobs are to wait, and the service decides so
            seldom that they would wait for that first.
        RuntimeError: The service refused a submission.
    """
    if waiting and slot_s > MOST_SLOT_S:
        raise ScenarioError(
            f"jobs that wait are decided about before, but the service decides every {slot_s:g} s; let it decide at "
            f"least every {MOST_SLOT_S:g} s, e.g. --every 20s"
        )
    with tempfile.TemporaryDirectory() as folder:
        content, origins = _service(Path(folder), sites, database)
        if policy is not None:
            found = find_policy(policy, "cluster")
            if "each-slot" not in found.protocols:
                raise ScenarioError(
                    f"policy {policy} does not answer the protocol each-slot, which this benchmark uses"
                )
            content["policy"] = policy
        with served(content, slot_s=slot_s) as (port, process):
            if waiting:
                asyncio.run(_batches(port, [_LONG | {"origin": origins[n % len(origins)]} for n in range(waiting)]))
                asyncio.run(_decided(port))
            singles = [_JOB | {"origin": origin} for origin in origins]
            jobs_per_s, p99_ms, growth = asyncio.run(_steady(port, process, singles, seconds, rate_per_s))
            step("single submissions")
            rounds_s = asyncio.run(_rounds_s(port))
            batch = asyncio.run(_batches(port, (singles * (-(-BATCH // len(singles))))[:BATCH] * BATCHES))
            step("batches")
    rounds = [Metric.of(f"live/round_p{100 * quantile:g}_s", rounds_s[quantile], "s") for quantile in sorted(rounds_s)]
    return [
        Metric.of("live/http_jobs_per_s", jobs_per_s, "jobs/s"),
        Metric.of("live/http_p99_ms", p99_ms, "ms"),
        Metric.of("live/rss_growth_mib_per_1e6_jobs", growth, "MiB"),
        Metric.of("live/http_batch_jobs_per_s", batch, "jobs/s"),
        *rounds,
    ]


def _service(folder: Path, sites: int | None, database: str | None) -> tuple[dict[str, Any], list[str]]:
    """Returns what the service's file says, and the ingress points of its jobs."""
    if sites is None:
        return service_content(folder / "live", database=database), ["north"]
    fleet = many_sites_content(JOBS, sites)
    file = folder / "many-sites.yaml"
    file.write_text(json.dumps(fleet), encoding="utf-8")  # JSON is YAML, too
    names = [site["name"] for site in fleet["fleet"]["sites"]]
    return service_content(folder / "live", str(file), names, POLICY, database), names


async def _steady(
    port: int, process: int, jobs: Sequence[dict[str, Any]], seconds: float, rate_per_s: float
) -> tuple[float, float, float]:
    """Returns answered submissions per second, the 99th percentile of their latency (ms), and growth (MiB per 10^6).

    The jobs are sent in turn.
    """
    count = max(CONNECTIONS, int(seconds * rate_per_s))
    late_s = np.zeros(count)
    numbers = iter(range(count))
    messages = [request_of(json.dumps(job)) for job in jobs]
    warm = int(count * WARM_SHARE)
    memory_mb = [0.0, 0.0]
    began = time.perf_counter()

    async def send() -> None:
        async with connected(port) as (reader, writer):
            for n in numbers:
                due = began + n / rate_per_s
                if (wait_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait_s)
                await submitted(reader, writer, messages[n % len(messages)])
                late_s[n] = time.perf_counter() - due
                if n == warm:
                    memory_mb[0] = resident_mb(process)

    gc.freeze()  # a look at all that this process has imported would delay what it sends
    senders = [asyncio.create_task(send()) for _ in range(CONNECTIONS)]
    try:
        await asyncio.gather(*senders)
    finally:
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        gc.unfreeze()
    elapsed_s = time.perf_counter() - began
    memory_mb[1] = resident_mb(process)
    growth = (memory_mb[1] - memory_mb[0]) * 1e6 / 2**20 / (count - warm) * 1e6
    return count / elapsed_s, float(np.percentile(late_s, 99) * 1e3), growth


async def _batches(port: int, jobs: Sequence[dict[str, Any]]) -> float:
    """Returns jobs per second by batches of the largest size."""
    messages = [request_of(json.dumps(jobs[n : n + BATCH])) for n in range(0, len(jobs), BATCH)]
    async with connected(port) as (reader, writer):
        began = time.perf_counter()
        for message in messages:
            await submitted(reader, writer, message)
        elapsed_s = time.perf_counter() - began
    return len(jobs) / elapsed_s


async def _decided(port: int) -> None:
    """Waits until all jobs have been decided about."""
    while not re.search(r'^noonward_jobs{state="submitted"} 0$', await _metrics(port), re.MULTILINE):
        await asyncio.sleep(LOOK_S)


async def _rounds_s(port: int) -> dict[float, float]:
    """Returns the time of a round of decisions by quantile, s, as the service tells it; nothing before the first."""
    told = re.findall(r'^noonward_round_seconds{quantile="(.+)"} (\S+)$', await _metrics(port), re.MULTILINE)
    return {float(q): float(seconds) for q, seconds in told}


async def _metrics(port: int) -> str:
    """Returns the service's figures in the text format of Prometheus."""
    async with connected(port) as (reader, writer):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return (await reader.read()).decode()
