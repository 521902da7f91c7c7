"""A scenario: everything a run needs, as one YAML file that is validated whole before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.failures import Failures
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.knowledge import Knowledge
from noonward.model.cluster.lateness import Lateness
from noonward.model.cluster.setting import Protocol, Setting
from noonward.model.cluster.stated_events import Events, asked_sites
from noonward.model.cluster.tenant import Priority, Tenants
from noonward.model.economics import Economics
from noonward.model.limits import Constraints
from noonward.model.markets import require_markets
from noonward.model.network import Network
from noonward.model.spec import (
    LARGEST,
    Count,
    Gang,
    Hours,
    NonNegative,
    Positive,
    Share,
    Sigma,
    Slot,
    Slug,
    Spec,
    without_defaults,
)
from noonward.units import HOUR_S

Month = Annotated[int, Field(ge=1, le=12)]


class Range(Spec):
    """A uniform range of GB."""

    low_gb: NonNegative
    """Smallest value, GB."""
    high_gb: NonNegative
    """Largest value, GB."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high_gb < self.low_gb:
            raise ValueError(f"high_gb {self.high_gb} is below low_gb {self.low_gb}")
        return self


class MarketSignals(Spec):
    """Hourly price and carbon of electricity markets."""

    day_ahead: dict[str, bool] = Field(default_factory=dict)
    """Whether a zone's price is that of its day-ahead market, which is published a day before; by default as the
    packaged table of markets says (docs/published-prices.md)."""

    @field_validator("day_ahead")
    @classmethod
    def _with_markets(cls, day_ahead: dict[str, bool]) -> dict[str, bool]:
        try:
            require_markets(day_ahead)
        except ScenarioError as error:
            raise ValueError(str(error)) from None
        return day_ahead

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "day_ahead")


class GeneratedSignals(MarketSignals):
    """Hourly price and carbon from the calibrated generator."""

    source: Literal["generated"] = "generated"
    year: Annotated[int, Field(ge=1990, le=2100)] = 2022
    """Calendar year the windows are drawn from (weekdays and months; the statistics are the calibration's)."""
    months: tuple[Month, ...] = Field(default=tuple(range(1, 13)), min_length=1)
    """Months that windows may start in."""
    calibration: Literal["w2022", "train"] = "w2022"
    """Statistics used: the year 2022, or January 2021 to June 2023."""


class SignalFile(Spec):
    """A signal file with what its reader must be told; what is left out is detected (docs/own-fleet.md)."""

    path: Path
    """The file."""
    format: str | None = None
    """Format: ``tidy``, or a name that ``noonward import --formats`` lists; none: detected."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of its columns if no format fits: keys timestamp, zone, price, carbon."""
    zones: dict[str, str] = Field(default_factory=dict)
    """Zone of an area or location of the file; where one is named, the file's others are left out."""
    zone: str | None = None
    """Zone of a file that contains only one area."""
    timezone: str | None = None
    """Time zone of times without a zone: an IANA name or an offset such as +01:00."""
    usd_per: dict[str, Positive] = Field(default_factory=dict)
    """US dollars for a unit of a currency, by its code."""
    currency: str | None = None
    """Currency of its prices, if the file names none."""
    price_unit: str | None = None
    """Unit of its prices, such as EUR/kWh, if the header states none."""
    carbon_unit: str | None = None
    """Unit of its carbon intensities, such as kg/kWh, if the header states none."""
    fill_gaps_h: Annotated[int, Field(ge=0, le=24)] = 0
    """Gaps of at most this many hours are filled along a straight line."""


class SignalFiles(MarketSignals):
    """Hourly price and carbon from files (docs/data.md states the formats and the rules for gaps)."""

    source: Literal["files"]
    paths: tuple[Path | SignalFile, ...] = Field(min_length=1)
    """Files, each a path or a mapping with what its reader must be told; a later file fills only what the earlier ones
    leave unknown."""
    format: str | None = None
    """Format of files that state none of their own: ``tidy`` (one row an hour and zone), or a publisher's; none: each
    file's format is detected."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column names of a tidy file where they differ: keys timestamp, zone, carbon, price."""
    first_day: date | None = None
    """First UTC day windows may start on."""
    last_day: date | None = None
    """Last UTC day windows may reach into."""
    months: tuple[Month, ...] = Field(default=tuple(range(1, 13)), min_length=1)
    """Months that windows may lie in."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first_day is not None and self.last_day is not None and self.last_day < self.first_day:
            raise ValueError(f"last_day {self.last_day} is before first_day {self.first_day}")
        return self


class SinusoidalSignals(Spec):
    """Price and carbon that are the same every day: mean x (1 + amplitude cos(2 pi (hour - peak hour) / 24))."""

    source: Literal["sinusoidal"]
    price_usd_per_mwh: NonNegative
    """Mean price."""
    carbon_g_per_kwh: NonNegative
    """Mean carbon intensity."""
    amplitude: Share
    """Amplitude of both, as a share of the mean."""
    peak_hours: dict[str, float]
    """UTC hour of the peak by zone."""


class JobKind(Spec):
    """A kind of fine-tuning job: its share of the jobs and its sizes."""

    share: Share
    """Share of the jobs; the shares sum to 1."""
    data: Range
    """Intermediate features that travel with a job, GB."""
    model: Range
    """Fine-tuned model that travels with a job and returns as its result, GB."""


class JobsToRun(Spec):
    """A source of jobs."""

    knowledge: Knowledge = Knowledge()
    """What schedulers are told of the jobs' run times (docs/run-times.md)."""
    failures: Failures | None = None
    """How jobs fail while they run (docs/failures.md); none: none does."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "failures")


class FineTuningJobs(JobsToRun):
    """Fine-tuning jobs with the gangs, durations and rhythm of a job trace (MASAC, Sec. IV.A)."""

    source: Literal["fine-tuning"] = "fine-tuning"
    trace: Literal["calibrated"] | Path = "calibrated"
    """``calibrated``: drawn from the packaged statistics of the PAI trace; otherwise a trace file (docs/data.md)."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column names of the trace file where they differ: keys submit_s, duration_s, gpus."""
    count: Count = 1500
    """Mean number of jobs per environment (the number itself is Poisson)."""
    origin_shares: dict[str, NonNegative]
    """Relative amount of jobs per ingress point (the job amount coefficients delta)."""
    gpus_cap: Gang = 16
    """Gangs are capped at this many GPUs."""
    demand: Positive = 0.85
    """GPU-hours asked over the fleet's GPU-hours in the window; run times are scaled to it."""
    slack_ratio: NonNegative = 0.4
    """Mean of slack over run time; the ratio is uniform on 0 to twice this."""
    kinds: dict[str, JobKind]
    """Kinds of jobs and their sizes."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        total = sum(kind.share for kind in self.kinds.values())
        if abs(total - 1) > 1e-9:
            raise ValueError(f"the shares of the job kinds sum to {total:g}; they must sum to 1")
        if sum(self.origin_shares.values()) <= 0:
            raise ValueError("origin_shares sum to 0; give at least one ingress point a share above 0")
        return self


def _ordered_gangs(jobs: Any) -> Any:
    """Raises ValueError unless the smallest gang is at most the largest."""
    if jobs.gpus_max < jobs.gpus_min:
        raise ValueError(f"gpus_max {jobs.gpus_max} is below gpus_min {jobs.gpus_min}")
    return jobs


class PoissonJobs(JobsToRun):
    """Poisson arrivals of jobs with log-normal work (CHSAC-AF, Table I)."""

    source: Literal["poisson"]
    rate_per_s: Positive
    """Arrivals per second and ingress point."""
    median_work: Positive
    """Median of the work, units (exp of mu)."""
    sigma: Sigma
    """Standard deviation of the work's logarithm."""
    work_min: Positive = 0.1
    """Smaller draws become this, units (as in the paper's simulator)."""
    gpus_min: Gang = 1
    """Smallest gang."""
    gpus_max: Gang = 8
    """Largest gang."""
    data_gb: NonNegative = 0.0
    """Data that travel with a job to its site, GB."""

    _gangs = model_validator(mode="after")(_ordered_gangs)


class LogNormalWork(Spec):
    """Log-normal work: ``max(work_min, LogNormal(ln median, sigma))``."""

    law: Literal["log-normal"]
    """``log-normal``."""
    median_work: Positive
    """Median of the work, units."""
    sigma: Sigma
    """Standard deviation of the work's logarithm."""
    work_min: Positive = 0.1
    """Smaller draws become this, units."""
    work_max: Positive | None = None
    """Larger draws become this, units; none: any work."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.work_max is not None and self.work_max < self.work_min:
            raise ValueError(f"work_max {self.work_max:g} is below work_min {self.work_min:g}")
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "work_max")


class ParetoWork(Spec):
    """Pareto work: ``P(work > x) = (work_min / x)^tail``; its mean is ``work_min tail / (tail - 1)``."""

    law: Literal["pareto"]
    """``pareto``."""
    work_min: Positive
    """Least work, units."""
    tail: Annotated[float, Field(gt=1, le=LARGEST)]
    """Exponent of the tail, above 1 (so that the mean is finite)."""


class ClassStream(Spec):
    """The jobs of one class: Poisson arrivals whose rate may follow a wave, and a distribution of work."""

    rate_per_s: Positive
    """Mean arrivals per second and ingress point."""
    amplitude: Share = 0.0
    """Swing of the rate around its mean: rate x (1 + amplitude sin(2 pi t / period)); 0: constant."""
    period_h: Positive = 24.0
    """Period of the wave, h; it starts with the window, the same at every ingress point."""
    work: Annotated[LogNormalWork | ParetoWork, Field(discriminator="law")]
    """Distribution of the work."""
    gpus_min: Gang = 1
    """Smallest gang."""
    gpus_max: Gang = 8
    """Largest gang."""
    data_gb: NonNegative = 0.0
    """Data that travel with a job to its site, GB."""
    slack_ratio: NonNegative | None = None
    """Mean of slack over run time of a class of fixed duration; the ratio is uniform on 0 to twice this. None: no limit
    on the delay."""

    _gangs = model_validator(mode="after")(_ordered_gangs)

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "slack_ratio")


class MixedJobs(JobsToRun):
    """Jobs of several classes, each with its own arrivals and work (CHSAC-AF, Sec. VII: training with inference)."""

    source: Literal["mixed"]
    classes: dict[str, ClassStream] = Field(min_length=1)
    """Stream per job class of the fleet."""
    rate_factor: Positive = 1.0
    """Factor on the rates of all classes: more or fewer jobs of the same mix."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "rate_factor", "failures")


class ShapedJobs(JobsToRun):
    """Jobs that come at full hours, in amounts that follow daily load shapes (Hall et al., Sec. V)."""

    source: Literal["load-shapes"]
    cluster_gpus: Positive
    """GPUs of a load of 1: load shapes are in shares of a cluster."""
    mean_gpus: Positive = 16.0
    """Mean gang."""
    spread: NonNegative = 0.1
    """Standard deviation of the gang over its mean."""
    run_s: Positive = 3600.0
    """Run time, s, or units of work of a class whose speed depends on the GPU frequency."""
    slack_s: NonNegative = 36000.0
    """Largest delay of the start, s."""


class PaperStreamJobs(JobsToRun):
    """The very jobs of CHSAC-AF's published runs, drawn from ``random.Random(seed)`` in the authors' order."""

    source: Literal["paper-stream"]
    seed: int = 123
    """Seed of the published runs; an environment's own seed is not used."""
    rate_per_s: Positive = 0.02
    """Arrivals per second and ingress point."""
    median_work: Positive = 50000.0
    """Median of the work, units."""
    sigma: Sigma = 0.4
    """Standard deviation of the work's logarithm."""
    routed: bool = True
    """Whether the stream also draws a uniform site per job (the baselines' routing); it changes the later draws."""
    gpus_max: Gang = 8
    """Largest gang."""
    data_gb: NonNegative = 0.0
    """Data that travel with a job to its site, GB."""


class JobTable(JobsToRun):
    """A complete table of jobs from a file."""

    source: Literal["table"]
    path: Path
    """CSV or Parquet file (docs/data.md states the columns)."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column names of the file where they differ from the standard ones."""
    format: str | None = None
    """Format of a job log, such as slurm (``noonward import --formats``); none: detected, else a job table."""
    timezone: str | None = None
    """Time zone of times without a zone: an IANA name or an offset such as +01:00."""
    origin: str | None = None
    """Ingress point of all jobs, where the file names none."""
    slack_h: NonNegative | None = None
    """Largest accepted delay of a start, h, of jobs whose table states none; none: no limit, jobs wait."""
    history: Path | None = None
    """Dated table of jobs that planners draw the jobs to come from; none: the table's own jobs before the window."""
    leave_alone_min: NonNegative = 0.0
    """Jobs that run for less than this, min, have no slack: they are late unless they start at once. Where their run
    times are not known, those that are told to: by their limit, or as most jobs like them did."""
    at_start: Literal["empty", "as-recorded"] = "empty"
    """What is there when a window starts: ``empty``: nothing; ``as-recorded``: the jobs that the table says were
    running, on their GPUs until they end, and those that were waiting, which arrive at once."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "leave_alone_min", "at_start", "failures")


SignalSource = Annotated[GeneratedSignals | SinusoidalSignals | SignalFiles, Field(discriminator="source")]
JobSource = Annotated[
    FineTuningJobs | PoissonJobs | MixedJobs | ShapedJobs | PaperStreamJobs | JobTable, Field(discriminator="source")
]


class Scenario(Spec):
    """Fleet, network, signals, jobs, economics, protocol and horizon."""

    kind: Literal["cluster"] = "cluster"
    """Kind of the scenario: jobs on GPUs at several sites."""
    name: Slug
    """Name: 1 to 64 letters, digits, dots, dashes and underscores; it names the folder of records."""
    description: str = ""
    """What the scenario is, in a sentence or two."""
    protocol: Protocol
    """``each-slot``: every site decides on its pending jobs once a slot; ``on-arrival``: asked once per job."""
    slot_s: Slot = 60.0
    """Length of a slot, s (``each-slot``); must divide 3600."""
    window_h: Hours
    """Hours over which jobs arrive and free GPUs are charged; at most ten years."""
    start: date | None = None
    """First day of the window (UTC); none: a day is drawn for every environment."""
    windows: Count | None = None
    """Number of windows that do not overlap, spread over the days of a dated job table and signal files; environment
    0 is the first of them. None: the day of each environment is drawn independently."""
    forecast_h: Annotated[int, Field(ge=1, le=8760)] | None = None
    """Hours that forecasts reach at least, whatever jobs come; none: 240, or 1.5 times the longest run with its slack
    among the jobs of a table's past, if that is more. A policy that asks for more hours gets them. Of later hours a
    scheduler is told nothing."""
    end: Literal["drained", "window"]
    """When a run ends: when every job is done or overdue, or at the end of the window."""
    lateness: Lateness = Lateness()
    """What becomes of jobs that have not started by their latest start."""
    fleet: Fleet
    """Sites, GPU types, ingress points."""
    network: Network = Network()
    """Links from ingress points to sites."""
    signals: SignalSource | None = None
    """Price and carbon intensity; none: energy is reported, money and carbon are not."""
    jobs: JobSource
    """Jobs."""
    economics: Economics | None = None
    """Revenue and carbon price; none: utility is not reported."""
    goal: Literal["utility", "least-cost"] = "utility"
    """What policies are compared by: ``utility``, or the least cost with all jobs served. For the latter, the revenue
    is what serving a GPU-hour is worth to schedulers: give one above every cost; no figure contains it."""
    events: Events = ()
    """Grid events (docs/events.md): a list, a file of them (or its path), or a distribution to draw them from."""
    tenants: Tenants | None = None
    """Tenants, their quotas of GPUs and fair shares (docs/tenants.md); none: jobs are nobody's."""
    priorities: dict[str, Priority] | None = None
    """Priorities of jobs by class, 0 for those that are not named (docs/tenants.md): jobs of a higher one come first
    among those of a tenant, and of equal tenants. A job may have its own: column ``priority`` of a job table, or what
    is submitted to a live service. None: jobs have no priorities."""
    constraints: Constraints | None = None
    """Limits that policies are checked against, and targets that some of them use; none: no limits."""
    latency_weight_w: dict[str, NonNegative] = Field(default_factory=dict)
    """Preferences between energy and latency (CHSAC-AF, Sec. IV): joules that a second of a job's time in system
    counts, per class; name every class, or none. Learners are rewarded by them (reward ``energy``), some rules use
    them."""
    baseline: str | None = None
    """Policy that comparisons are made against."""
    policies: tuple[str, ...] = ()
    """Policies that ``compare`` runs if none are named."""

    @field_validator("events", mode="before")
    @classmethod
    def _events_by_path(cls, said: Any) -> Any:
        return {"path": said} if isinstance(said, str | Path) else said

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "events", "tenants", "priorities", "forecast_h")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in self.priorities or ():
            if name not in self.fleet.classes:
                raise ValueError(f"priorities name the unknown class {name!r}; {nearest(name, self.fleet.classes)}")
        if self.protocol == "each-slot" and HOUR_S % self.slot_s:
            raise ValueError(f"slot_s is {self.slot_s:g} s; a slot must divide the hour (3600 s)")
        if self.economics is not None and self.signals is None:
            raise ValueError("economics need signals: a utility takes prices and carbon intensities; give signals")
        if self.goal == "least-cost" and self.economics is None:
            raise ValueError("goal least-cost needs economics: schedulers must know what serving a GPU-hour is worth")
        if isinstance(self.jobs, FineTuningJobs):
            names = [point.name for point in self.fleet.ingress_points]
            for name in self.jobs.origin_shares:
                if name not in names:
                    raise ValueError(f"jobs.origin_shares names the unknown ingress {name!r}; {nearest(name, names)}")
        if isinstance(self.jobs, MixedJobs):
            for name in self.jobs.classes:
                if name not in self.fleet.classes:
                    raise ValueError(
                        f"jobs.classes names the unknown class {name!r}; {nearest(name, self.fleet.classes)}"
                    )
                profiles = [kind.classes[name] for kind in self.fleet.gpu_types.values()]
                if self.jobs.classes[name].slack_ratio is not None and any(p.time != "duration" for p in profiles):
                    raise ValueError(
                        f"jobs.classes.{name}.slack_ratio is for classes of fixed duration, whose run time is the same "
                        "on every gang; leave it out, or set the class' time to duration"
                    )
        if self.constraints is not None:
            self.constraints.check(self.fleet)
        self.check_asked(asked_sites(self.events))
        self._check_preferences()
        if isinstance(self.signals, SinusoidalSignals):
            for site in self.fleet.sites:
                if site.zone not in self.signals.peak_hours:
                    raise ValueError(
                        f"signals.peak_hours has no zone {site.zone!r}, which site {site.name!r} lies in; give its hour"
                    )
        if self.jobs.failures is not None and self.protocol != "each-slot":
            raise ValueError(
                f"jobs.failures is for protocol each-slot, not {self.protocol}; leave it out, or set protocol=each-slot"
            )
        if self.network.queued and self.protocol != "on-arrival":
            raise ValueError(
                f"network.queued is for protocol on-arrival, not {self.protocol}; leave it out, or set "
                "protocol=on-arrival"
            )
        self.network.links(self.fleet)
        return self

    def check_asked(self, sites: Iterable[str]) -> None:
        """Raises ValueError if an event is at an unknown site, or at one without a meter and a tariff."""
        for name in sites:
            s = self.fleet.site_index(name)
            if self.fleet.tariff_of(s) is None:
                raise ValueError(
                    f"an event is at site {name!r}, which has no meter with a tariff to settle it by; give meter: "
                    "{tariff: NAME}"
                )

    def _check_preferences(self) -> None:
        """Raises ValueError unless every class has a weight, or none has."""
        classes = self.fleet.classes
        for name in self.latency_weight_w:
            if name not in classes:
                raise ValueError(f"latency_weight_w names the unknown class {name!r}; {nearest(name, classes)}")
        for name in classes:
            if self.latency_weight_w and name not in self.latency_weight_w:
                raise ValueError(f"latency_weight_w leaves out the class {name!r}; give every class a weight, or none")

    def setting(self, start: datetime, *, window_s: float, drained: bool, late_until_s: float) -> Setting:
        """Returns what a run of this scenario holds before its first job.

        Args:
            start: UTC time of second 0.
            window_s: Horizon, s; infinite for a service.
            drained: Whether jobs may start after it.
            late_until_s: Time until which jobs may start late, s; -inf: they are dropped instead.
        """
        return Setting(
            scenario=self.name,
            start=start,
            protocol=self.protocol,
            slot_s=self.slot_s,
            window_s=window_s,
            drained=drained,
            fleet=self.fleet,
            links=self.network.links(self.fleet),
            economics=self.economics,
            constraints=self.constraints,
            latency_weight_w=self.latency_weight_w,
            late_until_s=late_until_s,
            late_usd_per_gpu_hour=self.lateness.usd_per_gpu_hour,
            tenants=self.tenants,
            priorities=self.priorities,
            forecast_h=self.forecast_h,
        )

    @property
    def day_ahead(self) -> dict[str, bool]:
        """What is stated of zones: whether their price is that of the day-ahead market."""
        return self.signals.day_ahead if isinstance(self.signals, MarketSignals) else {}

    @property
    def digest(self) -> str:
        """Digest of everything that a run depends on: all but the description and which policies are compared."""
        left_out: dict[str, Any] = dict.fromkeys(("kind", "description", "goal", "baseline", "policies"), True)
        left_out |= {name: True for name in ("start", "windows", "latency_weight_w") if not getattr(self, name)}
        if self.jobs.knowledge == Knowledge():
            left_out["jobs"] = {"knowledge": True}
        said = self.model_dump_json(exclude=left_out)
        return hashlib.sha256(said.encode()).hexdigest()[:16]
