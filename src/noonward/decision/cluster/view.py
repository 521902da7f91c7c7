"""The view a scheduler is asked with, and the answers it gives: the same arrays in Python and in compiled rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.errors import ScenarioError
from noonward.units import HOUR_S

HOLD: Final = 0
"""Choice that leaves a job where it is; choice ``1 + s`` names site s."""
ORACLE: Final = -1
"""Clock level of least energy per unit at the gang size the job starts with."""
KEEP: Final = -1
"""Power cap that leaves a running job's cap as it is; a job that starts or is resumed runs at full power."""

ASK_SLOT: Final = 1
"""Every site is asked about one of its pending jobs (protocol each-slot)."""
ASK_ROUTE: Final = 2
"""The dispatcher is asked where a job that arrives goes (protocol on-arrival)."""
ASK_ALLOCATE: Final = 3
"""A job is about to start at its site; gang and clock may be revised (only if the scheduler wants it)."""
ASK_FINISHED: Final = 4
"""A job has finished; nothing is answered (only if the scheduler wants it)."""
ASK_RUNNING: Final = 5
"""Sites are asked about jobs that run and may be suspended, preempted or capped (only if the scheduler wants it)."""

PRICE, CARBON = 0, 1
"""Positions of price and carbon intensity in the first axis of forecasts."""
POWER_W, SECONDS = 0, 1
"""Positions of P(n, f) and T(n, f) in the first axis of ``ClusterView.speed_KSCGF``."""

RUN: Final = np.dtype(
    [
        ("now_s", "f8"),  # seconds since the environment's start
        ("slot_s", "f8"),  # length of a slot; 0 under on-arrival where running jobs are asked about
        ("window_s", "f8"),  # horizon over which free GPUs are charged
        ("revenue_usd_per_gpu_hour", "f8"),  # 0 without economics
        ("carbon_usd_per_t", "f8"),  # 0 without economics
        ("late_until_s", "f8"),  # time until which jobs may start after their latest start; -inf: none may
        ("late_usd_per_gpu_hour", "f8"),  # price of an hour that a job starts late, per GPU of its smallest gang
        ("kind", "i8"),  # kind of question, ASK_...
        ("site", "i8"),  # site the question is about (on-arrival: ASK_ALLOCATE, ASK_FINISHED, ASK_RUNNING), or -1
        ("gpus", "i8"),  # gang of the finished job (ASK_FINISHED)
        ("level", "i8"),  # clock level of the finished job (ASK_FINISHED)
        ("least_gpus", "i8"),  # GPUs of the smallest site
    ]
)
"""What holds for the whole run."""
SITE: Final = np.dtype(
    [
        ("gpus", "i8"),
        ("free", "i8"),  # free GPUs
        ("waiting", "i8"),  # jobs that wait
        ("waiting_gpus", "i8"),  # GPUs asked by the jobs that wait (smallest gangs)
        ("levels", "i8"),  # number of clock levels
        ("ingress", "i8"),  # ingress point at home here, or -1
        ("price", "f8"),  # price of now (PUE by the hour counted), USD/MWh; NaN without signals
        ("carbon", "f8"),  # carbon intensity of now (likewise), g/kWh; NaN without signals
        ("pue", "f8"),
        ("free_w", "f8"),  # IT power of a free GPU, W
        ("most_latency_s", "f8"),  # of links from the ingress points at home here to other sites the highest latency, s
        ("most_seconds_per_gb", "f8"),  # and most s/GB; both infinite without such a point
        ("least_latency_s", "f8"),  # of the same links the lowest latency, s; 0 without such a point,
        ("least_seconds_per_gb", "f8"),  # fewest s/GB,
        ("least_usd_per_gb", "f8"),  # lowest price, USD/GB,
        ("least_kwh_per_gb", "f8"),  # and least energy, kWh/GB
        ("claimed", "i8"),  # GPUs of jobs that wait here and may displace the job asked about (smallest gangs)
        ("alike", "i8"),  # first site whose GPUs are of the same type: speed_KSCGF and oracle_SCG say the same of it
    ]
)
"""A site."""
LINK: Final = np.dtype(
    [
        ("latency_s", "f8"),
        ("seconds_per_gb", "f8"),
        ("usd_per_gb", "f8"),
        ("kwh_per_gb", "f8"),
        ("queued", "i8"),  # 1 where it carries the data of one job at a time
    ]
)
"""A link from an ingress point to a site; all zero at home."""
WAITS, RUNS, STOPS, DARK, LOADS = 0, 1, 2, 3, 4
"""What a job in sight does: waits or travels, runs, writes its checkpoint and holds its GPUs, holds none until it may
be resumed, or loads its checkpoint."""
LIFE: Final = np.dtype(
    [
        ("state", "i8"),  # WAITS, RUNS, STOPS, DARK or LOADS
        ("site", "i8"),  # where it runs, stops or loads, or last did
        ("gpus", "i8"),  # gang it runs with, or last did
        ("own_gpus", "i8"),  # gang it started on
        ("speed", "f8"),  # throughput on its gang at full power, over that on the gang it started on
        ("level", "i8"),  # clock level, likewise
        ("since_s", "f8"),  # when this began, s
        ("until_s", "f8"),  # when it is expected to end, s
        ("suspensions", "i8"),  # how often it has been suspended, or stopped by a failure
        ("failures", "i8"),  # how often it has failed
        ("cap", "i8"),  # power cap it runs under, or will once it has loaded; 0 is full power
        ("rate", "f8"),  # throughput, over that on the gang it started on at full power
        ("rate_since_s", "f8"),  # since when it has run at this rate, s
        ("lift_s", "f8"),  # when its cap is lifted because its slack is used up, s; infinite for never
        ("unsaved_s", "f8"),  # what it had done by rate_since_s after its last checkpoint, s on the gang it started on
    ]
)
"""What a job in sight does; filled where schedulers are asked about running jobs."""
ANSWER: Final = np.dtype(
    [
        ("choice", "i8"),  # HOLD or 1 + site
        ("gpus", "i8"),  # largest gang; 0: all the job can use
        ("level", "i8"),  # clock level or ORACLE
        (
            "earliest_s",
            "f8",
        ),  # earliest start; of HOLD under each-slot when its site is asked again
        ("cap", "i8"),  # power cap (of FREEDOM) or KEEP
    ]
)
"""An answer; what each field is until a scheduler answers stands in ``no_answer``."""


class ClusterView(NamedTuple):
    """What a scheduler sees when it is asked. The arrays are live views of the engine's state: read, never write.

    Axes: N askers (every site under each-slot, one dispatcher under on-arrival), S sites, A = 1 + S choices,
    I ingress points, L hours ahead, C classes, G gang sizes from 0, F clock levels, J rows of jobs, K price and carbon.
    Structured arrays have the fields of RUN, SITE, JOB and LINK above: ``view.site_S["free"]`` in Python,
    ``view.site_S[s].free`` in a compiled rule.

    A job takes a slot of ``job_J`` when it arrives and gives it back when it is done or overdue; then another job may
    take it, which has another ``serial``. The table grows when it is full: read it from the view at every question.

    Under ``each-slot`` the view holds MASAC's state (Sec. III): head jobs, free GPUs, GPUs asked by the queue,
    price and intensity of every site.
    """

    run_1: Records
    """The run, one RUN record."""
    site_S: Records
    """Sites, SITE records."""
    job_J: Records
    """Jobs in sight, JOB records."""
    asked_N: I8
    """Slot of the job each asker is asked about, or -1."""
    mask_NA: NDArray[np.uint8]
    """1 where a choice is feasible: 0 = hold, 1 + s = site s (start if it is the asker's own, else move there)."""
    link_IS: Records
    """Links, LINK records."""
    link_free_IS: F8
    """Time from which a link carries the next job's data, s; 0 where nothing queues."""
    home_I: I8
    """Site an ingress point belongs to, or -1."""
    range_CS: NDArray[np.uint8]
    """1 where jobs of a class may run."""
    forecast_KSL: F8
    """Forecasts issued this hour (PRICE, CARBON): integral from the hour's start to l hours on, value x s."""
    speed_KSCGF: F8
    """POWER_W: IT power of a gang, W; SECONDS: time per unit, s."""
    oracle_SCG: I8
    """Level of least energy per unit."""
    clock_SF: F8
    """Clock levels as shares of the maximum clock."""
    freedom_C: Records
    """What may be done with running jobs, one FREEDOM record per class."""
    life_J: Records
    """What the jobs in sight do, LIFE records by slot; one unused record where nobody is asked about running jobs."""

    @property
    def now_s(self) -> float:
        """Now, seconds since the environment's start."""
        return float(self.run_1["now_s"][0])

    @property
    def kind(self) -> int:
        """Kind of question, one of the ASK constants."""
        return int(self.run_1["kind"][0])

    @property
    def job(self) -> int:
        """Slot of the job the dispatcher is asked about (protocol on-arrival)."""
        return int(self.asked_N[0])

    @property
    def serial_N(self) -> I8:
        """Serial of the job each asker is asked about, or -1."""
        return np.where(self.asked_N >= 0, self.job_J["serial"][self.asked_N], -1)

    @property
    def free_S(self) -> I8:
        """Free GPUs per site."""
        return self.site_S["free"]

    @property
    def waiting_S(self) -> I8:
        """Waiting jobs per site."""
        return self.site_S["waiting"]

    @property
    def price_S(self) -> F8:
        """Price of now per site, USD/MWh."""
        return self.site_S["price"]

    @property
    def carbon_S(self) -> F8:
        """Carbon intensity of now per site, gCO2/kWh."""
        return self.site_S["carbon"]

    def asked(self) -> Iterator[tuple[int, int]]:
        """Yields (asker, slot of its job) of every asker that is asked; under each-slot the asker is the site."""
        for n, job in enumerate(self.asked_N.tolist()):
            if job >= 0:
                yield n, job

    def allowed(self, asker: int, site: int) -> bool:
        """Returns whether an asker may start its job at (or send it to) a site."""
        return bool(self.mask_NA[asker, 1 + site])


class Answers(NamedTuple):
    """What a scheduler answers, one ANSWER an asker.

    Before it asks, the engine sets every answer to "hold, largest gang, oracle clock, at once". Capacity curves stay as
    they are until they are set again.
    """

    answer_N: Records
    """ANSWER records."""
    limit_SH: F8
    """Capacity curves, GPUs per site and hour since the start; no hours unless the scheduler says ``curves``."""

    def send(
        self, asker: int, site: int, *, gpus: int = 0, level: int = ORACLE, earliest_s: float = 0.0, cap: int = KEEP
    ) -> None:
        """Answers that an asker's job starts at, or goes to, a site.

        Args:
            asker: Position of the asker; 0 for the dispatcher.
            site: Site index; the asker's own means "start here now" under each-slot.
            gpus: Largest gang, GPUs; 0 for as many as are free and useful.
            level: Clock level, or ORACLE.
            earliest_s: Earliest start, s (protocol on-arrival).
            cap: Power cap under which it starts or is resumed here now (protocol each-slot), as in ``FREEDOM``; KEEP or
                0 for full power.
        """
        self.answer_N[asker] = (1 + site, gpus, level, earliest_s, cap)

    def hold(self, asker: int, until_s: float = 0.0) -> None:
        """Answers that an asker's job waits another slot.

        Args:
            asker: Position of the asker.
            until_s: Time before which a simulation does not ask about the job again (protocol each-slot), s; at the
                latest its last start is when it does. A live service asks in every slot.
        """
        self.answer_N[asker] = (HOLD, 0, ORACLE, until_s, KEEP)

    def suspend(self, asker: int, until_s: float = 0.0) -> None:
        """Answers that the running job an asker is asked about is suspended (ASK_RUNNING); else it is kept running.

        Args:
            asker: Position of the asker, under each-slot the site at which the job runs.
            until_s: Time before which it is not resumed, s; at the latest it is when its slack ends. Under on-arrival
                it joins its site's queue then; under each-slot a simulation does not ask about it before, as in
                ``hold``.
        """
        self.send(asker, asker, earliest_s=until_s)

    def cap(self, asker: int, cap: int) -> None:
        """Answers under which power cap the running job an asker is asked about runs on (ASK_RUNNING).

        Args:
            asker: Position of the asker, under each-slot the site at which the job runs.
            cap: Power cap, as in ``FREEDOM``: 0 for full power, then the lower ones of its class in falling order.
        """
        self.answer_N[asker] = (HOLD, 0, ORACLE, 0.0, cap)

    def limit(self, first_hour: int, gpus_SH: F8) -> None:
        """Sets capacity curves from an hour on; hours after the run's last are left out.

        Args:
            first_hour: First hour, counted from the start of the run.
            gpus_SH: GPUs that may be busy per site and hour, finite and at least 0.

        Raises:
            ScenarioError: A value is not allowed, there is not one row a site, or the scheduler sets no curves.
        """
        if not (np.isfinite(gpus_SH).all() and (gpus_SH >= 0).all()):
            raise ScenarioError("a capacity curve holds a missing, infinite or negative value; give GPUs of at least 0")
        sites, hours = self.limit_SH.shape
        if len(gpus_SH) != sites or hours == 0:
            raise ScenarioError(
                f"capacity curves of {len(gpus_SH)} sites are set where {sites} sites and {hours} hours take one; give "
                "one row a site, and the scheduler 'curves'"
            )
        until = min(first_hour + gpus_SH.shape[1], hours)
        self.limit_SH[:, first_hour:until] = gpus_SH[:, : max(0, until - first_hour)]


@kernel(inline=True, allocates=False)
def no_answer(answers: Answers, asker: int) -> None:
    """Sets an asker's answer to what it is before anybody answers: hold, largest gang, oracle clock, at once."""
    answers.answer_N[asker].choice = HOLD
    answers.answer_N[asker].gpus = 0
    answers.answer_N[asker].level = ORACLE
    answers.answer_N[asker].earliest_s = 0.0
    answers.answer_N[asker].cap = KEEP


class RuleMemory(NamedTuple):
    """What a compiled rule keeps between questions; its scheduler makes it and says what each part holds.

    The last parts hold what the rule remembers of each job. They have a row for each row of ``view.job_J`` and grow
    with it. A rule calls ``first_seen`` before it reads a job's row, which sets the row to the defaults where it was
    another job's.
    """

    number_P: F8
    """Numbers."""
    table_XY: F8
    """Table of numbers."""
    index_XY: I8
    """Table of indices."""
    random_1: NDArray[np.uint64]
    """State of the rule's random numbers, one word (``random_below``)."""
    weight_W: NDArray[np.float32]
    """Weights of a net, one after the other."""
    scratch_XY: NDArray[np.float32]
    """Room for what a net is fed and makes of it."""
    new_number_P: F8
    """Numbers of a job that has not been seen before."""
    new_index_P: I8
    """Indices of a job that has not been seen before."""
    serial_J: I8
    """Serial of the job that a row is about, or -1."""
    job_number_JP: F8
    """Numbers per job."""
    job_index_JP: I8
    """Indices per job."""

    @classmethod
    def make(
        cls,
        *,
        numbers: Any = (0.0,),
        table: Any = ((0.0,),),
        index: Any = ((0,),),
        random_state: int = 0,
        weights: Any = (0.0,),
        scratch: Any = ((0.0,),),
        job_numbers: Any = (),
        job_index: Any = (),
    ) -> RuleMemory:
        """Returns a memory with the parts that are given.

        Args:
            numbers: Numbers.
            table: Table of numbers.
            index: Table of indices.
            random_state: Start of the rule's random numbers.
            weights: Weights of a net.
            scratch: Room for a net.
            job_numbers: Numbers kept per job, as they are for a new one.
            job_index: Indices kept per job, as they are for a new one.
        """
        new_number_P = np.ascontiguousarray(job_numbers, dtype=np.float64)
        new_index_P = np.ascontiguousarray(job_index, dtype=np.int64)
        return cls(
            number_P=np.ascontiguousarray(numbers, dtype=np.float64),
            table_XY=np.ascontiguousarray(table, dtype=np.float64),
            index_XY=np.ascontiguousarray(index, dtype=np.int64),
            random_1=np.array([random_state], dtype=np.uint64),
            weight_W=np.ascontiguousarray(weights, dtype=np.float32),
            scratch_XY=np.ascontiguousarray(scratch, dtype=np.float32),
            new_number_P=new_number_P,
            new_index_P=new_index_P,
            serial_J=np.zeros(0, np.int64),
            job_number_JP=np.zeros((0, len(new_number_P))),
            job_index_JP=np.zeros((0, len(new_index_P)), np.int64),
        )

    def for_jobs(self, jobs: int) -> RuleMemory:
        """Returns the memory with rows for so many jobs: itself, or one whose per-job parts are longer copies."""
        known = len(self.serial_J)
        if known >= jobs:
            return self
        serial_J = np.full(jobs, -1, np.int64)
        job_number_JP = np.tile(self.new_number_P, (jobs, 1))
        job_index_JP = np.tile(self.new_index_P, (jobs, 1))
        serial_J[:known], job_number_JP[:known], job_index_JP[:known] = (
            self.serial_J,
            self.job_number_JP,
            self.job_index_JP,
        )
        return self._replace(serial_J=serial_J, job_number_JP=job_number_JP, job_index_JP=job_index_JP)


PER_JOB: Final = ("serial_J", "job_number_JP", "job_index_JP")
"""Parts of a rule's memory that grow with the jobs in view."""


@kernel(inline=True, allocates=False)
def first_seen(view: ClusterView, memory: RuleMemory, job: int) -> bool:
    """Returns whether a rule has not met a job before, and then sets what it remembers of the job to the defaults."""
    serial = view.job_J[job].serial
    if memory.serial_J[job] == serial:
        return False
    memory.serial_J[job] = serial
    for p in range(memory.new_number_P.shape[0]):
        memory.job_number_JP[job, p] = memory.new_number_P[p]
    for p in range(memory.new_index_P.shape[0]):
        memory.job_index_JP[job, p] = memory.new_index_P[p]
    return True


@kernel(inline=True, allocates=False)
def fits(view: ClusterView, job: int, site: int) -> bool:
    """Returns whether a site is in a job's range and large enough for its smallest gang."""
    return view.job_J[job].gpus_min <= view.site_S[site].gpus and view.range_CS[view.job_J[job].class_, site] == 1


@kernel(inline=True, allocates=False)
def delay_s(view: ClusterView, job: int, ingress: int, site: int) -> float:
    """Returns how long a job travels from an ingress point to a site, s: latency + GB x s/GB (MASAC, Sec. II)."""
    link = view.link_IS[ingress, site]
    return link.latency_s + view.job_J[job].move_gb * link.seconds_per_gb


@kernel(inline=True, allocates=False)
def longest_delay_s(view: ClusterView, size_gb: float, home: int) -> float:
    """Returns the longest that data may travel between an ingress point at home at a site and any site, s."""
    return view.site_S[home].most_latency_s + size_gb * view.site_S[home].most_seconds_per_gb


@kernel(inline=True, allocates=False)
def shortest_delay_s(view: ClusterView, size_gb: float, home: int) -> float:
    """Returns the shortest that data may travel between an ingress point at home at a site and another site, s."""
    return view.site_S[home].least_latency_s + size_gb * view.site_S[home].least_seconds_per_gb


@kernel(inline=True, allocates=False)
def departure_s(view: ClusterView, job: int, site: int) -> float:
    """Returns when the link from a job's ingress point to a site begins to carry it if it is sent now, s.

    At once, unless the job has data and the link queues (``Network.queued``): then when the jobs sent before are
    through.
    """
    now, record = view.run_1[0].now_s, view.job_J[job]
    return max(now, view.link_free_IS[record.origin, site]) if record.move_gb > 0.0 else now


@kernel(inline=True, allocates=False)
def route_delay_s(view: ClusterView, job: int, site: int) -> float:
    """Returns how long a job that is sent from its ingress point now travels, the wait for the link included, s."""
    wait_s = departure_s(view, job, site) - view.run_1[0].now_s
    return wait_s + delay_s(view, job, view.job_J[job].origin, site)


@kernel(inline=True, allocates=False)
def return_delay_s(view: ClusterView, job: int, site: int) -> float:
    """Returns how long a job's result travels from a site to the job's origin, s; 0 if there is no result."""
    size_gb = view.job_J[job].result_gb
    if size_gb == 0.0:
        return 0.0
    link = view.link_IS[view.job_J[job].origin, site]
    return link.latency_s + size_gb * link.seconds_per_gb


@kernel(inline=True, allocates=False)
def latest_start_s(view: ClusterView, job: int, site: int) -> float:
    """Returns a job's latest start at a site, s: deadline less the return of its result (MASAC, Eq. 7b).

    Infinite for a job without a limit, whose ``deadline_s`` is infinite: bound a loop over starts by something else.
    """
    return view.job_J[job].deadline_s - return_delay_s(view, job, site)


@kernel(inline=True, allocates=False)
def last_start_before_s(view: ClusterView, job: int, return_s: float) -> float:
    """Returns until when a job whose result travels for so long, s, may start at all, s (``last_start_s``)."""
    return max(view.job_J[job].deadline_s - return_s, view.run_1[0].late_until_s)


@kernel(inline=True, allocates=False)
def last_start_s(view: ClusterView, job: int, site: int) -> float:
    """Returns until when a job may start at a site at all, s: its latest start, or later where jobs may be late."""
    return last_start_before_s(view, job, return_delay_s(view, job, site))


@kernel(inline=True, allocates=False)
def lead_integral(forecast_KSL: F8, kind: int, site: int, seconds_ahead: float) -> float:
    """Returns the integral of a forecast from the current hour's start to some seconds on, value x s.

    Args:
        forecast_KSL: ``ClusterView.forecast_KSL``.
        kind: PRICE or CARBON.
        site: Site index.
        seconds_ahead: Seconds after the current hour's start, within the hours forecast.
    """
    position = seconds_ahead / HOUR_S
    lead = int(min(position, forecast_KSL.shape[2] - 2.0))
    below = forecast_KSL[kind, site, lead]
    return below + (forecast_KSL[kind, site, lead + 1] - below) * (position - lead)
