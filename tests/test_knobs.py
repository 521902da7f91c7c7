"""Every knob of a scenario turns something: what is settled, or the jobs and signals themselves.

The walk turns every value of the packaged scenarios, one at a time; WORLDS turns the fields that none of them sets. A
field of the scenario's schema that is turned by neither fails the last test but one.
"""

import copy
import json
import typing
from datetime import UTC, datetime, timedelta
from functools import cache
from types import UnionType

import numpy as np
import polars as pl
import pytest
from pydantic import BaseModel

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.data.signals.generate import generate_signals
from noonward.engine.run import run
from noonward.errors import SignalRangeError
from noonward.ledger.ledger import settle
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.policies import make_scheduler

POLICIES = {"each-slot": "random", "on-arrival": "ucb1"}
"""Policies that use every link and every clock level."""

PACKAGED = {
    "tiny": {},
    "fine-tuning": {"window_h": 6, "jobs.count": 200},
    "dvfs-training": {"window_h": 2, "jobs.median_work": 5000.0},
}
"""Values under which the packaged scenarios are quick and still use all their parts."""

NOT_TURNED = {
    "Scenario.kind": "which model a file is of (tests/evaluate/test_kinds.py)",
    "Scenario.name": "a name",
    "Scenario.description": "a text",
    "Scenario.goal": "what a comparison ranks and shows (tests/evaluate/test_answer.py)",
    "Scenario.baseline": "read by comparisons (tests/evaluate/test_compare.py)",
    "Scenario.policies": "read by comparisons (tests/evaluate/test_compare.py)",
    "Scenario.constraints": "held against results (tests/evaluate/test_service_tables.py)",
    "Constraints.mean_latency_s": "held against results (tests/evaluate/test_service_tables.py)",
    "Constraints.p99_latency_s": "held against results (tests/evaluate/test_service_tables.py)",
    "Constraints.queue_max": "held against results (tests/evaluate/test_service_tables.py)",
    "Constraints.power_cap_w": "held against results (tests/evaluate/test_service_tables.py)",
    "Scenario.forecast_h": "what schedulers are told (tests/decision/test_reach.py)",
    "Scenario.windows": "goes with dated jobs and signal files (tests/evaluate/test_windows.py)",
    **dict.fromkeys(
        ("GeneratedSignals.day_ahead", "SignalFiles.day_ahead"),
        "what schedulers are told of prices (tests/forecasts/test_published.py)",
    ),
    **dict.fromkeys(
        (
            *(
                f"{model}.{name}"
                for model in ("StatedEvent", "EventTerms")
                for name in (
                    *("site", "hours", "notice_min", "baseline_kw", "baseline", "target_kw", "cut", "ramp_min"),
                    *("usd_per_mwh", "penalty_usd_per_mwh"),
                )
            ),
            *(f"StatedEvent.{name}" for name in ("start", "start_h")),
            *(f"EventFile.{name}" for name in ("path", "timezone")),
            *(
                f"TargetContract.{name}"
                for name in (
                    *("site", "notice_min", "baseline_kw", "baseline", "ramp_min", "usd_per_mwh"),
                    *("penalty_usd_per_mwh", "openadr_target"),
                )
            ),
            *(f"DrawnEvents.{name}" for name in ("per_week", "days", "first_hour", "last_hour")),
        ),
        "grid events (tests/data/test_events.py)",
    ),
    **dict.fromkeys(
        (*(f"Ppa.{name}" for name in ("kw", "usd_per_mwh", "kind", "delivery_usd_per_mwh")), "Site.ppa"),
        "contracts for clean energy (tests/ledger/test_books.py)",
    ),
    "Economics.gpu_usd_per_hour": "savings are shown as a share of it (tests/evaluate/test_gpu_share.py)",
    "JobTable.at_start": "goes with a log that records starts (tests/data/test_at_start.py)",
    "JobTable.leave_alone_min": "told to a table's reader (tests/evaluate/test_windows.py)",
    "Network.queued": "goes with protocol on-arrival and data (tests/engine/test_link_queues.py)",
    "Scenario.latency_weight_w": "used by some rules and learners (tests/schedule/test_weighed.py)",
    "Constraints.latency_target_s": "used by some rules (tests/schedule/test_weighed.py)",
    **dict.fromkeys(
        (
            *(f"Freedom.{name}" for name in ("interruptible", "elastic", "caps", "min_run_s")),
            *(f"Freedom.{name}" for name in ("most_suspensions", "requeue", "preempts")),
            *(f"Scaling.{name}" for name in ("gpus", "speedup")),
            *(f"CapCurve.{name}" for name in ("power", "throughput")),
            *(f"Checkpoint.{name}" for name in ("stop_s", "dark_s", "load_s")),
            *(f"Checkpoint.{name}" for name in ("stop_power", "load_power", "every_s")),
        ),
        "what may be done to running jobs, which policies treat as unbreakable (tests/bound/test_freedoms.py)",
    ),
    **dict.fromkeys(("Freedom.moves", "Checkpoint.gb"), "suspended jobs that move (tests/engine/test_moves.py)"),
    **dict.fromkeys(
        (
            *(f"Failures.{name}" for name in ("per_gpu_hour", "retries", "share", "at", "recorded")),
            *(f"{name}.failures" for name in ("JobTable", "FineTuningJobs", "PoissonJobs", "MixedJobs", "ShapedJobs")),
            "PaperStreamJobs.failures",
        ),
        "failures of running jobs, which change no draw but their own (tests/engine/test_failures.py)",
    ),
    **dict.fromkeys(
        (
            "Scenario.tenants",
            *(f"Tenants.{name}" for name in ("by", "default", "half_life_h")),
            *(f"Tenant.{name}" for name in ("gpus", "cohort", "borrow", "lend", "weight", "share", "members")),
        ),
        "limits and orders starts where jobs have tenants (tests/engine/test_tenants.py)",
    ),
    "Tenant.gang_max": "limits what a live service takes (tests/live/test_tenants.py)",
    "Tenant.waiting_max": "the same (tests/live/test_tenants.py)",
    "Tenant.priority_max": "the same (tests/live/test_tenants.py)",
    "Scenario.priorities": "order queues (tests/engine/test_tenants.py)",
    **dict.fromkeys(
        ("Tenant.budget", *(f"Budget.{name}" for name in ("usd", "kwh", "kg", "period", "at_limit"))),
        "limit starts where jobs have tenants (tests/engine/test_budgets.py)",
    ),
    "Lateness.usd_per_gpu_hour": "goes with rule wait (tests/engine/test_lateness.py)",
    "Lateness.overtime_h": "goes with rule wait (tests/engine/test_lateness.py)",
    "Knowledge.run_time": "changes what is shown, not the draws (tests/engine/test_told_run_times.py)",
    "Knowledge.limit": "goes with limit or learned (tests/data/test_job_knowledge.py)",
    "LogLimit.law": "the same (tests/data/test_job_knowledge.py)",
    "LogLimit.deciles": "the same (tests/data/test_job_knowledge.py)",
    "Knowledge.quantile": "goes with learned (tests/engine/test_told_run_times.py)",
    "UniformLimit.law": "the same (tests/data/test_job_knowledge.py)",
    "UniformLimit.from_": "goes with limit or learned (tests/data/test_job_knowledge.py)",
    "UniformLimit.to": "goes with limit or learned (tests/data/test_job_knowledge.py)",
    "Site.name": "a name",
    "Site.lat": "a place on maps (tests/evaluate/test_site_map.py)",
    "Site.lon": "a place on maps (tests/evaluate/test_site_map.py)",
    "Ingress.name": "a name",
} | dict.fromkeys(
    [
        "SignalFile.path", "SignalFile.format", "SignalFile.columns", "SignalFile.zones", "SignalFile.zone",
        "SignalFile.timezone", "SignalFile.usd_per", "SignalFile.currency", "SignalFile.price_unit",
        "SignalFile.carbon_unit", "SignalFile.fill_gaps_h",
    ],
    "told to a file's reader (tests/data/test_signal_formats.py turns each)",
) | dict.fromkeys(
    ["Site.pue_by_hour", "PueFile.path", "PueFile.cooling", "PueFile.timezone"],
    "files of PUE or weather (tests/data/test_cooling.py turns each)",
) | dict.fromkeys(
    ["Site.gpus_by_time", "GpuStep.from_", "GpuStep.gpus", "GpuFile.path", "GpuFile.timezone"],
    "GPUs that change with time (tests/data/test_gpus_by_time.py turns each)",
) | dict.fromkeys(
    [
        "Site.meter", "Meter.interval_min", "Meter.connection_kw", "Meter.over_connection_usd_per_kwh", "Meter.base_kw",
    ],
    "what a meter reads (tests/ledger/test_meters.py turns each)",
) | dict.fromkeys(
    ["Meter.hard_connection", "KwStep.from_", "KwStep.kw", "KwFile.path", "KwFile.timezone"],
    "connections by time, and hard ones (tests/model/test_power_limit.py turns each)",
) | dict.fromkeys(
    [
        "Meter.tariff", "Meter.past_peak_kw", "Meter.system_peaks",
        *(f"Tariff.{name}" for name in ("energy", "adder_usd_per_mwh", "contract_kw")),
        "Tariff.usd_per_month", "Block.up_to_kwh", "Block.usd_per_mwh",
        *(f"{kind}.{name}" for kind in ("Fee", "Demand") for name in ("months", "days", "hours", "weekend_hours")),
        "Fee.usd_per_mwh", "Demand.usd_per_kw_month", "Demand.interval_min", "Demand.ratchet", "Demand.least_share",
        "Demand.above_kw",
        *(f"Coincident.{name}" for name in ("usd_per_kw_year", "peaks", "per", "months", "interval_min")),
        "Coincident.one_per_day",
    ],
    "what a tariff charges (tests/model/test_tariff.py turns each)",
) | dict.fromkeys(
    [
        "Site.behind_meter", *(f"Battery.{name}" for name in ("kw", "kwh", "round_trip", "reserve", "start")),
        "Battery.usd_per_mwh_through", "Solar.kw", "SolarFile.path", "SolarFile.timezone",
        "Export.allowed_kw", "Export.price", *(f"BehindMeter.{name}" for name in ("battery", "solar", "export")),
    ],
    "devices behind a meter (tests/ledger/test_devices.py, tests/model/test_three_faces.py)",
) | dict.fromkeys(
    [
        "Site.water", *(f"Water.{name}" for name in ("l_per_kwh", "cycles", "grid_l_per_kwh")),
        "WaterFile.path", "WaterFile.timezone",
    ],
    "water of sites (tests/data/test_water.py turns each)",
) | dict.fromkeys(
    ["Meter.system_load", *(f"SystemLoadFile.{name}" for name in ("path", "columns", "zone", "timezone", "times"))],
    "files of loads (tests/data/test_system_load.py turns each)",
) | dict.fromkeys(
    ["JobTable.format", "JobTable.timezone", "JobTable.origin", "JobTable.slack_h", "JobTable.history"],
    "told to a file's reader (tests/data/test_dated_jobs.py turns each)",
)  # fmt: skip
"""Fields that take no part in a run."""

ONE_FIXED_POWER = {
    "GpuType.clocks": "power and duration are the same at any clock",
    "GpuType.sleep_w": "free GPUs stay awake",
    "Fleet.clock_weight_w": "power and duration are the same at any clock",
    "FineTuningJobs.columns": "there is no trace file",
}
IDLE = {
    "tiny": ONE_FIXED_POWER,
    "fine-tuning": ONE_FIXED_POWER,
    "dvfs-training": {
        "Scenario.slot_s": "jobs are asked about on arrival",
        "Scenario.start": "there are no signals",
        "Lateness.rule": "its jobs wait without limit",
        "Fleet.clock_weight_w": "the policy takes its own clocks",
        "Site.zone": "there are no signals",
        "Site.timezone": "arrivals follow no local time",
        "GpuType.idle_w": "free GPUs sleep",
        "Network.throughput_gb_per_min": "jobs carry no data",
        "Network.usd_per_gb": "jobs carry no data",
        "Network.kwh_per_gb": "jobs carry no data",
        "inference": "every job is of the first class, training",
    },
}
"""Fields (or keys) of a packaged scenario that take no part in its runs, and why. They are turned all the same."""

ELSEWHERE = {
    "tiny": {
        "Site.gpu_type": "it has one type", "JobKind.share": "it has one kind",
        "FineTuningJobs.trace": "WORLDS has the file", "Fleet.ingress": "WORLDS", "Fleet.free_gpus": "WORLDS",
        "Fleet.ranges": "WORLDS", "Fleet.freedoms": "none are stated", "Fleet.tariffs": "none are stated",
        "Scenario.events": "none are stated",
    },
    "fine-tuning": {
        "Site.gpu_type": "it has one type",
        "FineTuningJobs.trace": "WORLDS has the file", "Fleet.ingress": "WORLDS", "Fleet.free_gpus": "WORLDS",
        "Fleet.ranges": "WORLDS", "Fleet.freedoms": "none are stated", "Fleet.tariffs": "none are stated",
        "Scenario.events": "none are stated",
    },
    "dvfs-training": {
        "Scenario.protocol": "its ingress points belong to no site", "Scenario.end": "its jobs wait without limit",
        "Scenario.signals": "WORLDS", "Scenario.economics": "WORLDS", "Fleet.ranges": "WORLDS",
        "Fleet.freedoms": "none are stated", "Fleet.tariffs": "none are stated",
        "Scenario.events": "none are stated",
    },
}  # fmt: skip
"""Fields that a packaged scenario cannot turn alone; another one, or one of WORLDS, does."""

OTHER = {
    "Scenario.protocol": lambda value: "on-arrival",
    "Scenario.end": lambda value: "window",
    "Scenario.slot_s": lambda value: 2 * value,
    "Scenario.window_h": lambda value: value + 1,
    "Scenario.start": lambda value: "2022-05-03",
    "Fleet.free_gpus": lambda value: "idle",
    "Lateness.rule": lambda value: "wait",
    "Ingress.home": lambda value: "us-west",
    "Site.zone": lambda value: "SG" if value == "PL" else "PL",
    "Site.timezone": lambda value: "Pacific/Honolulu",
    "Site.gpu_type": lambda value: "A30" if value == "A10" else "A10",
    "Site.gpus": lambda value: value + 3,
    "GpuType.clocks": lambda value: value - 0.01,
    "ClassProfile.time": lambda value: {"per_clock_s": 1.5},
    "Network.latency_ms": lambda value: value + 30_000,
    "Network.throughput_gb_per_min": lambda value: 0.5,
    "GeneratedSignals.year": lambda value: value - 1,
    "GeneratedSignals.months": lambda value: [*value[1:], value[0]],
    "GeneratedSignals.calibration": lambda value: "train",
    "FineTuningJobs.columns": lambda value: {"gpus": "cards"},
    "FineTuningJobs.count": lambda value: 2 * value,
    "FineTuningJobs.origin_shares": lambda value: 3 * value,
    "FineTuningJobs.gpus_cap": lambda value: 2,
    "PoissonJobs.gpus_min": lambda value: value + 1,
    "PoissonJobs.gpus_max": lambda value: value + 1,
    "PoissonJobs.work_min": lambda value: 4000.0,
}
"""Field -> another value; without an entry a number becomes a fifth larger, or 1 where it is 0 or not given."""

KINDS = ("image-generation", "text-generation", "text-to-image")
TWO_KINDS = {f"jobs.kinds.{KINDS[k]}.share": share for k, share in enumerate((0.5, 0.2, 0.3))}


@cache
def content_of(name):
    return load_scenario(name).model_dump(mode="json")


def scenario(name, values):
    """A packaged scenario with some values set, keys joined by dots."""
    content = copy.deepcopy(content_of(name))
    for path, value in values.items():
        *above, last = path.split(".")
        node = content
        for key in above:
            node = node[int(key) if isinstance(node, list) else key]
        node[int(last) if isinstance(node, list) else last] = copy.deepcopy(value)
    return scenario_from(content)


def result(name, values):
    """What the first run comes to: its jobs and signals as bytes, and its ledger."""
    made = scenario(name, values)
    environment = build_environment(made)
    ledger = settle(run(environment, make_scheduler(POLICIES[made.protocol])))
    market = environment.site_signals
    arrays = (*vars(environment.jobs).values(), market.price_SH, market.carbon_SH)
    return b"".join(array.tobytes() for array in arrays), tuple(ledger.as_dict().values())


result_before = cache(lambda name: result(name, PACKAGED[name]))


def leaves(part, path=(), field=""):
    """Yields (field as Class.name, path, value) of every single value, defaults included."""
    if isinstance(part, BaseModel):
        for name in type(part).model_fields:
            if name != "source":
                yield from leaves(getattr(part, name), (*path, name), f"{type(part).__name__}.{name}")
    elif isinstance(part, dict) and part:
        for name, value in part.items():
            yield from leaves(value, (*path, name), field)
    elif isinstance(part, tuple) and part and field != "GeneratedSignals.months":
        for index, value in enumerate(part):
            yield from leaves(value, (*path, str(index)), field)
    else:
        yield field, path, part


def turned(field, path, value):
    """The setting that gives a value another value."""
    if field == "JobKind.share":
        return TWO_KINDS
    if field in OTHER:
        return {".".join(path): OTHER[field](value)}
    return {".".join(path): 1.2 * value if value else 1.0}


@pytest.mark.parametrize("name", PACKAGED)
def test_every_value_of_a_packaged_scenario_turns_its_result(name):
    dead, awake = [], []
    for field, path, value in leaves(scenario(name, PACKAGED[name])):
        if field in NOT_TURNED or field in ELSEWHERE[name]:
            continue
        idle = field in IDLE[name] or bool(set(path) & set(IDLE[name]))
        same = result(name, PACKAGED[name] | turned(field, path, value)) == result_before(name)
        if same != idle:
            (awake if idle else dead).append(".".join(path))
    assert dead == [], "these values change nothing"
    assert awake == [], "these values are said to do nothing, but do"


POISSON = {"jobs": {"source": "poisson", "rate_per_s": 0.002, "median_work": 900.0, "sigma": 0.3}, "end": "window"}
MIX = {
    "end": "window",
    "jobs": {
        "source": "mixed",
        "classes": {
            "fine-tuning": {"rate_per_s": 0.002, "work": {"law": "log-normal", "median_work": 900, "sigma": 0.3}}
        },
    },
}
OF_CLASS, WORK = "jobs.classes.fine-tuning.", "jobs.classes.fine-tuning.work"
HEAVY = MIX | {WORK: {"law": "pareto", "work_min": 500.0, "tail": 1.8}}
WAVE = MIX | {OF_CLASS + "amplitude": 0.9}
TIMED = {
    "fleet.gpu_types.T4-class.classes.fine-tuning": {
        "power": {"cubic_w": 60.0, "constant_w": 20.0},
        "time": {"per_clock_s": 1.0},
    }
}
STREAM = {"jobs": {"source": "paper-stream", "rate_per_s": 0.002, "median_work": 900.0}, "end": "window"}
CURVE = {"fleet.gpu_types.T4-class.classes.fine-tuning": {"power": {"cubic_w": 60.0, "constant_w": 20.0}}}
CLOCKS = {"fleet.gpu_types.T4-class.clocks": [0.5, 1.0]}
ARRIVAL = {"protocol": "on-arrival"}
SLEEP = {"fleet.gpu_types.T4-class.sleep_w": 2.0}
HOMES = [{"name": "south", "home": "south"}, {"name": "north", "home": "north"}]
TABLE = {"jobs": {"source": "table", "path": "{jobs}"}}
RENAMED = {"arrival_s": "came", "gpus": "cards"}

SINE = {
    "signals": {
        "source": "sinusoidal", "price_usd_per_mwh": 50.0, "carbon_g_per_kwh": 300.0, "amplitude": 0.3,
        "peak_hours": {"CA-ON": 3.0, "SG": 15.0},
    }
}  # fmt: skip
SHAPED = {"jobs": {"source": "load-shapes", "cluster_gpus": 16.0, "mean_gpus": 3.0, "spread": 0.2, "slack_s": 3000.0}}

WORLDS = {
    "MixedJobs.rate_factor": (MIX, {"jobs.rate_factor": 2.0}),
    "ClassStream.slack_ratio": (MIX, {OF_CLASS + "slack_ratio": 0.01}),
    "LogNormalWork.work_max": (MIX, {WORK + ".work_max": 900.0}),
    "Fleet.ranges": ({}, {"fleet.ranges": {"fine-tuning": ["north"]}}),
    "SinusoidalSignals.price_usd_per_mwh": (SINE, {"signals.price_usd_per_mwh": 60.0}),
    "SinusoidalSignals.carbon_g_per_kwh": (SINE, {"signals.carbon_g_per_kwh": 200.0}),
    "SinusoidalSignals.amplitude": (SINE, {"signals.amplitude": 0.5}),
    "SinusoidalSignals.peak_hours": (SINE, {"signals.peak_hours.SG": 9.0}),
    "ShapedJobs.cluster_gpus": (SHAPED, {"jobs.cluster_gpus": 30.0}),
    "ShapedJobs.mean_gpus": (SHAPED, {"jobs.mean_gpus": 4.0}),
    "ShapedJobs.spread": (SHAPED, {"jobs.spread": 0.0}),
    "ShapedJobs.run_s": (SHAPED, {"jobs.run_s": 1800.0}),
    "ShapedJobs.slack_s": (SHAPED, {"jobs.slack_s": 9000.0}),
    "Scenario.economics": ({}, {"economics": None}),
    "Scenario.signals": ({"economics": None}, {"signals": None}),
    "Fleet.ingress": ({}, {"fleet.ingress": HOMES}),
    "Fleet.free_gpus": (SLEEP, {"fleet.free_gpus": "sleep"}),
    "GpuType.clocks": (ARRIVAL | CURVE, CLOCKS),
    "Fleet.clock_weight_w": (TIMED | CLOCKS, {"fleet.clock_weight_w": 1000.0}),
    "ClassStream.rate_per_s": (MIX, {OF_CLASS + "rate_per_s": 0.003}),
    "ClassStream.amplitude": (MIX, {OF_CLASS + "amplitude": 0.5}),
    "ClassStream.period_h": (WAVE, {OF_CLASS + "period_h": 3.0}),
    "ClassStream.data_gb": (MIX, {OF_CLASS + "data_gb": 2.0}),
    "ClassStream.gpus_min": (MIX, {OF_CLASS + "gpus_min": 2}),
    "ClassStream.gpus_max": (MIX, {OF_CLASS + "gpus_max": 2}),
    "LogNormalWork.law": (MIX, {WORK: {"law": "pareto", "work_min": 500.0, "tail": 1.8}}),
    "LogNormalWork.median_work": (MIX, {WORK + ".median_work": 700}),
    "LogNormalWork.sigma": (MIX, {WORK + ".sigma": 0.0}),
    "LogNormalWork.work_min": (MIX, {WORK + ".work_min": 900.0}),
    "ParetoWork.law": (HEAVY, {WORK: {"law": "log-normal", "median_work": 900, "sigma": 0.3}}),
    "ParetoWork.work_min": (HEAVY, {WORK + ".work_min": 400.0}),
    "ParetoWork.tail": (HEAVY, {WORK + ".tail": 2.5}),
    "FineTuningJobs.trace": ({}, {"jobs.trace": "{trace}"}),
    "FineTuningJobs.columns": ({"jobs.trace": "{trace}"}, {"jobs.columns": {"gpus": "cards"}}),
    "PoissonJobs.data_gb": (POISSON, {"jobs.data_gb": 2.0}),
    "PoissonJobs.work_min": (POISSON, {"jobs.work_min": 900.0}),
    "PoissonJobs.sigma": (POISSON, {"jobs.sigma": 0.0}),
    "PaperStreamJobs.seed": (STREAM, {"jobs.seed": 124}),
    "PaperStreamJobs.rate_per_s": (STREAM, {"jobs.rate_per_s": 0.004}),
    "PaperStreamJobs.median_work": (STREAM, {"jobs.median_work": 600.0}),
    "PaperStreamJobs.sigma": (STREAM, {"jobs.sigma": 0.0}),
    "PaperStreamJobs.routed": (STREAM, {"jobs.routed": False}),
    "PaperStreamJobs.data_gb": (STREAM, {"jobs.data_gb": 2.0}),
    "PaperStreamJobs.gpus_max": (STREAM, {"jobs.gpus_max": 4}),
    "JobTable.path": (TABLE, {"jobs.path": "{other_jobs}"}),
    "JobTable.columns": (TABLE, {"jobs.columns": RENAMED}),
    "SignalFiles.paths": ({"signals": "{files}"}, {"signals.paths": ["{other_signals}"]}),
    "SignalFiles.columns": ({"signals": "{files}"}, {"signals.columns": {"price": "other_price"}}),
    "SignalFiles.months": ({"signals": "{files}"}, {"signals.months": [2]}),
    "SignalFiles.first_day": ({"signals": "{files}"}, {"signals.first_day": "2022-03-05"}),
    "SignalFiles.last_day": ({"signals": "{files}"}, {"signals.last_day": "2022-02-03"}),
}
"""Field -> (values of a world on top of the scenario tiny, another value of the field)."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Names in braces -> files with signals from February to March, jobs and a trace, two of each kind."""
    folder = tmp_path_factory.mktemp("files")
    start = datetime(2022, 1, 31, tzinfo=UTC)
    paths = {name: str(folder / f"{name}.csv") for name in ("signals", "other_signals", "jobs", "other_jobs", "trace")}
    for seed, name in enumerate(("signals", "other_signals")):
        signals = generate_signals(("CA-ON", "SG"), start, 24 * 40, np.random.default_rng(seed))
        hours = [f"{signals.time_of(hour):%Y-%m-%dT%H:%MZ}" for hour in range(signals.hours)]
        price = signals.price_usd_per_mwh_ZH.ravel()
        table = {"timestamp": hours * 2, "zone": ["CA-ON"] * len(hours) + ["SG"] * len(hours)}
        table |= {"price_usd_per_mwh": price, "other_price": price + 1}
        table |= {"carbon_intensity_g_per_kwh": signals.carbon_g_per_kwh_ZH.ravel()}
        pl.DataFrame(table).write_csv(paths[name])
    for seed, name in enumerate(("jobs", "other_jobs")):
        rng = np.random.default_rng(seed)
        jobs = {
            "arrival_s": np.arange(20) * 60.0,
            "duration_s": rng.uniform(600, 6000, 20),
            "gpus": np.arange(20) % 3 + 1,
        }
        jobs |= {"came": np.arange(20) * 120.0, "cards": np.arange(20) % 2 + 1, "slack_s": np.full(20, 7200.0)}
        pl.DataFrame(jobs).with_columns(origin=pl.lit("north")).write_csv(paths[name])
    rng = np.random.default_rng(0)
    trace = {"submit_time_s": np.arange(2000) * 60.0, "duration_s": rng.uniform(600, 6000, 2000)}
    trace |= {"num_gpus": np.arange(2000) % 3 + 1, "cards": np.arange(2000) % 2 + 1}
    pl.DataFrame(trace).write_csv(paths["trace"])
    return paths


def filled(value, files):
    """Values with file names for names in braces."""
    if value == "{files}":
        return {"source": "files", "paths": [files["signals"]]} | dict.fromkeys(("first_day", "last_day"))
    if isinstance(value, str):
        return value.format(**files) if value.startswith("{") else value
    if isinstance(value, dict):
        return {key: filled(part, files) for key, part in value.items()}
    return [filled(part, files) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("field", WORLDS)
def test_a_field_that_no_packaged_scenario_turns_turns_its_world(field, files):
    before, other = (filled(values, files) for values in WORLDS[field])
    assert result("tiny", before | other) != result_of_world(json.dumps(before))


@cache
def result_of_world(values):
    """Result of a world that several fields turn, given as JSON; it is the same when it is made again."""
    made = result("tiny", json.loads(values))
    assert result("tiny", json.loads(values)) == made
    return made


def test_the_format_of_signal_files_decides_how_they_are_read(tmp_path):
    """An Electricity Maps export holds no prices, so no environment can be drawn from it alone."""
    path = tmp_path / "CA-ON_2022_hourly.csv"
    hours = [datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(24 * 20)]
    frame = pl.DataFrame(
        {
            "Datetime (UTC)": [hour.strftime("%Y-%m-%d %H:%M:%S") for hour in hours] * 2,
            "Zone id": ["CA-ON"] * len(hours) + ["SG"] * len(hours),
            "Carbon intensity gCO2eq/kWh (Life cycle)": [100.0] * 2 * len(hours),
        }
    )
    frame.write_csv(path)
    values = {"signals": {"source": "files", "paths": [str(path)], "format": "electricity-maps"}}
    with pytest.raises(SignalRangeError, match="hold no window"):
        build_environment(scenario("tiny", values))


def test_policies_stand_in_the_comparison_alone():
    for values in ({"baseline": "random"}, {"policies": ["random"]}, {"description": "another"}):
        assert result("tiny", values) == result_before("tiny")


def fields_of(model, seen):
    """Yields every leaf field of the schema as Class.name."""
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        parts = list(inner_types(field.annotation))
        below = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        for part in below:
            yield from fields_of(part, seen)
        if name != "source" and len(below) < len(parts):
            yield f"{model.__name__}.{name}"


def inner_types(kind):
    """Yields the types that a value of an annotated type may hold, containers opened."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    origin = typing.get_origin(kind)
    if origin in (typing.Union, UnionType, tuple):
        for part in typing.get_args(kind):
            if part is not Ellipsis:
                yield from inner_types(part)
    elif origin is dict:
        yield from inner_types(typing.get_args(kind)[1])
    else:
        yield kind


def test_every_field_of_the_schema_is_turned_somewhere():
    turned_fields = set(WORLDS) | {"SignalFiles.format"}
    for name in PACKAGED:
        fields = {field for field, path, _ in leaves(load_scenario(name)) if not set(path) & set(IDLE[name])}
        turned_fields |= fields - set(ELSEWHERE[name]) - set(IDLE[name])
    schema = set(fields_of(Scenario, set()))
    assert len(schema) > 60
    assert schema - turned_fields - set(NOT_TURNED) == set(), "these fields have no test that turns them"
    assert set(NOT_TURNED) | set(WORLDS) | set(OTHER) <= schema | {"GpuType.clocks"}, "these fields exist no longer"
