"""How the live service takes submissions over HTTP for a long time: rate, latency, memory."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from noonward.bench.live import connected, request_of, resident_mb, served, submitted
from noonward.evaluate.metrics import Metric
from noonward.runtime.executor import Progress
from noonward.units import HOUR_S

RATE_PER_S: Final = 1000.0
"""Submissions that are sent each second."""
SECONDS: Final = 20.0
"""How long, s."""
CONNECTIONS: Final = 64
"""Connections that send them, each kept open."""
WARM_SHARE: Final = 0.25
"""Share of the time after which the growth of memory is counted."""
BATCHES, BATCH = 5, 10_000
"""Batches of the largest size, sent one after the other, and jobs of each."""
STEPS: Final = 2
_JOB: Final = {"name": "job", "command": "true", "work": 60.0, "origin": "north", "max_delay_s": 1e6}


def bench_http(
    step: Progress,
    *,
    seconds: float = SECONDS,
    rate_per_s: float = RATE_PER_S,
    slot_s: float = HOUR_S,
    database: str | None = None,
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

    Raises:
        RuntimeError: The service refused a submission.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder) / "live", *(() if database is None else (database,)), slot_s=slot_s) as (port, process),
    ):
        jobs_per_s, p99_ms, growth = asyncio.run(_steady(port, process, seconds, rate_per_s))
        step("single submissions")
        batch = asyncio.run(_batches(port))
        step("batches")
    return [
        Metric.of("live/http_jobs_per_s", jobs_per_s, "jobs/s"),
        Metric.of("live/http_p99_ms", p99_ms, "ms"),
        Metric.of("live/rss_growth_mib_per_1e6_jobs", growth, "MiB"),
        Metric.of("live/http_batch_jobs_per_s", batch, "jobs/s"),
    ]


async def _steady(port: int, process: int, seconds: float, rate_per_s: float) -> tuple[float, float, float]:
    """Returns answered submissions per second, the 99th percentile of their latency (ms), and growth (MiB per 10^6)."""
    count = max(CONNECTIONS, int(seconds * rate_per_s))
    late_s = np.zeros(count)
    numbers = iter(range(count))
    message = request_of(json.dumps(_JOB))
    warm = int(count * WARM_SHARE)
    memory_mb = [0.0, 0.0]
    began = time.perf_counter()

    async def send() -> None:
        async with connected(port) as (reader, writer):
            for n in numbers:
                due = began + n / rate_per_s
                if (wait_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait_s)
                await submitted(reader, writer, message)
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


async def _batches(port: int) -> float:
    """Returns jobs per second by batches of the largest size."""
    message = request_of(json.dumps([_JOB] * BATCH))
    async with connected(port) as (reader, writer):
        began = time.perf_counter()
        for _ in range(BATCHES):
            await submitted(reader, writer, message)
        elapsed_s = time.perf_counter() - began
    return BATCHES * BATCH / elapsed_s
