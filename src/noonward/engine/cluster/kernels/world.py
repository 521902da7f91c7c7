"""The engine's whole state: a few arrays, most of them records with named fields."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import int64, typeof
from numpy.typing import NDArray

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.addresses import place_dtype, reader, writer
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, Part, blank
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.ledger.segments import (
    DONE,
    JOB_OUTCOME,
    OVERDUE,
    PLANNED,
    RUNNING,
    SEGMENT,
    TRANSIT,
    WAITING,
    meter_fields,
)
from noonward.model.cluster.jobs import SUBMITTED
from noonward.model.cluster.tenant import TENANT

__all__ = ["DONE", "OVERDUE", "PLANNED", "RUNNING", "TRANSIT", "WAITING", "World"]


FINISH: Final = 0
"""Event: a job finishes. Events at one time are taken in the order of these numbers, then of the job."""
WITHHOLD: Final = 1
"""Event: other GPUs of a site are withheld from now on; its serial is their number, its slot the site. Or, with slot
``POWER_LIMIT + site``: its power has another limit, and the serial is that in whole W. Or, with ``GRID_EVENT + site``:
a grid event begins or ends there."""
POWER_LIMIT: Final = 1 << 28
GRID_EVENT: Final = 1 << 27
HOUR: Final = 2
"""Event: an hour begins and the capacity curves change."""
REACH: Final = 3
"""Event: a job reaches a site, or the earliest start it was given."""
ARRIVAL: Final = 4
"""Event: a job arrives at its ingress point."""
STOPPED: Final = 5
"""Event: a suspended job has written its checkpoint."""
LOADED: Final = 6
"""Event: a resumed job has loaded its checkpoint."""
DEADLINE: Final = 7
"""Event: a waiting job's latest start has passed."""
LIFT: Final = 8
"""Event: a job's slack is used up, and its power cap is lifted."""
BREAK: Final = 9
"""Event: a running job fails."""
CAPPED: Final = 10
"""Event: a cluster has put a running job under another power cap (told)."""
KEPT: Final = 11
"""Event: a job that was to stop runs on: its cluster does not stop it (told)."""
PART: Final = 12
"""Event: prices and intensities change (protocol on-arrival, where running jobs are asked about)."""
TAKEN, JOINED, SENT, STARTED, FREED, DROPPED = 1, 2, 3, 4, 5, 6
STOPPING, HALTED, RESUMED, RAN_ON, CAPS = 7, 8, 9, 10, 11
"""What an engine that is told from outside notes of a job: it has come in sight, joined a queue, left for a site,
started, given its GPUs back, or can no longer start in time; it is to stop, has stopped, is to be resumed, runs on, is
to run under another power cap or does."""
NOTHING, A_STOP, A_RUN, A_CAP = 0, 1, 2, 3
"""Values of BENT's field ``awaits``: what a job's cluster has been asked to do and has not confirmed."""
KIND_SHIFT: Final = 59
SERIAL_SHIFT: Final = 29
"""Heap items are ``kind << KIND_SHIFT | serial of the job << SERIAL_SHIFT | its slot``; 0 of both for an hour."""
INGRESS_SHIFT: Final = 48
SITE_SHIFT: Final = 32
"""Items of journeys are ``ingress << INGRESS_SHIFT | site << SITE_SHIFT | serial of the job``."""

NO_CAPS, ADVISORY_CAPS, HARD_CAPS = 0, 1, 2
"""Values of the engine's field ``caps``."""
NO_REWARDS, AS_EARNED, AT_START, OWN = 0, 1, 2, 3
"""Values of the engine's field ``rewards``: none, the utility's growth, each job's whole value when it starts, or the
same with each job's earnings credited to the agents that decided about it."""
PRICE_SUM, CARBON_SUM, FACTOR_SUM = 2, 3, 4
"""Positions of the running integrals in ``World.signal_KSH`` (PRICE and CARBON are 0 and 1); that of the factor by
which a watt counts is there only where a PUE changes by the hour."""

FULL: Final = -5
"""What carrying out answers returns where ``World.heap_E`` must grow first; nothing is then changed."""
NO_SLOT: Final = -6
"""What a step returns where ``job_J`` of the view must grow before the next job can arrive; call it again then."""
UNISSUED: Final = -7
"""What a step returns where a question waits for the forecast of its hour, which ``World.forecast_KISL`` lacks."""
UNESTIMATED: Final = -8
"""What a step returns where what is told of the next job's run time must be estimated first; call it again then."""
NO_SEGMENT: Final = -9
"""What carrying out answers, or an event, returns where ``World.segment_K`` must grow first; nothing is then changed.
"""

OF_QUEUES, OF_RUNNING = 1, 2
"""Values of the engine's field ``in_slot``: which jobs of a slot are asked about."""
ENGINE: Final = np.dtype(
    [
        ("next_arrival", "i8"),  # first job that has not arrived
        ("free_slot", "i8"),  # first slot that its job has given back, or -1; TRACK.next leads to the others
        ("new_slot", "i8"),  # first slot that no job has had
        ("until_s", "f8"),  # time up to which events are being taken, or NaN (protocol each-slot)
        ("part_s", "f8"),  # how long a price or an intensity holds, s
        ("heap_size", "i8"),
        ("steps_left", "i8"),  # events among them that change what is withheld, or power limits, or are of the grid
        ("dispatch", "i8"),  # site whose queue is looked at next, or -1
        ("dispatch_last", "i8"),  # last site to look at
        ("estimated", "i8"),  # jobs whose told run times are there
        ("hour_shown", "i8"),  # hour whose forecast the view shows
        ("part_shown", "i8"),  # part of an hour whose signals the view shows
        ("unissued", "i8"),  # 1 while the view shows that hour without its forecast
        ("steps", "i8"),  # questions asked
        ("events", "i8"),  # events taken
        ("journeys", "i8"),  # journeys (protocol each-slot) or happenings (told) noted at the end of World.heap_E
        ("first_to_ask", "i8"),  # first site with a further job of the current slot to be asked about, or -1
        ("in_slot", "i8"),  # OF_QUEUES or OF_RUNNING while jobs of the current slot are asked about, else 0
        ("ended", "i8"),
        ("drained", "i8"),  # run until every job is done or overdue
        ("has_signals", "i8"),
        ("wants_allocate", "i8"),
        ("wants_finished", "i8"),
        ("wants_freed", "i8"),  # running jobs are asked about when GPUs become free, too
        ("rewards", "i8"),  # what is read at every question: NO_REWARDS, AS_EARNED, AT_START, OWN
        ("told", "i8"),  # 1 where finishes are told from outside; 0 where the engine tells itself
        ("told_s", "f8"),  # time up to which all is told, s
        ("guessed", "i8"),  # 1 where schedulers are told other run times than the true ones
        ("hour_waits", "i8"),  # 1 while an hour at which queues are looked at is an event
        ("caps", "i8"),  # NO_CAPS, ADVISORY_CAPS, HARD_CAPS
        ("bends", "i8"),  # 1 where running jobs may be stopped: schedulers are asked about them, or they fail
        ("tenants", "i8"),  # tenants with quotas; 0 where none are stated, nor priorities
        ("half_life_s", "f8"),  # half-life of past use in fair shares, s; NaN: there are none
        ("budgets", "i8"),  # tenants with budgets
        ("epoch_s", "f8"),  # second 0 in seconds since 1970, UTC
        ("segments", "i8"),  # segments noted in World.segment_K
        ("started_usd", "f8"),  # value of all jobs started, each counted whole (AT_START, OWN)
        ("reward_usd", "f8"),  # growth of the utility at the last reading
        *meter_fields(per_site=False),
    ]
)
"""Counters, switches and totals of a run."""
EVENT: Final = np.dtype([("time", "f8"), ("item", "i8")])
"""An event in the heap."""
TRACK: Final = np.dtype(
    [
        ("next", "i4"),  # waiting job behind, or -1; of a slot that was given back the next such one
        ("before", "i4"),  # waiting job before, or -1
        ("earliest_s", "f8"),  # earliest start asked for
        ("reach_s", "f8"),  # when it is at the site it was sent to; while it runs its expected run time (budgets), s
        ("row", "i4"),  # its row of World.outcome_R
        ("held", "i1"),  # 1 while an operator holds it: nobody is asked about it
        ("priority", "i1"),  # jobs of a higher one come first
        ("tenant", "i2"),  # whose it is
    ]
)
"""What the engine keeps per job in sight beside its JOB_OUTCOME record: half a cache line, for queues grow long."""
BENT: Final = np.dtype(
    [
        ("left", "f8"),  # work left when it began to run at its present rate, or when it was suspended
        ("late_s", "f8"),  # lateness that has been paid for
        ("fails_gpu_s", "f8"),  # GPU-seconds from then on until hardware fails; infinite: it does not
        ("noted", "i8"),  # its last segment in World.segment_K, or -1
        ("awaits", "i8"),  # what its cluster is to confirm: NOTHING, A_STOP, A_RUN, A_CAP (told)
        ("wants", "i8"),  # power cap that its cluster is to put it under, or has
        ("kept", "i8"),  # GPUs that it keeps though it has stopped (SITE_STATE.keeps)
        ("next_owed", "i8"),  # while it is owed GPUs the next such job of its site, in the order of latest_s, or -1
        ("latest_s", "f8"),  # and its latest start there, s,
        ("needs_s", "f8"),  # how long it then holds the gang it started on, s,
        ("owed_gpus", "i8"),  # and how many GPUs that are
    ]
)
"""What the engine keeps per job in sight where running jobs may be stopped."""
SITE_STATE: Final = np.dtype(
    [
        ("head", "i8"),  # first waiting job, or -1
        ("tail", "i8"),
        ("cursor", "i8"),  # job asked about next in this slot of time, or -1
        ("next_to_ask", "i8"),  # next site with a further job of this slot (ENGINE.first_to_ask), or -1
        ("taken", "i8"),  # GPUs of running jobs
        ("withheld", "i8"),  # GPUs that no job may take now
        ("limit_w", "f8"),  # power above which no start may lift that of its GPUs, W; infinite: no limit
        ("drained", "i8"),  # 1 while nothing may start (protocol on-arrival; each-slot masks it)
        ("modelled", "i8"),  # 1 where running jobs do at once what the model says; 0 where a cluster confirms it
        ("keeps", "i8"),  # 1 where stopped jobs keep their GPUs (told)
        ("busy_w", "f8"),  # facility power of running jobs, those that stop or load included, W
        ("metered_s", "f8"),  # time up to which the meters at the end have been read
        ("over_cap_gpu_s", "f8"),  # use above the capacity curve
        ("own_usd", "f8"),  # what starts here and departures from here have earned since the last question (OWN)
        ("running", "i8"),  # first running job that may ever be suspended or capped, or -1
        ("last_running", "i8"),
        ("changed", "i8"),  # 1 where something has changed since its running jobs were asked about
        ("asks", "i8"),  # 1 while they are asked about because of that
        ("owed", "i8"),  # GPUs that suspended jobs are to be given again here (``kept_room``)
        ("first_owed", "i8"),  # first of the jobs that are to, or -1
        ("stopping", "i8"),  # GPUs of those that still write their checkpoints
        ("stops_until_s", "f8"),  # when the last that did has, s
        ("overhead_gpus", "i8"),  # GPUs of jobs that stop or load
        ("overhead_w", "f8"),  # their facility power, W
        ("bent_gpus", "i8"),  # GPUs of jobs that run under a power cap, or on another gang than they started on
        ("capped_gpus", "i8"),  # those under a cap
        ("slowed_gpus", "f8"),  # what they are more than is useful: GPUs - throughput x gang started on
        *meter_fields(per_site=True),
    ]
)
"""What the engine keeps per site beside the view: its waiting list and its meters."""


class World(NamedTuple):
    """All arrays of one run."""

    shown: ClusterView
    """What the scheduler sees."""
    answers: Answers
    """What it answers."""
    engine_1: Records
    """One ENGINE record."""
    state_S: Records
    """SITE_STATE records."""
    track_J: Records
    """TRACK records of the jobs in sight, by their slots in the view."""
    submitted_R: Records
    """SUBMITTED records of all jobs of the run, in the order of arrival."""
    outcome_R: Records
    """JOB_OUTCOME records: of the jobs that have arrived, in the order of arrival, zeros for those to come; where the
    engine is told from outside, of the jobs in sight, by their slots."""
    job_usd_R: F8
    """What the decisions about each job have earned so far, USD, in the order of arrival; empty but for OWN."""
    heap_E: Records
    """EVENT records: a binary heap from the front; from the back the journeys of jobs, in the order of time.

    Only protocol each-slot notes journeys: there a job may travel any number of times. An engine that is told from
    outside notes there what happens to jobs instead, until it is read. They share an array with the
    events because numba's code for a world of one array more takes twice the time.
    """
    signal_KSH: F8
    """Price USD/MWh, carbon g/kWh, and the integrals of both to each hour's start, value x s (H + 1 columns).

    Where signals change within hours, H are parts of hours, each ``engine_1.part_s`` long. Where a PUE changes by the
    hour, there is also the integral of the factor by which a watt counts, s.
    """
    forecast_KISL: F8
    """Forecast integrals of some successive hours of issue, by site and lead; no rows without a forecast."""
    issued_2: I8
    """First hour of issue in ``forecast_KISL``, and the number of hours."""
    caps_SH: F8
    """Capacity curves, GPUs; one unused column without."""
    bent_J: Records
    """BENT records of the jobs in sight, by slot; one unused record where no running job may be stopped."""
    segment_K: Records
    """SEGMENT records of the jobs that have been suspended or capped, as far as they are noted."""
    failure_RX: F8
    """When jobs fail, in the order of arrival: ``JobFailures.table_JX``; no rows where none does."""
    tenant_T: Records
    """TENANT records; where no tenants are stated one, unused unless priorities are (``Tenants.nobody``)."""


WORLD_PARTS: Final = (
    Part("engine_1", ENGINE, ("one",), moves=True),
    Part("state_S", SITE_STATE, ("sites",), moves=True),
    Part("track_J", TRACK, ("slots",), moves=True),
    Part("submitted_R", SUBMITTED, ("jobs",)),
    Part("outcome_R", JOB_OUTCOME, ("outcomes",), moves=True),
    Part("job_usd_R", np.float64, ("paid_jobs",), moves=True),
    Part("heap_E", EVENT, ("events",), moves=True),
    Part("signal_KSH", np.float64, ("signals", "sites", "hours"), fill=np.nan),
    Part("forecast_KISL", np.float64, ("two", "issues", "sites", "leads")),
    Part("issued_2", np.int64, ("two",)),
    Part("caps_SH", np.float64, ("sites", "cap_hours")),
    Part("bent_J", BENT, ("lives",), moves=True),
    Part("segment_K", SEGMENT, ("segments",), moves=True),
    Part("failure_RX", np.float64, ("failing_jobs", "failures")),
    Part("tenant_T", TENANT, ("tenants",), moves=True),
)
"""The arrays of a ``World`` beside view and answers, in its order."""
PARTS: Final = (*VIEW_PARTS, *ANSWER_PARTS, *WORLD_PARTS)
"""All arrays of a world."""
EXAMPLE_WORLD: Final = World(ClusterView(**blank(VIEW_PARTS)), Answers(**blank(ANSWER_PARTS)), **blank(WORLD_PARTS))
"""A world with the element types and axes of every world."""
WORLD: Final = typeof(EXAMPLE_WORLD)
"""numba type of a world."""
PLACE: Final = place_dtype(PARTS)
"""Where a world's arrays lie: an address per array, a length per axis."""
world_at: Any = reader(WORLD, PARTS)
"""Function for compiled code: the world whose PLACE record lies at an address."""


_noted: Any = writer(WORLD, PARTS)


@kernel(int64(WORLD, int64), allocates=False)
def note_world(world: World, address: int) -> int:
    """Writes where a world's arrays lie to a PLACE record; see ``writer``."""
    return _noted(world, address)


def arrays_of(world: World) -> dict[str, NDArray[Any]]:
    """Returns all arrays of a world by name."""
    parts = world._asdict()
    shown, answers = parts.pop("shown"), parts.pop("answers")
    return {**shown._asdict(), **answers._asdict(), **parts}
