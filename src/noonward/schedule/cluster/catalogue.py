"""The policies for cluster scenarios that come registered: rules, routers, planners and trained files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast, ForecastKind, NetName, Noise
from noonward.forecasts.learned import SMALL
from noonward.schedule.cluster.adaptive import AdaptiveRouter
from noonward.schedule.cluster.bandit import Ucb1
from noonward.schedule.cluster.bid_price import (
    EXACT_SITES,
    RESERVE,
    BidPrice,
    ExactSites,
    Expected,
    JobsPerHour,
    Memory,
    Reserve,
    Rounds,
    Samples,
)
from noonward.schedule.cluster.booking import Booked
from noonward.schedule.cluster.capacity_prices import JOBS_PER_HOUR
from noonward.schedule.cluster.carbon_scaler import CarbonScaler
from noonward.schedule.cluster.event_orders import Order
from noonward.schedule.cluster.event_response import LEVERS, EventResponse, Lever
from noonward.schedule.cluster.learned_price import packaged_price
from noonward.schedule.cluster.packaged_policies import FOLDER, planners, priced_planners, trained_policies
from noonward.schedule.cluster.peak_shave import Headroom, PeakShave
from noonward.schedule.cluster.power_priced import PowerPriced
from noonward.schedule.cluster.preempting import Preempt, Victims
from noonward.schedule.cluster.routing import CheapestNow, Clock, Gang, LimitS, Router, Spare
from noonward.schedule.cluster.slot_rules import (
    CarbonGreedy,
    CheapestFeasible,
    CheapestUnclaimed,
    LocalBackfill,
    LocalFcfs,
    MostFree,
    Patient,
    PriceGreedy,
    RandomMasked,
)
from noonward.schedule.cluster.suspending import CapThreshold, Kept, Measure, Power, Quantile, SuspendThreshold
from noonward.schedule.cluster.wait_awhile import WaitAwhile
from noonward.schedule.cluster.weighed import MarketRouter, SecondW, WeighedRouter
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED, WhatHappened
from noonward.schedule.families import Family, Role
from noonward.schedule.plan.follow import Days, FollowPlan, Fractional, PerfectPlan, Promise, Radius, Tail
from noonward.schedule.policy_files import load_policy
from noonward.schedule.registry import Policy, Registry
from noonward.schedule.trained_files import PolicyFile, seed_name

FORECASTS: Final = {
    "perfect": "a perfect forecast",
    "persistence": "the prices of the day before as forecast",
    "regression": "a forecast from the last days (regression)",
    "noisy": "a noisy forecast",
}
"""Forecasts that planners are registered with, and their words."""
LEARNED: Final = tuple(kind for kind in get_args(ForecastKind) if Forecast(kind).by_net)
"""Forecasts by a net."""
FORESEEN: Final = tuple(kind for kind in get_args(ForecastKind) if Forecast(kind).foresight)
"""Forecasts that are made from the true future."""
NOISE: Final = Forecast("noisy").noise
"""Error of a noisy forecast where a policy's name gives none."""
Find = Callable[[str, str], Policy]
BaseName = Annotated[str, Field(description="policy of protocol each-slot, by its name, module:Class or file")]
Followed = Literal["hold", "hold-cap", "hold-suspend", "all", "all-move"]
FOLLOWED: Final[dict[Followed, tuple[Lever, ...]]] = {
    "hold": ("hold",), "hold-cap": ("hold", "cap"), "hold-suspend": ("hold", "suspend"), "all": LEVERS,
    "all-move": (*LEVERS, "move"),
}  # fmt: skip
"""Levers of a policy that follows events, by the word that its name gives."""
LEVER_WORDS: Final = {
    "hold": "starts wait",
    "hold-cap": "starts wait, running jobs are capped",
    "hold-suspend": "starts wait, running jobs are suspended",
    "all": "starts wait, running jobs are capped or suspended",
    "all-move": "starts wait or go elsewhere, running jobs are capped, suspended or moved",
}
ORDER_WORDS: Final = {
    "least-loss": "those first that lose least throughput per watt",
    "dvfs-fair": "all by the same share of what they can shed (Emerald)",
    "dvfs-pause-fair": "some in turn, and the others by the same share of what they can shed (Emerald)",
    "pause-greedy": "those first that have most slack (Emerald)",
    "pause-resize-fair": "one at most, and the others resized by the same share of their GPUs (Emerald)",
}
FIRST_ROUNDS: Final = 20
"""Improvements of prices that start from learned ones, before the first answer."""
WORDS: Final = {
    **FORECASTS,
    "learned": "a forecast by a trained net",
    "published": "day-ahead prices as published, the last day's values beyond",
    "published+regression": "day-ahead prices as published, a regression beyond",
    "published+learned": "day-ahead prices as published, a forecast by a trained net beyond",
}
"""Forecasts that a planner's name may give, and their words."""
PUBLISHED: Final[ForecastKind] = "published+regression"
"""Forecast of the planners whose short names end in ``-published``: it serves any zone."""


def add_policies(registry: Registry, *nets: Path, find: Find | None = None) -> None:
    """Adds the package's policies for cluster scenarios, and trained ones of further folders.

    Args:
        registry: Where to.
        nets: Folders of trained policies.
        find: Finds the policy that another one rests on, by its name and kind; None: this registry does.
    """
    _add_slot_rules(registry)
    _add_bookers(registry)
    _add_bending(registry)
    _add_event_response(registry, registry.find if find is None else find)
    _add_peak_shave(registry, registry.find if find is None else find)
    _add_power_priced(registry, registry.find if find is None else find)
    _add_preempting(registry)
    _add_routers(registry)
    _add_weighed(registry)
    _add_plans(registry)
    add_trained(registry, FOLDER, *nets, packaged=True)
    learned = frozenset[Role]({"learned", "planner"})
    for file in planners():
        made = functools.partial(bid_price, "learned", net=file.seed, samples=4, rounds=16)
        _add_file(registry, file, made, learned, packaged=True)
        registry.add_former_name(seed_name("masac-plus", file.seed), file.name)
    for file in priced_planners():
        made = functools.partial(bid_price, "learned", **_priced(file.seed))
        _add_file(registry, file, made, learned, packaged=True)


def _priced(seed: int) -> dict[str, Any]:
    """Returns the settings of bid prices that start from learned ones, by training seed."""
    return {
        "net": SMALL[seed],
        "samples": 3,
        "rounds": 8,
        "memory": 0.8,
        "price": str(seed),
        "expected": 2000,
        "jobs_per_hour": 16.0,
    }


def add_trained(registry: Registry, *folders: Path, packaged: bool = False) -> None:
    """Adds the trained policies of some folders, each by its file's name.

    Args:
        registry: Where to.
        folders: Folders.
        packaged: As ``Policy.packaged``.

    Raises:
        DataError: A file is damaged or of another format.
        ValueError: A name is taken.
    """
    for file in trained_policies(*folders):
        make = functools.partial(load_policy, file.path)
        _add_file(registry, file, make, frozenset[Role]({"learned"}), packaged=packaged)


def _add_file(
    registry: Registry, file: PolicyFile, make: Callable[[], Scheduler], roles: frozenset[Role], *, packaged: bool
) -> None:
    registry.add(
        Policy(
            name=file.name,
            make=make,
            summary=file.summary,
            family=file.family,
            roles=roles,
            trained=file,
            packaged=packaged,
        )
    )


def _add(registry: Registry, name: str, make: Callable[[], Scheduler], *roles: Role, summary: str = "") -> None:
    said = summary or (make.__doc__ or "").strip().split("\n")[0]
    policy = Policy(name=name, make=make, summary=said, family=name, roles=frozenset(roles), packaged=True)
    registry.add(policy)


def _add_family(
    registry: Registry, name: str, make: Callable[..., Scheduler], describe: Callable[..., str], *roles: Role
) -> None:
    registry.add_family(
        Family(name=name, make=make, describe=describe, roles=frozenset(roles or ("rule", "control")), packaged=True)
    )


def _add_slot_rules(registry: Registry) -> None:
    at_home = "Runs each job at its home site, strictly first come, first served (S0 of the MASAC paper)."
    away = "Runs a job at its home site if there is room, otherwise at the {} site with room ({} of the MASAC paper)."
    _add(registry, "local-fcfs", LocalFcfs, "rule", "published", summary=at_home)
    _add(registry, "local-backfill", LocalBackfill, "rule", "control")
    _add(registry, "price-greedy", PriceGreedy, "rule", "published", summary=away.format("cheapest", "S1"))
    _add(registry, "carbon-greedy", CarbonGreedy, "rule", "published", summary=away.format("cleanest", "S2"))
    _add(registry, "random", RandomMasked, "control")
    _add(registry, "most-free", MostFree, "rule", "control")
    _add(registry, "cheapest-feasible", CheapestFeasible, "rule", "control")
    _add(registry, "cheapest-unclaimed", CheapestUnclaimed, "rule", "control")
    _add(registry, "patient", Patient, "rule", "control")
    _add(registry, WHAT_HAPPENED, WhatHappened, "recorded")


def booked(forecast: ForecastKind, noise: Noise = NOISE, net: NetName = 0) -> Scheduler:
    """Returns a booker under a forecast."""
    return Booked(Forecast(forecast, noise=noise, net=net))


def bid_price(
    forecast: ForecastKind,
    noise: Noise = NOISE,
    net: NetName = 0,
    samples: Samples = 2,
    rounds: Rounds = 8,
    memory: Memory = 1.0,
    price: Literal["none", "0", "1", "2"] = "none",
    expected: Expected = 0,
    jobs_per_hour: JobsPerHour = JOBS_PER_HOUR,
    exact_sites: ExactSites = EXACT_SITES,
    suspends: Literal["no", "yes", "move"] = "no",
    caps: Literal["no", "yes"] = "no",
    peaks: Literal["no", "yes"] = "yes",
    reserve: Reserve = RESERVE,
) -> Scheduler:
    """Returns bid prices under a forecast; with a learned price, fewer rounds come before the first answer."""
    made = functools.partial(
        BidPrice,
        Forecast(forecast, noise=noise, net=net),
        samples=samples,
        rounds=rounds,
        memory=memory,
        expected=expected,
        jobs_per_hour=jobs_per_hour,
        exact_sites=exact_sites,
        suspends=suspends != "no",
        moves=suspends == "move",
        caps=caps == "yes",
        peaks=peaks == "yes",
        reserve=reserve,
    )
    return made() if price == "none" else made(first_rounds=FIRST_ROUNDS, learned_price=packaged_price(int(price)))


def _planner_roles(forecast: str, **_: object) -> frozenset[Role]:
    return frozenset({"planner", "clairvoyant"} if forecast in FORESEEN else {"planner"})


def _check_forecast(forecast: str, noise: float, net: int | str, **_: object) -> None:
    """Raises ValueError for the argument of another forecast: it would change nothing."""
    if forecast != "noisy" and noise != NOISE:
        raise ValueError(f"noise is given, but the forecast is {forecast}; noise goes with forecast=noisy")
    if forecast not in LEARNED and net != 0:
        raise ValueError(f"net is given, but the forecast is {forecast}; net goes with forecast={' or '.join(LEARNED)}")


def _add_bookers(registry: Registry) -> None:
    def bid_words(forecast: str, price: str, suspends: str, caps: str, peaks: str, **_: object) -> str:
        start = "" if price == "none" else "; the prices of GPUs start from learned ones"
        stops = {
            "no": "",
            "yes": "; suspends running jobs where their class allows it",
            "move": "; suspends running jobs where their class allows it, and resumes them at the cheapest site",
        }[suspends]
        if caps == "yes":
            stops += "; caps the power of jobs where their class allows it and GPUs are not scarce"
        blind = "; of tariffs it sees the price of energy alone" if peaks == "no" else ""
        return (
            f"Plans every hour which job runs where and when, by a price of GPUs and {WORDS[forecast]}{start}{stops}"
            f"{blind}."
        )

    makers: tuple[tuple[str, Callable[..., Scheduler], Callable[..., str]], ...] = (
        (
            "booked",
            booked,
            lambda forecast, **_: f"Reserves the best site and start of each job at its arrival, by {WORDS[forecast]}.",
        ),
        ("bid-price", bid_price, bid_words),
    )
    for name, make, describe in makers:
        registry.add_family(
            Family(name=name, make=make, describe=describe, roles=_planner_roles, check=_check_forecast, packaged=True)
        )
    for forecast in FORECASTS:
        for name, _, _ in makers:
            registry.add_member(f"{name}-{forecast}", name, {"forecast": forecast})
    for name, _, _ in makers:
        registry.add_member(f"{name}-published", name, {"forecast": PUBLISHED})
    registry.add_member("bid-price-published-learned", "bid-price", {"forecast": "published+learned", **_priced(0)})


def suspend_threshold(
    forecast: ForecastKind = "persistence",
    noise: Noise = NOISE,
    net: NetName = 0,
    measure: Measure = "cost",
    quantile: Quantile = 0.3,
    kept: Kept = 0.3,
    resizes: bool = False,
) -> Scheduler:
    """Returns a rule that suspends jobs in expensive hours, under a forecast of the next day."""
    by = Forecast(forecast, noise=noise, net=net)
    return SuspendThreshold(by, measure=measure, quantile=quantile, kept=kept, resizes=resizes)


def cap_threshold(
    forecast: ForecastKind = "persistence",
    noise: Noise = NOISE,
    net: NetName = 0,
    measure: Measure = "cost",
    quantile: Quantile = 0.3,
    kept: Kept = 0.3,
    power: Power = 0.6,
) -> Scheduler:
    """Returns a rule that caps the power of jobs in expensive hours, under a forecast of the next day."""
    by = Forecast(forecast, noise=noise, net=net)
    return CapThreshold(by, measure=measure, quantile=quantile, kept=kept, power=power)


def preempt(victims: Victims = "least-lost") -> Scheduler:
    """Returns a rule that stops running jobs for jobs that wait and may displace them."""
    return Preempt(victims)


def wait_awhile(
    forecast: ForecastKind = "perfect", noise: Noise = NOISE, net: NetName = 0, measure: Measure = "cost"
) -> Scheduler:
    """Returns a rule that runs each job in its hours of least forecast cost."""
    return WaitAwhile(Forecast(forecast, noise=noise, net=net), measure=measure)


def carbon_scaler(
    forecast: ForecastKind = "regression", noise: Noise = NOISE, net: NetName = 0, measure: Measure = "carbon"
) -> Scheduler:
    """Returns a rule that gives each job the gangs by the hour that do its work at the least forecast cost."""
    return CarbonScaler(Forecast(forecast, noise=noise, net=net), measure=measure)


def _add_on_top(registry: Registry, name: str, make: Callable[..., Scheduler], describe: Callable[..., str]) -> None:
    """Adds policies that change what another one sees or answers: their first argument is its name."""

    def check(base: str, **_: object) -> None:
        try:
            make(base)
        except ScenarioError as error:
            raise ValueError(f"base={base}: {error}") from None

    def roles(**_: object) -> frozenset[Role]:
        return frozenset({"rule"})

    registry.add_family(Family(name=name, make=make, describe=describe, roles=roles, check=check, packaged=True))


def _add_event_response(registry: Registry, find: Find) -> None:
    """Adds what follows grid events on top of another policy."""

    def make(base: BaseName = "cheapest-feasible", levers: Followed = "all", order: Order = "least-loss") -> Scheduler:
        return EventResponse(find(base, "cluster").make(), FOLLOWED[levers], order)

    def describe(base: str, levers: str, order: str) -> str:
        return f"Decides as {base} and follows grid events: {LEVER_WORDS[levers]}; {ORDER_WORDS[order]}."

    _add_on_top(registry, "event-response", make, describe)


def _add_peak_shave(registry: Registry, find: Find) -> None:
    """Adds what keeps peaks low on top of another policy."""

    def make(base: BaseName = "local-fcfs", headroom: Headroom = 0.15, kept: Kept = 0.3) -> Scheduler:
        return PeakShave(find(base, "cluster").make(), headroom, kept)

    def describe(base: str, headroom: float, kept: float) -> str:
        return (
            f"Decides as {base}; where demand is charged, starts wait that would lift a site above its forecast mean "
            f"power and {headroom:.0%}, while more than {kept:.0%} of a job's slack is left."
        )

    _add_on_top(registry, "peak-shave", make, describe)


def _add_power_priced(registry: Registry, find: Find) -> None:
    """Adds what shows another policy the price of power."""

    def make(base: BaseName = "cheapest-feasible") -> Scheduler:
        return PowerPriced(find(base, "cluster").make())

    def describe(base: str) -> str:
        return f"Decides as {base}, which is shown what the next kWh costs at sites with tariffs."

    _add_on_top(registry, "power-priced", make, describe)


def _bending_roles(forecast: str, **_: object) -> frozenset[Role]:
    return frozenset({"rule", "control", "clairvoyant"} if forecast in FORESEEN else {"rule", "control"})


def _add_bending(registry: Registry) -> None:
    """Adds the rules that suspend or cap running jobs."""
    measured = {"cost": "energy and carbon cost", "price": "price", "carbon": "carbon intensity"}

    def suspends(forecast: str, measure: str, quantile: float, **_: object) -> str:
        return (
            f"Runs in the {quantile:.0%} of the next 24 hours of least {measured[measure]} under {WORDS[forecast]}, "
            "suspended in the others, while slack is left."
        )

    def caps(forecast: str, measure: str, quantile: float, power: float, **_: object) -> str:
        return (
            f"Runs at full power in the {quantile:.0%} of the next 24 hours of least {measured[measure]} under "
            f"{WORDS[forecast]}, capped to {power:.0%} of it or more in the others, while slack is left."
        )

    def waits(forecast: str, measure: str, **_: object) -> str:
        future = ", so it knows the future" if forecast in FORESEEN else ""
        return (
            f"Runs each job in the hours of least {measured[measure]} before it must end, suspended in the others, "
            f"under {WORDS[forecast]}{future}."
        )

    def scales(forecast: str, measure: str, **_: object) -> str:
        future = ", so it knows the future" if forecast in FORESEEN else ""
        return (
            f"Gives each job the gangs by the hour that do most work per {measured[measure]} before it must end, "
            f"under {WORDS[forecast]}{future} (CarbonScaler)."
        )

    for name, make, describe in (
        ("carbon-scaler", carbon_scaler, scales),
        ("suspend-threshold", suspend_threshold, suspends),
        ("cap-threshold", cap_threshold, caps),
        ("wait-awhile", wait_awhile, waits),
    ):
        registry.add_family(
            Family(
                name=name,
                make=make,
                describe=describe,
                roles=_bending_roles,
                check=_check_forecast,
                packaged=True,
            )
        )
        registry.add_member(f"{name}-perfect", name, {"forecast": "perfect"})


def _add_preempting(registry: Registry) -> None:
    """Adds the rule that stops running jobs for others."""
    first = {"least-lost": "whose stop costs least", "youngest": "that began last, as Slurm does"}

    def stops(victims: str, **_: object) -> str:
        return f"Cheapest site with room now; jobs that may displace others stop those first {first[victims]}."

    _add_family(registry, "preempt", preempt, stops)
    registry.add_member("preempt-youngest", "preempt", {"victims": "youngest"})


def default_policy(clock: Clock = 0.6) -> Scheduler:
    """Returns the default policy of CHSAC-AF's published code."""
    return Router("uniform", clock=clock)


def jointnf_slo(target_s: LimitS) -> Scheduler:
    """Returns ``jointnf`` within a limit."""
    return Router("jointnf", target_s=target_s)


def most_free(gpus: Gang) -> Scheduler:
    """Returns a router to the most free GPUs."""
    return Router("most-free", gpus=gpus)


def greedy_energy(gpus: Gang) -> Scheduler:
    """Returns a router by the least extra energy."""
    return Router("greedy-energy", gpus=gpus)


def greedy_spare(spare: Spare) -> Scheduler:
    """Returns a router by the least extra energy on one GPU that keeps GPUs free."""
    return Router("greedy-energy", gpus=1, spare=spare)


def _add_routers(registry: Registry) -> None:
    def clocked(clock: float) -> str:
        at = "at the maximum clock" if clock == 1.0 else f"clock {clock:g}"
        return f"Default policy: uniform site, all useful GPUs, {at}."

    def gang(words: str, gpus: int) -> str:
        return f"{words}, up to {gpus} GPU{'s' * (gpus > 1)}, oracle clock."

    _add_family(registry, "dp", default_policy, clocked, "rule", "published")
    registry.add_member("dp", "dp")
    registry.add_member("dp-max-clock", "dp", {"clock": 1.0})
    _add(registry, "ucb1", Ucb1, "rule", "published")
    single: tuple[tuple[Any, str, Any], ...] = (
        ("jointnf", "Uniform site; gang and clock of least energy per unit.", "published"),
        ("uniform", "Uniform site, all useful GPUs, oracle clock.", "control"),
        ("random-free", "Random site with a free GPU, random gang, oracle clock.", "control"),
    )
    for name, summary, role in single:
        _add(registry, name, functools.partial(Router, name), "rule", role, summary=summary)
    _add_family(
        registry,
        "jointnf-slo",
        jointnf_slo,
        lambda target_s: (
            f"Uniform site; gang and clock of least energy per unit that run within {target_s:g} s of the arrival, "
            "else the fastest."
        ),
    )
    _add_family(registry, "most-free", most_free, functools.partial(gang, "Site with the most free GPUs"))
    words = "Least extra energy among sites with a free GPU"
    _add_family(registry, "greedy-energy", greedy_energy, functools.partial(gang, words))
    _add_family(
        registry,
        "greedy-spare",
        greedy_spare,
        lambda spare: (
            f"Least extra energy on one GPU, oracle clock, among sites that keep {spare} more free while any does."
        ),
    )
    registry.add_member("greedy-spare-1", "greedy-spare", {"spare": 1})


def greedy_tradeoff(watts: SecondW) -> Scheduler:
    """Returns a router by the least extra energy and time in system."""
    return WeighedRouter(second=watts)


def adaptive_tradeoff(limit_s: LimitS) -> Scheduler:
    """Returns a router whose price of time keeps a limit of the mean latency."""
    return AdaptiveRouter(limit_s=limit_s)


def sla_energy(target_s: LimitS) -> Scheduler:
    """Returns a router by the least extra energy within a limit."""
    return WeighedRouter(target_s=target_s)


def _add_weighed(registry: Registry) -> None:
    _add_family(
        registry,
        "greedy-tradeoff",
        greedy_tradeoff,
        lambda watts: (
            f"Site, gang and clock of least extra energy plus {watts:g} J per second in system, among those free."
        ),
    )
    _add_family(
        registry,
        "adaptive-tradeoff",
        adaptive_tradeoff,
        lambda limit_s: (
            f"The same at a price of time that follows the excess over a mean time in system of {limit_s:g} s."
        ),
    )
    _add(
        registry,
        "greedy-preferences",
        functools.partial(WeighedRouter, second=30.0, use_stated_weights=True),
        "rule",
        "control",
        summary="Site, gang and clock of least extra energy plus time in system, a second weighed by the job's class "
        "(latency_weight_w; 30 J where none is stated).",
    )
    _add(
        registry,
        "sla-energy",
        functools.partial(WeighedRouter, target_s=1800.0, use_stated_target=True),
        "rule",
        "control",
        summary="Least extra energy within the latency target of the job's class (1800 s where none is stated), else "
        "the fastest.",
    )
    _add_family(
        registry,
        "sla-energy",
        sla_energy,
        lambda target_s: (
            f"Least extra energy that keeps the time in system within {target_s:g} s, else the fastest, among those "
            "free."
        ),
    )
    markets: tuple[tuple[str, dict[str, Any], str], ...] = (
        (
            "greedy-price",
            {"usd": 1.0, "second": 3e-6},
            "Site, gang and clock of least energy cost this hour plus 3e-6 USD per second in system.",
        ),
        (
            "greedy-carbon",
            {"kg": 1.0, "second": 1e-5},
            "Site, gang and clock of least emissions this hour plus 1e-5 kg per second in system.",
        ),
        (
            "greedy-mixed",
            {"usd": 1.0, "kg": 0.1, "second": 4e-6},
            "Least energy cost and emissions at 100 USD/t this hour plus 4e-6 USD per second in system.",
        ),
    )
    for name, weights, summary in markets:
        _add(registry, name, functools.partial(MarketRouter, **weights), "rule", "control", summary=summary)


def day_plan(
    curves: Literal["advisory", "hard"] = "advisory",
    replan: Literal["daily", "hourly"] = "daily",
    promise: Promise = 0.8,
    beta: Tail = 0.2,
    eps: Radius = 0.0,
    samples: Days = 60,
) -> Scheduler:
    """Returns a follower of day-ahead plans."""
    return FollowPlan(curves, hourly=replan == "hourly", promise=promise, beta=beta, eps=eps, samples=samples)


def _plan_words(curves: str, replan: str, **_: object) -> str:
    hourly = ", made again every hour and followed" if replan == "hourly" else ", followed"
    what = "Plan" if replan == "hourly" else "Day-ahead plan"
    return f"{what} from sampled days{hourly}; its curves are {'limits' if curves == 'hard' else 'advisory'}."


def _add_plans(registry: Registry) -> None:
    _add(registry, "cheapest-now", CheapestNow, "rule", "published")
    at_once = "Every job at once, evenly over the sites of its range."
    _add(registry, "at-once", Fractional, "planner", "control", summary=at_once)
    evenly = "Evenly over the sites and hours each job may run in."
    _add(registry, "spread-evenly", functools.partial(Fractional, spread=True), "planner", "control", summary=evenly)
    _add_family(registry, "plan", day_plan, _plan_words, "planner", "published")
    registry.add_member("plan-advisory", "plan")
    registry.add_member("plan-hard", "plan", {"curves": "hard"})
    registry.add_member("plan-receding", "plan", {"replan": "hourly"})
    _add(registry, "plan-perfect", PerfectPlan, "planner", "clairvoyant")
