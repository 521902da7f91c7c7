"""Bid prices: capacity prices from a plan of the coming hours; each job is booked where its value exceeds them most."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.value import forecast_value_usd, gang_at, run_seconds, travel_cost_usd
from noonward.decision.cluster.view import HOLD, JOB, Answers, ClusterView, delay_s, fits, job_records, latest_start_s
from noonward.decision.scheduler import Scheduler, State, checked_state, months_remarks
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.learned import packaged_record
from noonward.model.cluster.environment import latest_end_s
from noonward.schedule.cluster.booking import first_slot, in_time
from noonward.units import HOUR_S

UNSEEN: Final = -3
"""Plan of a job that has not been asked about."""
STARTED: Final = -2
"""Plan of a job that has been told to start."""
REFUSED: Final = -1
"""Plan of a job that does not pay at these prices."""
KEPT: Final = (
    *("_sampled", "_hours", "_hour", "_improved", "_booked_TS", "_price_SH", "_square_SH", "_price_sum_SH"),
    *("_job_J", "_site_J", "_plan_J2"),
)
"""Attributes that a state holds."""


@kernel(inline=True, allocates=False)
def _paid(price_sum_SH: F8, site: int, from_s: float, to_s: float) -> float:
    """Returns the price of one GPU between two times, USD; free after the hours that are priced."""
    last = price_sum_SH.shape[1] - 1
    out = 0.0
    for sign in range(2):
        position = (to_s if sign else from_s) / HOUR_S
        hour = int(position)
        if hour >= last:
            value = price_sum_SH[site, last]
        else:
            below = price_sum_SH[site, hour]
            value = below + (price_sum_SH[site, hour + 1] - below) * (position - hour)
        out += value if sign else -value
    return out


@kernel(allocates=False)
def _best_kink(view: ClusterView, price_sum_SH: F8, job: int, s: int, from_s: float) -> tuple[float, int, float]:
    """Returns (value USD, site, start s) of a job's best start at some prices, whatever the room.

    At fixed prices the value is linear in the start between hours' turns of start or end, so those suffice.
    """
    best, best_site, best_start = 0.0, -1, 0.0
    for d in range(view.site_S.shape[0]):
        if not fits(view, job, d):
            continue
        earliest = from_s if s == d else from_s + delay_s(view, job, view.site_S[s].ingress, d)
        latest = latest_start_s(view, job, d)
        if earliest > latest:
            continue
        seconds, gpus = run_seconds(view, job, d), gang_at(view, job, d)
        cost = travel_cost_usd(view, job, s, d)
        for end in range(2):
            start = earliest
            turn = np.floor((earliest + end * seconds) / HOUR_S) * HOUR_S
            while True:
                value = forecast_value_usd(view, job, d, start) - cost
                value -= gpus * _paid(price_sum_SH, d, start, start + seconds)
                if value > best:
                    best, best_site, best_start = value, d, start
                if start >= latest:
                    break
                turn += HOUR_S
                start = min(latest, max(earliest, turn - end * seconds))
    return best, best_site, best_start


@kernel(allocates=False)
def _use(view: ClusterView, job: int, site: int, start_s: float, weight: float, use_SH: F8) -> None:
    """Adds the GPU-hours of a run to the hours that are priced."""
    until = start_s + run_seconds(view, job, site)
    hour = int(start_s / HOUR_S)
    gpus = weight * gang_at(view, job, site)
    while start_s < until and hour < use_SH.shape[1]:
        end = min(until, (hour + 1) * HOUR_S)
        use_SH[site, hour] += gpus * (end - start_s) / HOUR_S
        start_s = end
        hour += 1


@kernel(allocates=False)
def _sum_up(price_SH: F8, price_sum_SH: F8) -> None:
    """Writes the running integrals of prices per GPU-hour, USD per GPU."""
    for s in range(price_SH.shape[0]):
        total = 0.0
        for hour in range(price_SH.shape[1]):
            price_sum_SH[s, hour] = total
            total += price_SH[s, hour]
        price_sum_SH[s, price_SH.shape[1]] = total


@kernel(allocates=False)
def reprice(
    view: ClusterView,
    sampled: ClusterView,
    weight: float,
    site_J: I8,
    plan_J2: I8,
    capacity_SH: F8,
    price_SH: F8,
    price_sum_SH: F8,
    square_SH: F8,
    use_SH: F8,
    mean_SH: F8,
    step: float,
    rounds: int,
) -> None:
    """Improves the prices by AdaGrad steps on the dual of the plan of the coming hours.

    The plan: known jobs that wait, each worth its best start less what its GPUs cost at the prices, plus jobs to come,
    sampled and weighted, within the GPU-hours that running and travelling jobs leave. The dual's subgradient in a
    price is that hour's capacity less its use (MASAC's capacity, Eq. 7c, priced).
    """
    now = view.run_1[0].now_s
    hour_now = int(now / HOUR_S)
    mean_SH[:] = 0.0
    for _ in range(rounds):
        _sum_up(price_SH, price_sum_SH)
        use_SH[:] = 0.0
        for job in range(plan_J2.shape[0]):
            if site_J[job] >= 0:
                _, d, start = _best_kink(view, price_sum_SH, job, site_J[job], now)
                if d >= 0:
                    _use(view, job, d, start, 1.0, use_SH)
        for job in range(sampled.job_J.shape[0]):
            record = sampled.job_J[job]
            if record.arrival_s > now:
                _, d, start = _best_kink(sampled, price_sum_SH, job, sampled.home_I[record.origin], record.arrival_s)
                if d >= 0:
                    _use(sampled, job, d, start, weight, use_SH)
        for s in range(price_SH.shape[0]):
            for hour in range(hour_now, price_SH.shape[1]):
                slope = (capacity_SH[s, hour] - use_SH[s, hour]) / view.site_S[s].gpus
                square_SH[s, hour] += slope * slope
                if square_SH[s, hour] > 0.0:
                    price_SH[s, hour] = max(0.0, price_SH[s, hour] - step * slope / np.sqrt(square_SH[s, hour]))
                mean_SH[s, hour] += price_SH[s, hour] / rounds
    _sum_up(mean_SH if rounds > 0 else price_SH, price_sum_SH)


@kernel(allocates=False)
def _best_room(view: ClusterView, price_sum_SH: F8, booked_TS: I8, job: int, s: int) -> tuple[float, int, int]:
    """Returns (value USD, site, slot) of a job's best start with room in the bookings, at some prices."""
    slot_s = view.run_1[0].slot_s
    best, best_site, best_slot = 0.0, REFUSED, 0
    for d in range(view.site_S.shape[0]):
        if not fits(view, job, d):
            continue
        seconds, gpus = run_seconds(view, job, d), gang_at(view, job, d)
        length = int(np.ceil(seconds / slot_s))
        first = first_slot(view, job, s, d)
        last = int(np.floor(latest_start_s(view, job, d) / slot_s))
        cost = travel_cost_usd(view, job, s, d)
        full, seen = first - 1, first
        for slot in range(first, last + 1):
            if full >= slot:
                continue
            while seen < slot + length:
                if booked_TS[seen, d] + gpus > view.site_S[d].gpus:
                    full = seen
                seen += 1
            if full >= slot:
                continue
            start = slot * slot_s
            value = forecast_value_usd(view, job, d, start) - cost
            value -= gpus * _paid(price_sum_SH, d, start, start + seconds)
            if value > best:
                best, best_site, best_slot = value, d, slot
    return best, best_site, best_slot


@kernel(allocates=False)
def _book(view: ClusterView, booked_TS: I8, job: int, site: int, slot: int, sign: int) -> None:
    """Takes (or gives back) the slots of a booking."""
    length = int(np.ceil(run_seconds(view, job, site) / view.run_1[0].slot_s))
    gpus = sign * gang_at(view, job, site)
    for t in range(slot, slot + length):
        booked_TS[t, site] += gpus


@kernel(allocates=False)
def release(view: ClusterView, booked_TS: I8, plan_J2: I8, jobs: I8) -> None:
    """Takes the bookings of some jobs out of the books; their plans stand."""
    for i in range(jobs.shape[0]):
        job = jobs[i]
        if plan_J2[job, 0] >= 0:
            _book(view, booked_TS, job, plan_J2[job, 0], plan_J2[job, 1], -1)


@kernel(allocates=False)
def plan(view: ClusterView, price_sum_SH: F8, booked_TS: I8, site_J: I8, plan_J2: I8, job: int) -> None:
    """Books one job that waits at a site."""
    _, site, slot = _best_room(view, price_sum_SH, booked_TS, job, site_J[job])
    plan_J2[job, 0], plan_J2[job, 1] = site, slot
    if site >= 0:
        _book(view, booked_TS, job, site, slot, 1)


@kernel(allocates=False)
def replan(view: ClusterView, price_sum_SH: F8, booked_TS: I8, site_J: I8, plan_J2: I8, waiting: I8) -> None:
    """Books every waiting job anew, one at a time beside the bookings of the others."""
    for i in range(waiting.shape[0]):
        release(view, booked_TS, plan_J2, waiting[i : i + 1])
        plan(view, price_sum_SH, booked_TS, site_J, plan_J2, waiting[i])


@kernel(allocates=False)
def answer(view: ClusterView, answers: Answers, price_sum_SH: F8, booked_TS: I8, site_J: I8, plan_J2: I8) -> None:
    """Answers one decision step by the plan; jobs not seen before are booked first."""
    slot = int(np.round(view.run_1[0].now_s / view.run_1[0].slot_s))
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        site_J[job] = s
        if plan_J2[job, 0] == UNSEEN:
            plan(view, price_sum_SH, booked_TS, site_J, plan_J2, job)
        site = plan_J2[job, 0]
        if site < 0 or not view.mask_NA[s, 1 + site]:
            continue  # refused, or kept waiting by a hard capacity curve, which the plan does not know
        if site != s or slot >= plan_J2[job, 1]:
            answers.answer_N[s].choice = 1 + site


@kernel(allocates=False)
def note(view: ClusterView, answers: Answers, booked_TS: I8, site_J: I8, plan_J2: I8) -> None:
    """Enters what is carried out into the books: starts, by the plan or not, and departures."""
    slot = int(np.round(view.run_1[0].now_s / view.run_1[0].slot_s))
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0 or answers.answer_N[s].choice == HOLD:
            continue
        site, planned = answers.answer_N[s].choice - 1, plan_J2[job, 0]
        if planned >= 0 and (planned != site or (site == s and plan_J2[job, 1] != slot)):
            _book(view, booked_TS, job, planned, plan_J2[job, 1], -1)
            plan_J2[job, 0] = UNSEEN
        if site == s:
            if plan_J2[job, 0] < 0:
                _book(view, booked_TS, job, s, slot, 1)
            site_J[job] = STARTED
            plan_J2[job, 0] = STARTED
        else:
            site_J[job] = UNSEEN  # on its way: a booking there stands until it is asked about there


class BidPrice(Scheduler):
    """Books every job at the (site, start) of highest forecast value over the price of the GPU-hours it takes.

    The prices are the capacity duals of a plan of the coming hours: the jobs that wait, and jobs to come, sampled from
    the workload's statistics (never the environment's own), under the forecast in force. They are improved every hour
    from where they stood and averaged over the steps; then every job that has not started is booked anew.

    Args:
        forecast: Forecast of prices and carbon.
        samples: Draws of the jobs to come, at least 1; their use counts with weight 1 / samples.
        first_rounds: Improvements of the prices before the first answer, at least 0.
        rounds: Improvements every hour, at least 0.
        step: AdaGrad step, USD per GPU-hour, above 0.

    Raises:
        ValueError: A number is out of its range.
    """

    def __init__(
        self,
        forecast: Forecast,
        *,
        samples: int = 2,
        first_rounds: int = 100,
        rounds: int = 8,
        step: float = 0.01,
    ) -> None:
        for name, value, least in (("samples", samples, 1), ("first_rounds", first_rounds, 0), ("rounds", rounds, 0)):
            if value < least:
                raise ValueError(f"{name} of bid prices is {value}; it must be at least {least}")
        if not 0 < step < np.inf:
            raise ValueError(f"step of bid prices is {step} USD per GPU-hour; it must be finite and above 0")
        self.needs = Needs(protocols=("each-slot",), signals=True, economics=True, forecast=forecast, samples=True)
        self.samples = samples
        self.first_rounds = first_rounds
        self.rounds = rounds
        self.step = step

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Samples the jobs to come and opens the books.

        Raises:
            ScenarioError: The workload cannot be sampled.
        """
        if brief.sample_jobs is None:
            raise ScenarioError(
                f"bid prices plan for jobs to come, but those of scenario {brief.scenario!r} cannot be sampled; "
                "use generated jobs or another policy"
            )
        draws = [in_time(brief.sample_jobs(draw), brief) for draw in rng.spawn(self.samples)]
        fleet, slot_s, sites = brief.fleet, brief.slot_s, len(brief.sites)
        # Sampled gangs may be larger than any the view's tables are made for.
        tables = fleet.tables(max(brief.largest_gang, *(int(jobs.gpus_max_J.max()) for jobs in draws)))
        self._speed_KSCGF = np.stack([tables.power_w_SCGF, tables.seconds_per_unit_SCGF])
        self._oracle_SCG = tables.oracle_level_SCG
        self._slowest_C = np.nanmax(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(0, 2, 3))
        self._last_start_s = np.inf if brief.drained else brief.window_s
        self._slots_per_hour = round(HOUR_S / slot_s)
        self._slot_s = slot_s
        self._known: ClusterView | None = None
        ends_s = max(latest_end_s(jobs, fleet, brief.window_s, slot_s) for jobs in draws)
        self._sampled = np.concatenate([job_records(jobs) for jobs in draws])
        self._hours, self._hour, self._improved = 0, -1, 0
        self._booked_TS = np.zeros((0, sites), np.int64)
        self._price_SH = np.zeros((sites, 0))
        self._square_SH = np.zeros((sites, 0))
        self._price_sum_SH = np.zeros((sites, 1))
        self._job_J = np.zeros(0, JOB)
        self._site_J = np.zeros(0, np.int64)
        self._plan_J2 = np.zeros((0, 2), np.int64)
        self._reach(int(np.ceil(ends_s / HOUR_S)) + 1)

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in a month that a learned forecast was trained on."""
        forecast = self.needs.forecast
        if forecast is None or forecast.kind != "learned":
            return ()
        return months_remarks("the net of the learned forecast", packaged_record(forecast.net), brief)

    def state(self) -> State:
        """Returns a copy of the books, the prices and the sampled jobs."""
        return {name: np.copy(getattr(self, name)) for name in KEPT}

    def load_state(self, state: State) -> None:
        """Restores the books, the prices and the sampled jobs.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        checked_state(self, state, dict.fromkeys(KEPT))
        for name in KEPT:
            value = np.array(state[name])
            setattr(self, name, value if value.ndim else int(value))
        self._scratch()
        self._known = None

    def _reach(self, hours: int) -> None:
        """Lets books and prices reach so many hours; an hour that no job has used yet is free."""
        sites, more = len(self._price_SH), hours - self._hours
        slots = int(np.ceil(hours * HOUR_S / self._slot_s)) + 2
        self._booked_TS = np.concatenate([self._booked_TS, np.zeros((slots - len(self._booked_TS), sites), np.int64)])
        self._price_SH = np.concatenate([self._price_SH, np.zeros((sites, more))], axis=1)
        # In every round so far the whole site was free then, which is a slope of 1.
        self._square_SH = np.concatenate([self._square_SH, np.full((sites, more), float(self._improved))], axis=1)
        self._price_sum_SH = np.concatenate(
            [self._price_sum_SH, np.repeat(self._price_sum_SH[:, -1:], more, axis=1)], axis=1
        )
        self._hours = hours
        self._scratch()
        self._known = None

    def _scratch(self) -> None:
        """Makes the arrays that every improvement of the prices fills anew."""
        self._use_SH, self._mean_SH = np.zeros_like(self._price_SH), np.zeros_like(self._price_SH)

    def _note_jobs(self, view: ClusterView) -> None:
        """Makes room for the jobs asked about and copies what is known of them."""
        more = len(view.job_J) - len(self._job_J)
        if more > 0:
            self._job_J = np.concatenate([self._job_J, np.zeros(more, JOB)])
            self._site_J = np.concatenate([self._site_J, np.full(more, UNSEEN, np.int64)])
            self._plan_J2 = np.concatenate([self._plan_J2, np.full((more, 2), UNSEEN, np.int64)])
            self._known = None
        asked_N = view.asked_N[view.asked_N >= 0]
        record_N = view.job_J[asked_N]
        record_N["deadline_s"] = np.minimum(record_N["deadline_s"], self._last_start_s)
        self._job_J[asked_N] = record_N
        end_N = record_N["deadline_s"] + record_N["work"] * self._slowest_C[record_N["class_"]] + self._slot_s
        hours = int(np.ceil(end_N.max() / HOUR_S)) + 1
        if hours > self._hours:
            self._reach(hours)

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers by the plan; at the turn of an hour, prices and plan are renewed first."""
        self._note_jobs(view)
        hour = int(view.now_s // HOUR_S)
        if hour != self._hour:
            self._known = None
            self._renew(self._view(view), first=self._hour < 0)
            self._hour = hour
        answer(self._view(view), answers, self._price_sum_SH, self._booked_TS, self._site_J, self._plan_J2)
        note(self._view(view), answers, self._booked_TS, self._site_J, self._plan_J2)

    def _view(self, view: ClusterView) -> ClusterView:
        """Returns the view with the jobs asked about so far, the forecast extended, and tables for sampled gangs."""
        if self._known is None:
            self._known = view._replace(
                job_J=self._job_J,
                forecast_KSL=extended(view.forecast_KSL, self._hours),
                speed_KSCGF=self._speed_KSCGF,
                oracle_SCG=self._oracle_SCG,
            )
        return self._known

    def _renew(self, view: ClusterView, *, first: bool) -> None:
        asked = np.flatnonzero(self._site_J >= 0)
        late = view.job_J["deadline_s"][asked] < view.now_s
        self._forget(view, asked[late])
        waiting = asked[~late]
        rounds = self.first_rounds if first else self.rounds
        reprice(
            view,
            view._replace(job_J=self._sampled),
            1.0 / self.samples,
            self._site_J,
            self._plan_J2,
            self._capacity(view, waiting),
            self._price_SH,
            self._price_sum_SH,
            self._square_SH,
            self._use_SH,
            self._mean_SH,
            self.step,
            rounds,
        )
        self._improved += rounds
        replan(view, self._price_sum_SH, self._booked_TS, self._site_J, self._plan_J2, waiting)

    def _forget(self, view: ClusterView, overdue: I8) -> None:
        """Drops jobs that can no longer start."""
        release(view, self._booked_TS, self._plan_J2, overdue)
        self._site_J[overdue] = STARTED
        self._plan_J2[overdue, 0] = REFUSED

    def _capacity(self, view: ClusterView, waiting: I8) -> F8:
        """Returns the GPU-hours per site and hour that running and travelling jobs leave."""
        committed_TS = self._booked_TS.copy()
        release(view, committed_TS, self._plan_J2, waiting)
        slots = self._hours * self._slots_per_hour
        busy_HS = committed_TS[:slots].reshape(self._hours, self._slots_per_hour, -1).mean(axis=1)
        return np.ascontiguousarray((view.site_S["gpus"] - busy_HS).T)


def extended(forecast_KSL: F8, leads: int) -> F8:
    """Returns a forecast for at least some leads; hours that are not forecast repeat those of a day before.

    Args:
        forecast_KSL: Running integrals as in the view; NaN where nothing is forecast.
        leads: Hours wanted.
    """
    hourly = np.diff(forecast_KSL, axis=2)
    out = np.full((*hourly.shape[:2], max(leads, hourly.shape[2])), np.nan)
    out[:, :, : hourly.shape[2]] = hourly
    for lead in np.flatnonzero(np.isnan(out).any(axis=(0, 1))):
        out[:, :, lead] = out[:, :, lead - 24] if lead >= 24 else out[:, :, lead - 1]
    total = np.zeros((*hourly.shape[:2], out.shape[2] + 1))
    np.cumsum(out, axis=2, out=total[:, :, 1:])
    return total
