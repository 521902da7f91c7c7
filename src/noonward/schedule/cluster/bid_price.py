"""Bid prices: capacity prices from a plan of the coming hours; each job is booked where its value exceeds them most."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from noonward.arguments import checked
from noonward.arrays import F8, I8, Records
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.addresses import Place
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.partly_compiled import PartlyCompiledScheduler
from noonward.decision.scheduler import State, checked_state, forecast_remarks
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.expected import ExpectedSampler
from noonward.model.cluster.freedom import Lever
from noonward.model.cluster.jobs import with_expected
from noonward.schedule.cluster.booking import in_time
from noonward.schedule.cluster.bookings import (
    LIFE,
    NOTED,
    STARTED,
    as_plans,
    blank_plans,
    cap_running,
    follow_jobs,
    left_to_plan,
    lift_running,
    move_books,
    rebook,
    release,
)
from noonward.schedule.cluster.capacity_prices import (
    COMING,
    DAY_H,
    JOBS_PER_HOUR,
    OPTION,
    PRICED_H,
    Ahead,
    Prices,
    describe_all,
    improve,
    most_gpu_hours,
    sum_up,
    sum_up_energy,
)
from noonward.schedule.cluster.kinds import Kinds
from noonward.schedule.cluster.learned_price import LearnedPrice
from noonward.schedule.cluster.lives import drop_lives, no_lives, plan_started
from noonward.schedule.cluster.planned_answers import QUESTION_PARTS, answer_planned, by_plan, note_planned
from noonward.schedule.cluster.planned_power import PlannedPower
from noonward.units import HOUR_S

EXACT_SITES: Final = 64
"""Sites up to which each has prices of its own, unless said otherwise."""
KINDS_EXPECTED: Final = 20_000
"""Weighted jobs a week that stand for those to come at more sites, where none are asked for."""
STRETCH_H: Final = 168
"""Hours of jobs to come that are sampled; later weeks of a run repeat them."""
KEPT: Final = (
    "_sampled",
    "_per_draw_C",
    "_hour",
    "_price_SH",
    "_square_SH",
    "_mean_SH",
    "_booked_ST",
    "_plan_J",
    "_life_J",
)
"""Attributes that a state holds; the others follow from them and from the brief."""
Improve = Callable[[int], F8]
"""Improves prices by a round with the given number; returns the power that the plan adds by site and hour, W."""
Samples = Annotated[int, Field(ge=1, description="draws of the jobs to come")]
Rounds = Annotated[int, Field(ge=0, description="improvements of the prices an hour")]
Memory = Annotated[float, Field(gt=0, le=1, description="of slopes, an hour")]
Expected = Annotated[int, Field(ge=0, description="weighted jobs to come, a week")]
RESERVE: Final = 0.3
"""Share of slack that is not planned with where jobs may be late; ``patient`` keeps as much."""
Reserve = Annotated[
    float, Field(ge=0, lt=1, description="of slack, where run times are estimates and jobs may be late")
]
ExactSites = Annotated[int, Field(ge=1, description="sites up to which each has prices of its own")]
JobsPerHour = Annotated[float, Field(gt=0, allow_inf_nan=False, description="jobs to come in an improvement")]


class BidPrice(PartlyCompiledScheduler):
    """Books every job at the (site, start) of highest forecast value over the price of the GPU-hours it takes.

    The prices are the capacity duals of a plan of the coming hours: the jobs that wait, and jobs to come, sampled from
    the workload's statistics (never the environment's own), under the forecast in force. They are improved every hour
    from where they stood and averaged over the steps; then every job that has not started is booked again.

    The horizon moves with time. The next 240 hours have prices; an hour that comes into sight starts from the
    price a day before it, and beyond the horizon the prices of its last day repeat. A start is
    planned within the horizon. The jobs to come are a sampled week (or the window, where it is shorter) that repeats;
    in every round few of them stand for all, so that an hour costs the same in a window of any length.

    The books follow the jobs: what is left of a booking is given back when its job ends early, and a run that goes on
    beyond its booking gets a longer one.

    Where sites have tariffs, the price of energy is that of the next kW (``PowerPrices``): the expected share of a
    demand charge, the sun that is left, and announced events, at the load that the plan comes to, averaged over the
    rounds as in the bound with meters (Frank and Wolfe 1956). Jobs with a planned life count in no load.

    A job whose run time is an estimate, and that may be late, is planned to start before the last part of its slack
    (``reserve``): by then runs that outlast their bookings may have taken the room. Once that part begins, it is due:
    it is booked at the first start with room, like one that is late, and again whenever room is given back. Where late
    jobs are dropped, nothing is kept in reserve, because that cost more than it brought (docs/lab/fine-tuning.md).

    Where jobs may be late, a job whose transfer has a price leaves in the last slot in which it can still
    start as booked: until then its plan may change without a transfer. A due job moves only where that is worth its
    transfer (``bookings``).

    Where a price was learned, the prices start from it, and need fewer improvements before the first answer.

    In a fleet of more than ``exact_sites``, sites that differ in nothing but their GPUs (``site_kinds``) share prices:
    their capacity is priced as one, and a job is booked at that one with most room at its best start. Where a
    job waits and its home are looked at on their own. There, weighted jobs stand for those to come, as with
    ``expected``.

    With ``suspends``, jobs of a class that is ``interruptible`` are planned again at the turn of every hour once they
    have started (``lives``): each takes the cheapest course of runs and suspensions at these prices, their overheads
    included, in the hours that the bookings of others leave free. With ``moves``, those whose class ``moves`` also
    leave for the site at which the rest of their work is cheapest, the journey included. Starts, and the use by which
    prices are improved, are planned as if jobs ran unbroken.

    With ``caps``, jobs whose class has power caps start under the cap that costs least from their start on: less energy
    against GPUs for longer, at these prices (``caps``). Jobs to come are planned the same way, so prices know of caps.
    At the turn of every hour the caps of running jobs are chosen again: where GPUs have become scarce, they are lifted.
    With ``suspends``, too, a running job whose class allows both is capped or has its life, whichever saves more then.

    Args:
        forecast: Forecast of prices and carbon.
        samples: Draws of the jobs to come, at least 1; their use counts with weight 1 / samples.
        expected: Weighted jobs a week (or window, where it is shorter) that stand for those to come instead of the
            draws, where the workload says what is expected (``ExpectedSampler``); 0: the draws, always.
        jobs_per_hour: Jobs to come that stand for the fleet's GPU-hours of the current hour in one improvement,
            above 0.
        exact_sites: Sites up to which each has prices of its own, at least 1.
        suspends: Whether it suspends jobs of interruptible classes; else they run unbroken, like all others.
        moves: Whether suspended jobs whose class moves may leave for other sites; only with ``suspends``.
        caps: Whether it caps the power of jobs whose class allows it.
        reserve: Share of the slack that is not planned with, of jobs whose run time is an estimate and that may be
            late, at least 0 and below 1.
        peaks: Whether tariffs count by the price of the next kW; else by that of energy alone.
        first_rounds: Improvements of the prices before the first answer, at least 0.
        rounds: Improvements every hour, at least 0.
        step: AdaGrad step, USD per GPU-hour, above 0.
        memory: Share of the sums of squared slopes that one renewal keeps of the last, above 0 to 1: the smaller,
            the faster prices follow what has changed.
        learned_price: What the prices start from; None: 0.

    Raises:
        ScenarioError: A number is out of its range.
    """

    partial_rule = staticmethod(by_plan)

    @checked
    def __init__(
        self,
        forecast: Forecast,
        *,
        samples: Samples = 2,
        first_rounds: Rounds = 100,
        rounds: Rounds = 8,
        step: Annotated[float, Field(gt=0, allow_inf_nan=False, description="USD per GPU-hour")] = 0.01,
        memory: Memory = 1.0,
        learned_price: LearnedPrice | None = None,
        expected: Expected = 0,
        jobs_per_hour: JobsPerHour = JOBS_PER_HOUR,
        exact_sites: ExactSites = EXACT_SITES,
        suspends: bool = False,
        moves: bool = False,
        caps: bool = False,
        peaks: bool = True,
        reserve: Reserve = RESERVE,
    ) -> None:
        if moves and not suspends:
            raise ScenarioError("moves goes with suspends: only suspended jobs move; set suspends=True, too")
        levers: dict[Lever, bool] = {"suspend": suspends, "move": moves, "cap": caps}
        self.needs = Needs(
            protocols=("each-slot",), signals=True, economics=True, forecast=forecast, samples=True,
            lookahead_h=0 if forecast.foresight else PRICED_H,
            levers=tuple(lever for lever, used in levers.items() if used),
        )  # fmt: skip
        self.samples = samples
        self.first_rounds = first_rounds
        self.rounds = rounds
        self.step, self.memory = step, memory
        self.learned_price = learned_price
        self.expected, self.jobs_per_hour = expected, jobs_per_hour
        self.exact_sites = exact_sites
        self.peaks, self.reserve = peaks, reserve

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
        self._fleet, self._largest_gang = brief.fleet, brief.largest_gang
        self._window_h, self._start_hour = brief.window_s / HOUR_S, float(brief.start.hour)
        self._stretch_h = min(self._window_h, float(STRETCH_H))
        self._last_start_s = np.inf if brief.drained else brief.window_s
        self._per_hour, self._withheld = round(HOUR_S / brief.slot_s), brief.withheld
        self._sampled, self._per_draw_C = self._jobs_to_come(brief, rng)
        sites = len(brief.sites)
        self._hour = -1
        self._price_SH, self._square_SH, self._mean_SH = np.zeros((3, sites, PRICED_H))
        self._booked_ST = np.zeros((sites, 0), np.int64)
        self._plan_J, self._life_J = blank_plans(0), no_lives(0)
        freedoms, levers = brief.fleet.freedoms.values(), self.needs.levers
        self._bends = "suspend" in levers and any(each.interruptible for each in freedoms)
        self._caps = "cap" in levers and any(each.cap_curve is not None for each in freedoms)
        largest = max(self._largest_gang, int(self._sampled["gpus_max"].max(initial=0)))
        self._kinds = Kinds.of(brief, largest, self.exact_sites)
        self._option_X = np.zeros(self._kinds.options, OPTION)
        forecast = self.needs.forecast
        assert forecast is not None, "bid prices read a forecast"
        self._power = PlannedPower.of(brief, foresight=forecast.foresight) if self.peaks else None
        self._prices: Prices | None = None
        self._reserve = self.reserve if brief.late_until_s > -np.inf else 0.0
        self._noted_1 = np.array([(-1, self._per_hour, self._last_start_s, self._reserve, -1.0)], NOTED)
        self._place = Place(QUESTION_PARTS, note_planned)

    def _jobs_to_come(self, brief: Brief, rng: np.random.Generator) -> tuple[Records, F8]:
        """Returns the jobs that stand for those to come, by arrival, and how many of them stand for one of a draw."""
        assert brief.sample_jobs is not None
        expected = self.expected or (KINDS_EXPECTED if len(brief.sites) > self.exact_sites else 0)
        if expected and isinstance(brief.sample_jobs, ExpectedSampler):
            found = brief.sample_jobs.expected(round(expected * self._window_h / self._stretch_h), rng)
            jobs, per_draw_C = in_time(found.jobs, brief).records(), 1 / found.weight_J
        else:
            draws = [in_time(brief.sample_jobs(draw), brief).records() for draw in rng.spawn(self.samples)]
            jobs = np.concatenate(draws)
            per_draw_C = np.full(len(jobs), float(self.samples))
        kept = np.flatnonzero(jobs["arrival_s"] < self._stretch_h * HOUR_S)
        kept = kept[np.argsort(jobs["arrival_s"][kept], kind="stable")]
        return jobs[kept], per_draw_C[kept]

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in months or hours that a learned forecast was trained on."""
        return forecast_remarks(self.needs.forecast, brief)

    def state(self) -> State:
        """Returns a copy of the books, the prices and the sampled jobs."""
        return {name: np.copy(value) for name, value in self._kept.items()}

    @property
    def _kept(self) -> dict[str, Any]:
        """What a state holds."""
        return {name: getattr(self, name) for name in KEPT} | ({} if self._power is None else self._power.kept)

    def load_state(self, state: State) -> None:
        """Restores the books, the prices and the sampled jobs.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        if "_sampled" in state:
            state = {**state, "_sampled": with_expected(np.asarray(state["_sampled"]))}
        if "_plan_J" in state:
            state = {**state, "_plan_J": as_plans(np.asarray(state["_plan_J"]))}
        like = self._kept | {"_booked_ST": None}  # books reach as far as runs do
        checked_state(self, state, like, grows=("_sampled", "_per_draw_C", "_plan_J", "_life_J", "drawn_kw_HS"))
        if self._power is not None:
            self._power.restore(state)
        for name in KEPT:
            value = np.array(state[name], order="C")
            setattr(self, name, value if value.ndim else int(value))
        self._prices = None
        self._noted_1["followed_s"] = -1.0

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers by the plan; at the turn of an hour, prices and plan are renewed first."""
        if len(view.job_J) > len(self._plan_J):
            more = len(view.job_J) - len(self._plan_J)
            self._plan_J = np.concatenate([self._plan_J, blank_plans(more)])
            self._life_J = np.concatenate([self._life_J, no_lives(more)])
        prices = self._open(view) if self._prices is None else self._prices
        hour = int(view.now_s // HOUR_S)
        if hour != self._hour:
            rounds = self.rounds if self._hour >= 0 else self.first_rounds
            if self._hour < 0 and self.learned_price is not None:
                price_SH = self.learned_price(view, self._window_h, self._start_hour)
                self._price_SH[:, : price_SH.shape[1]] = self._kinds.mean(price_SH)
                self._mean_SH[:] = self._price_SH
                sum_up(self._mean_SH, prices.paid_SR)
            self._move(hour)
            slot = round(view.now_s / HOUR_S * self._per_hour)
            follow_jobs(view, self._booked_ST, hour * self._per_hour, self._plan_J, slot)
            self._renew(view, prices, rounds)
        while longest_h := self._answer(view, answers, prices):
            prices = self._reach(view, prices, longest_h)

    def question_address(self, view: ClusterView, answers: Answers) -> int:
        """Returns what ``by_plan`` is called with, once ``decide`` has answered a question."""
        assert self._prices is not None, "the first question goes to decide"
        return self._noted(view, answers, self._prices)

    def _noted(self, view: ClusterView, answers: Answers, prices: Prices) -> int:
        """Notes what a question is answered by; returns the address of the record."""
        books = self._option_X, self._booked_ST, self._plan_J, self._noted_1
        arrays = view, answers, self._kinds, prices, *books
        if not self._place.holds(arrays):
            self._place.note(arrays)
        return self._place.address

    def _answer(self, view: ClusterView, answers: Answers, prices: Prices) -> float:
        """Answers by the plan, or returns how long a run the books must reach for first, h."""
        self._noted_1["hour"] = self._hour
        return float(answer_planned(self._noted(view, answers, prices)))

    def _open(self, view: ClusterView) -> Prices:
        """Describes the sampled jobs and returns the prices as they stand."""
        sampled = self._sampled
        # Sampled gangs may be larger than any the view's tables are made for.
        tables = self._fleet.tables(max(self._largest_gang, int(sampled["gpus_max"].max(initial=0))))
        known = view._replace(
            job_J=sampled,
            speed_KSCGF=np.stack([tables.power_w_SCGF, tables.seconds_per_unit_SCGF]),
            oracle_SCG=tables.oracle_level_SCG,
        )
        home_C, arrival_s_C = view.home_I[sampled["origin"]], np.ascontiguousarray(sampled["arrival_s"])
        option_CX, every_C = np.zeros((len(sampled), self._kinds.options), OPTION), np.arange(len(sampled))
        describe_all(known, self._kinds, every_C, home_C, arrival_s_C, 0.0, self._last_start_s, 0.0, True, option_CX)
        size_C = np.empty(len(sampled))
        most_gpu_hours(option_CX, size_C)
        size_C /= self._per_draw_C * float(view.site_S["gpus"].sum())
        coming_C = np.zeros(len(sampled), COMING)
        coming_C["arrival_h"], coming_C["home"], coming_C["weight"] = arrival_s_C / HOUR_S, home_C, 1 / self._per_draw_C
        coming_C["until"] = np.cumsum(size_C)
        coming_C["before"] = coming_C["until"] - size_C
        some_C = size_C > 0
        self._coming_C, self._option_CX = coming_C[some_C], option_CX if some_C.all() else option_CX[some_C]
        hours = min(float(PRICED_H), self._window_h)
        self._arrival_h_C = np.ascontiguousarray(self._coming_C["arrival_h"])
        self._ahead = Ahead.of(len(self._coming_C), hours, self._stretch_h, len(view.site_S))
        capacity_SH, use_SH = np.zeros((2, *self._price_SH.shape))
        blank_SR = np.zeros((len(view.site_S), 0))
        prices = Prices(self._price_SH, self._square_SH, self._mean_SH, capacity_SH, use_SH, blank_SR, blank_SR)
        longest_h = float(self._option_CX["run_h"].max(initial=0.0))
        booked_h = self._booked_ST.shape[1] // self._per_hour - PRICED_H - 2
        return self._reach(view, prices, max(longest_h, booked_h))

    def _reach(self, view: ClusterView, prices: Prices, longest_h: float) -> Prices:
        """Extends prices and books beyond the horizon by a run of some hours, and returns the prices."""
        hours = PRICED_H + int(np.ceil(longest_h)) + 2
        if hours > prices.paid_SR.shape[1]:
            sites = len(prices.price_SH)
            prices = prices._replace(paid_SR=np.zeros((sites, hours)), energy_SR=np.zeros((sites, hours)))
            sum_up(prices.mean_SH, prices.paid_SR)
            self._sum_up_energy(view, prices)
            self._prices = prices
            more = hours * self._per_hour - self._booked_ST.shape[1]
            blank_ST = np.zeros((sites, more), np.int64)
            self._withhold(blank_ST, max(self._hour, 0) * self._per_hour + self._booked_ST.shape[1])
            self._booked_ST = np.concatenate([self._booked_ST, blank_ST], axis=1)
        return prices

    def _move(self, hour: int) -> None:
        """Moves prices and books on to an hour; hours that come into sight start from the price a day before."""
        if self._hour < 0:
            self._hour = hour
            if self._power is not None:
                self._power.begin(hour)
            return
        ahead_H = np.arange(PRICED_H) + hour - self._hour
        beyond = ahead_H >= PRICED_H
        ahead_H[beyond] = PRICED_H - DAY_H + (ahead_H[beyond] - PRICED_H) % DAY_H
        for value_SH in (self._price_SH, self._square_SH, self._mean_SH):
            value_SH[:] = value_SH.take(ahead_H, axis=1)
        if self._power is not None:
            self._power.move(hour, ahead_H)
        self._square_SH[:, beyond] = 0.0
        past = min((hour - self._hour) * self._per_hour, self._booked_ST.shape[1])
        left = self._booked_ST.shape[1] - past
        move_books(self._booked_ST, past)
        self._withhold(self._booked_ST[:, left:], hour * self._per_hour + left)
        self._hour = hour

    def _withhold(self, booked_ST: I8, slot: int) -> None:
        """Books the GPUs that are known to be withheld in some slots, the first of which is given."""
        if self._withheld is not None:
            slot_s = HOUR_S / self._per_hour
            booked_ST += self._withheld.most(slot * slot_s, slot_s, booked_ST.shape[1])

    def _renew(self, view: ClusterView, prices: Prices, rounds: int) -> None:
        """Improves the prices and books all jobs that wait again."""
        slot_0, zero_s = self._hour * self._per_hour, self._hour * HOUR_S
        if self._bends:
            drop_lives(view, self._booked_ST, slot_0, self._plan_J, self._life_J)
        waiting = self._still_waiting(view, slot_0)
        option_WX = np.zeros((len(waiting), self._kinds.options), OPTION)
        at_W = np.ascontiguousarray(self._plan_J["at"][waiting])
        now_s_W = np.full(len(waiting), view.now_s)
        reserve, kinds = self._reserve, self._kinds
        if len(waiting):
            describe_all(view, kinds, waiting, at_W, now_s_W, zero_s, self._last_start_s, reserve, False, option_WX)
        sum_up_energy(view, prices.energy_SR)
        if self._caps:
            lift_running(view, self._booked_ST, slot_0, self._plan_J)
        left_to_plan(view.site_S, self._booked_ST, slot_0, self._plan_J, waiting, self._per_hour, prices.capacity_SH)
        if self._withheld is not None:  # jobs that run on when GPUs are withheld are booked in addition to these
            np.maximum(prices.capacity_SH, 0.0, out=prices.capacity_SH)
        prices.square_SH[:] *= self.memory
        hour_h = self._hour % self._stretch_h
        first = int(np.searchsorted(self._arrival_h_C, hour_h + (view.now_s - zero_s) / HOUR_S, "right"))
        load_w_SH = np.zeros((len(view.site_S), 0 if self._power is None else PRICED_H))

        def improved(rounds: int, before: int) -> F8:
            end_h, step = min(float(PRICED_H), self._window_h - self._hour), self.step
            improve(
                view, self._kinds, prices, option_WX, self._coming_C, self._option_CX, self._ahead, first, hour_h,
                self._stretch_h, end_h, step, rounds, self.jobs_per_hour, load_w_SH, before,
            )  # fmt: skip
            return load_w_SH

        if self._power is None:
            improved(rounds, 0)
        else:
            self._improve_with_power(view, prices, self._power, rounds, waiting, functools.partial(improved, 1))
        books = self._booked_ST, slot_0, self._last_start_s, reserve, self._plan_J
        rebook(view, kinds, prices, option_WX, *books, waiting)
        if self._caps:
            cap_running(view, prices, self._option_X, self._booked_ST, slot_0, self._plan_J)
        if self._power is not None:
            self._power.note_books(view, self._plan_J)
        if self._bends:
            started = np.flatnonzero((self._plan_J["at"] == STARTED) | (self._plan_J["at"] == LIFE))
            order = np.lexsort((self._plan_J["serial"][started], view.job_J["deadline_s"][started]))
            lives = self._booked_ST, slot_0, self._plan_J, self._life_J
            plan_started(view, prices, self._option_X, *lives, started[order])

    def _still_waiting(self, view: ClusterView, slot_0: int) -> I8:
        """Returns the jobs that wait, by arrival; those that are gone give their bookings back."""
        asked = np.flatnonzero(self._plan_J["at"] >= 0)
        if not len(asked):
            return asked
        asked = asked[np.argsort(self._plan_J["serial"][asked])]
        record, mine = view.job_J[asked], self._plan_J[asked]
        gone = (mine["deadline_s"] < view.now_s) | (record["serial"] != mine["serial"])
        if not gone.any():
            return asked
        release(self._booked_ST, slot_0, self._plan_J, asked[gone])
        self._plan_J[asked[gone]] = blank_plans(1)
        waiting: I8 = asked[~gone]
        return waiting

    def _improve_with_power(
        self, view: ClusterView, prices: Prices, power: PlannedPower, rounds: int, waiting_W: I8, improve_once: Improve
    ) -> None:
        """Improves prices of GPUs and of power in turn: each round of the first is at the second's mean load so far."""
        booked = self._plan_J["site"] >= 0
        booked[waiting_W] = False
        committed_w_SH, mean_SH = (
            power.booked_w(view, self._plan_J, np.flatnonzero(booked)),
            np.zeros_like(prices.mean_SH),
        )
        for k in range(rounds):
            self._sum_up_energy(view, prices)
            planned_w_SH = improve_once(k)
            mean_SH += prices.mean_SH / rounds
            power.note_plan(committed_w_SH + planned_w_SH)
        if rounds:
            prices.mean_SH[:] = mean_SH
        sum_up(prices.mean_SH, prices.paid_SR)
        self._sum_up_energy(view, prices)

    def _sum_up_energy(self, view: ClusterView, prices: Prices) -> None:
        """Writes the running integrals of the forecast cost, that of power at sites with tariffs included."""
        sum_up_energy(view, prices.energy_SR)
        if self._power is not None:
            self._power.add_to(view, prices.energy_SR)
