"""``noonward bench``: how fast it is, measured here and now."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.options import Json, print_table
from noonward.cli.progress import progress_bar
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonward.evaluate.metrics import Metric
    from noonward.runtime.executor import Progress

REFERENCE = "reference: completed jobs per second of the published simulator of CHSAC-AF"


def bench(
    part: Annotated[
        str,
        typer.Argument(help="engine (with the command line), bid-price, edge, live, plan, learn, quarter or scale."),
    ] = "engine",
    database: Annotated[
        str | None, typer.Option(help="live: an empty PostgreSQL database, to which submissions are timed too.")
    ] = None,
    month: Annotated[
        bool, typer.Option("--month", help="live: also how memory grows over a month of 10^6 jobs (7 minutes of CPU).")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="live: only submissions over HTTP at a steady rate, and memory meanwhile.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            parser=duration(1.0, bare=True),
            metavar="DURATION",
            help="live --http: how long, e.g. 10m. [default: 20s]",
            show_default=False,
        ),
    ] = 20.0,
    rate: Annotated[float, typer.Option(min=1.0, help="live --http: submissions per second.")] = 1000.0,
    every: Annotated[
        float,
        typer.Option(
            parser=duration(1.0),
            metavar="DURATION",
            help="live --http: how often the service decides, e.g. 20s. [default: 1h]",
            show_default=False,
        ),
    ] = HOUR_S,
    jobs: Annotated[
        float | None,
        typer.Option(metavar="N", help="scale: about how many jobs, e.g. 1e6. [default: 100000]", show_default=False),
    ] = None,
    sites: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="scale, live --http: number of sites of a generated fleet. [default: 40; live: the two of tiny]",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="scale: processes that share the bound. [default: 1]", show_default=False),
    ] = None,
    waiting: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="live --http: jobs that are submitted before and wait. [default: 0]",
            show_default=False,
        ),
    ] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="live --http: policy that decides. [default: local-fcfs; with --sites: cheapest-unclaimed]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure how fast Noonward is here, on one core.

    The engine and bid prices take ten seconds, learning and scale a minute, the planner two.
    """
    from rich.table import Table

    from noonward.bench.bid_price import bench_bid_price
    from noonward.bench.edge import bench_edge
    from noonward.bench.engine import bench_engine
    from noonward.bench.learn import bench_learn
    from noonward.bench.plan import bench_plan
    from noonward.bench.quarter import bench_quarter
    from noonward.bench.scale import JOBS, PARTS, REMARK, SITES, bench_scale
    from noonward.errors import ScenarioError, nearest
    from noonward.evaluate.metrics import to_json

    parts: dict[str, tuple[Callable[[Progress], list[Metric]], int, str]] = {
        "engine": (bench_engine, 10, REFERENCE),
        "bid-price": (bench_bid_price, 3, ""),
        "edge": (bench_edge, 13, "reference: steps per second of the published simulator of EAT"),
        "live": (
            functools.partial(
                _bench_http,
                seconds=seconds,
                rate_per_s=rate,
                slot_s=every,
                database=database,
                sites=sites,
                waiting=waiting,
                policy=policy,
            )
            if http
            else functools.partial(_bench_live, database=database, month=month),
            2 if http else 5 + 2 * (database is not None) + month,
            "client and service share this machine",
        ),
        "plan": (bench_plan, 5, ""),
        "learn": (bench_learn, 10, ""),
        "quarter": (bench_quarter, 9, "two processes; what compiles is in it where nothing is cached"),
        "scale": (
            functools.partial(
                bench_scale,
                jobs=JOBS if jobs is None else jobs,
                sites=SITES if sites is None else sites,
                workers=workers or 1,
            ),
            len(PARTS),
            REMARK,
        ),
    }
    if part not in parts:
        raise ScenarioError(f"unknown benchmark {part!r}; {nearest(part, parts)}")
    if part != "live" and (month or http or database is not None):
        raise ScenarioError(
            f"--month, --http and --database belong to 'noonward bench live'; leave them out for {part}"
        )
    if part != "scale" and (jobs is not None or workers is not None or (sites is not None and not http)):
        raise ScenarioError(
            "--jobs and --workers belong to 'noonward bench scale', --sites also to 'noonward bench live --http'; "
            f"leave them out for {part}"
        )
    if (waiting or policy is not None) and not http:
        raise ScenarioError("--waiting and --policy belong to 'noonward bench live --http'; leave them out")
    if month and http:
        raise ScenarioError("--month and --http are two measurements; give one of them")
    measure, steps, remark = parts[part]
    with progress_bar(steps, f"benchmark {part}", unit="measurements") as step:
        metrics = measure(step)
    if json:
        print(to_json(metrics))
        return
    table = Table("what", "value", "unit", "reference")
    for metric in metrics:
        value = float("nan") if metric.value is None else metric.value
        reference = "" if metric.reference is None else f"{metric.reference:,.0f}"
        table.add_row(metric.name, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", metric.unit, reference)
    print_table(table)
    if remark:
        print(remark)


def _bench_live(step: Progress, *, database: str | None, month: bool) -> list[Metric]:
    """Measures the live service, whose extra may be missing."""
    from noonward.errors import MissingExtraError

    try:
        from noonward.bench.live import bench_live
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    return bench_live(step, database=database, month=month)


def _bench_http(step: Progress, **options: Any) -> list[Metric]:
    """Measures submissions over HTTP to the live service, whose extra may be missing."""
    from noonward.errors import MissingExtraError

    try:
        from noonward.bench.live_http import bench_http
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    return bench_http(step, **options)
