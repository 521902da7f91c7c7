"""The policies for cluster scenarios that come registered: rules, routers, planners and trained files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from noonward.decision.scheduler import Scheduler
from noonward.forecasts.forecast import Forecast, ForecastKind
from noonward.forecasts.learned import SMALL
from noonward.schedule.cluster.bandit import Ucb1
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.booking import Booked
from noonward.schedule.cluster.capacity_prices import JOBS_PER_HOUR
from noonward.schedule.cluster.learned_price import packaged_price
from noonward.schedule.cluster.packaged_policies import FOLDER, PolicyFile, planners, priced_planners, trained_policies
from noonward.schedule.cluster.routing import CheapestNow, Router
from noonward.schedule.cluster.slot_rules import (
    CarbonGreedy,
    CheapestFeasible,
    LocalBackfill,
    LocalFcfs,
    MostFree,
    Patient,
    PriceGreedy,
    RandomMasked,
)
from noonward.schedule.cluster.weighed import MarketRouter, WeighedRouter
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED, WhatHappened
from noonward.schedule.families import Argument, Family, Role
from noonward.schedule.plan.follow import FollowPlan, Fractional, PerfectPlan
from noonward.schedule.registry import Policy, Registry, load_policy

FORECASTS: Final = {
    "perfect": "a perfect forecast",
    "persistence": "the last day's values as forecast",
    "regression": "a regression on the last days",
    "noisy": "a noisy forecast",
}
"""Forecasts that planners are registered with, and their words."""
FORESEEN: Final = ("perfect", "noisy")
"""Forecasts that are made from the true future."""
NOISE: Final = Forecast("noisy").noise
"""Error of a noisy forecast where a policy's name gives none."""
FIRST_ROUNDS: Final = 20
"""Improvements of prices that start from learned ones, before the first answer."""
_GPUS: Final = Argument(name="gpus", kind="whole number", unit="GPUs", low=1, high=4096)
_FORECAST_ARGUMENTS: Final = (
    Argument(name="forecast", kind="word", words=(*FORECASTS, "learned")),
    Argument(name="noise", kind="number", unit="share of the signal's standard deviation", default=NOISE),
    Argument(
        name="net",
        kind="number or name",
        unit="training seed of the learned forecast, mean, or small-seed0 to -seed2",
        high=2,
        default=0,
    ),
)


def add_policies(registry: Registry) -> None:
    """Adds the package's policies for cluster scenarios."""
    _add_slot_rules(registry)
    _add_bookers(registry)
    _add_routers(registry)
    _add_weighed(registry)
    _add_plans(registry)
    add_trained(registry)
    for file in planners():
        made = functools.partial(bid_price, "learned", net=file.seed, samples=4, rounds=16)
        _add_file(registry, file, made, frozenset[Role]({"learned", "planner"}), packaged=True)
    for file in priced_planners():
        made = functools.partial(
            bid_price,
            "learned",
            net=SMALL[file.seed],
            samples=3,
            rounds=8,
            memory=0.8,
            price=str(file.seed),
            expected=2000,
            jobs_per_hour=16.0,
        )
        _add_file(registry, file, made, frozenset[Role]({"learned", "planner"}), packaged=True)


def add_trained(registry: Registry, folder: Path = FOLDER) -> None:
    """Adds the trained policies of a folder, each by its file's name.

    Args:
        registry: Where to.
        folder: Folder; by default the package's.

    Raises:
        DataError: A file is damaged or of another format.
        ValueError: A name is taken.
    """
    for file in trained_policies(folder):
        roles: frozenset[Role] = frozenset({"learned"})
        _add_file(registry, file, functools.partial(load_policy, file.path), roles, packaged=folder == FOLDER)


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


def _add_slot_rules(registry: Registry) -> None:
    _add(registry, "local-fcfs", LocalFcfs, "rule", "published")
    _add(registry, "local-backfill", LocalBackfill, "rule", "control")
    _add(registry, "price-greedy", PriceGreedy, "rule", "published")
    _add(registry, "carbon-greedy", CarbonGreedy, "rule", "published")
    _add(registry, "random", RandomMasked, "control")
    _add(registry, "most-free", MostFree, "rule", "control")
    _add(registry, "cheapest-feasible", CheapestFeasible, "rule", "control")
    _add(registry, "patient", Patient, "rule", "control")
    _add(registry, WHAT_HAPPENED, WhatHappened, "recorded")


def booked(forecast: ForecastKind, *, noise: float = NOISE, net: int | str = 0) -> Scheduler:
    """Returns a booker under a forecast."""
    return Booked(Forecast(forecast, noise=noise, net=net))


def bid_price(
    forecast: ForecastKind,
    *,
    noise: float = NOISE,
    net: int | str = 0,
    samples: int = 2,
    rounds: int = 8,
    memory: float = 1.0,
    price: str = "none",
    expected: int = 0,
    jobs_per_hour: float = JOBS_PER_HOUR,
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
    )
    return made() if price == "none" else made(first_rounds=FIRST_ROUNDS, learned_price=packaged_price(int(price)))


def _planner_roles(forecast: str, **_: object) -> frozenset[Role]:
    return frozenset({"planner", "clairvoyant"} if forecast in FORESEEN else {"planner"})


def _check_forecast(forecast: str, noise: float, net: int | str, **_: object) -> None:
    """Raises ValueError for the argument of another forecast: it would change nothing."""
    if forecast != "noisy" and noise != NOISE:
        raise ValueError(f"noise is given, but the forecast is {forecast}; noise goes with forecast=noisy")
    if forecast != "learned" and net != 0:
        raise ValueError(f"net is given, but the forecast is {forecast}; net goes with forecast=learned")


def _add_bookers(registry: Registry) -> None:
    words = {**FORECASTS, "learned": "a forecast by a trained net"}
    registry.add_family(
        Family(
            packaged=True,
            name="booked",
            arguments=_FORECAST_ARGUMENTS,
            make=booked,
            describe=lambda forecast, **_: f"Best (site, start) booked at arrival under {words[forecast]}.",
            roles=_planner_roles,
            check=_check_forecast,
        )
    )
    registry.add_family(
        Family(
            packaged=True,
            name="bid-price",
            arguments=(
                *_FORECAST_ARGUMENTS,
                Argument(name="samples", kind="whole number", unit="draws of the jobs to come", low=1, default=2),
                Argument(name="rounds", kind="whole number", unit="improvements of the prices an hour", default=8),
                Argument(name="memory", kind="number", unit="of slopes, an hour", high=1, above=True, default=1.0),
                Argument(name="price", kind="word", words=("none", "0", "1", "2"), default="none"),
                Argument(name="expected", kind="whole number", unit="weighted jobs to come, a week", default=0),
                Argument(
                    name="jobs_per_hour",
                    kind="number",
                    unit="jobs to come in an improvement",
                    above=True,
                    default=JOBS_PER_HOUR,
                ),
            ),
            make=bid_price,
            describe=lambda forecast, price, **_: (
                f"Booked and rebooked hourly where value exceeds the price of capacity, under {words[forecast]}"
                f"{'' if price == 'none' else '; prices start from learned ones'}."
            ),
            roles=_planner_roles,
            check=_check_forecast,
        )
    )
    for forecast in FORECASTS:
        for family in ("booked", "bid-price"):
            registry.add_member(f"{family}-{forecast}", family, {"forecast": forecast})


def _add_routers(registry: Registry) -> None:
    def clocked(clock: float) -> str:
        at = "at the maximum clock" if clock == 1.0 else f"clock {clock:g}"
        return f"Default policy: uniform site, all useful GPUs, {at}."

    def family(name: str, argument: Argument, make: Callable[..., Scheduler], say: Callable[..., str]) -> None:
        roles: frozenset[Role] = frozenset({"rule", "published" if name == "dp" else "control"})
        registry.add_family(
            Family(packaged=True, name=name, arguments=(argument,), make=make, describe=say, roles=roles)
        )

    share = Argument(name="clock", kind="number", unit="share of the maximum clock", high=1, above=True, default=0.6)
    family("dp", share, functools.partial(Router, "uniform"), clocked)
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
    registry.add_family(
        Family(
            packaged=True,
            name="jointnf-slo",
            arguments=(Argument(name="target_s", kind="number", unit="s", above=True),),
            make=lambda target_s: Router("jointnf", target_s=float(target_s)),
            describe=lambda target_s: (
                f"Uniform site; gang and clock of least energy per unit that run within {target_s:g} s of the arrival, "
                "else the fastest."
            ),
            roles=frozenset({"rule", "control"}),
        )
    )
    for target_s in (900, 1800, 3600, 7200):
        registry.add_member(f"jointnf-slo-{target_s}", "jointnf-slo", {"target_s": target_s})
    gangs: tuple[tuple[Any, str], ...] = (
        ("most-free", "Site with the most free GPUs"),
        ("greedy-energy", "Least extra energy among sites with a free GPU"),
    )
    for name, words in gangs:

        def gang(gpus: int, words: str = words) -> str:
            return f"{words}, up to {gpus} GPU{'s' * (gpus > 1)}, oracle clock."

        family(name, _GPUS, functools.partial(Router, name), gang)
        for gpus in range(1, 9):
            registry.add_member(f"{name}-{gpus}", name, {"gpus": gpus})
    registry.add_family(
        Family(
            packaged=True,
            name="greedy-spare",
            arguments=(Argument(name="spare", kind="whole number", unit="GPUs", low=1, high=4096),),
            make=lambda spare: Router("greedy-energy", gpus=1, spare=int(spare)),
            describe=lambda spare: (
                f"Least extra energy on one GPU, oracle clock, among sites that keep {spare} more free while any does."
            ),
            roles=frozenset({"rule", "control"}),
        )
    )
    registry.add_member("greedy-spare-1", "greedy-spare", {"spare": 1})


def _add_weighed(registry: Registry) -> None:
    controls: frozenset[Role] = frozenset({"rule", "control"})
    registry.add_family(
        Family(
            packaged=True,
            name="greedy-tradeoff",
            arguments=(Argument(name="watts", kind="number", unit="J per second in system"),),
            make=lambda watts: WeighedRouter(second=float(watts)),
            describe=lambda watts: (
                f"Site, gang and clock of least extra energy plus {watts:g} J per second in system, among those free."
            ),
            roles=controls,
        )
    )
    for watts in (10, 30, 100, 200, 300, 500, 1000):
        registry.add_member(f"greedy-tradeoff-{watts}", "greedy-tradeoff", {"watts": watts})
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
    registry.add_family(
        Family(
            packaged=True,
            name="sla-energy",
            arguments=(Argument(name="target_s", kind="number", unit="s", above=True),),
            make=lambda target_s: WeighedRouter(target_s=float(target_s)),
            describe=lambda target_s: (
                f"Least extra energy that keeps the time in system within {target_s:g} s, else the fastest, among "
                "those free."
            ),
            roles=controls,
        )
    )
    for target_s in (900, 1200, 1800, 2700, 3600, 7200):
        registry.add_member(f"sla-energy-{target_s}", "sla-energy", {"target_s": target_s})
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


def day_plan(curves: Any, replan: str, *, promise: float, beta: float, eps: float, samples: int) -> Scheduler:
    """Returns a follower of day-ahead plans."""
    return FollowPlan(curves, hourly=replan == "hourly", promise=promise, beta=beta, eps=eps, samples=samples)


def _plan_words(curves: str, replan: str, **_: object) -> str:
    if replan == "hourly":
        return f"Plan from sampled days, made again every hour and followed; its curves are {_curve_words(curves)}."
    return f"Day-ahead plan from sampled days, followed; its curves are {_curve_words(curves)}."


def _curve_words(curves: str) -> str:
    return "limits" if curves == "hard" else "advisory"


def _add_plans(registry: Registry) -> None:
    _add(registry, "cheapest-now", CheapestNow, "rule", "published")
    at_once = "Every job at once, evenly over the sites of its range."
    _add(registry, "at-once", Fractional, "planner", "control", summary=at_once)
    evenly = "Evenly over the sites and hours each job may run in."
    _add(registry, "spread-evenly", functools.partial(Fractional, spread=True), "planner", "control", summary=evenly)
    registry.add_family(
        Family(
            packaged=True,
            name="plan",
            arguments=(
                Argument(name="curves", kind="word", words=("advisory", "hard"), default="advisory"),
                Argument(name="replan", kind="word", words=("daily", "hourly"), default="daily"),
                Argument(name="promise", kind="number", unit="share of days within the curve", high=1, default=0.8),
                Argument(name="beta", kind="number", unit="tail of the guarantee", high=1, above=True, default=0.2),
                Argument(name="eps", kind="number", unit="radius, share of the mean site's GPUs", default=0.0),
                Argument(name="samples", kind="whole number", unit="sampled days", low=1, default=60),
            ),
            make=day_plan,
            describe=_plan_words,
            roles=frozenset({"planner", "published"}),
        )
    )
    registry.add_member("plan-advisory", "plan")
    registry.add_member("plan-hard", "plan", {"curves": "hard"})
    registry.add_member("plan-receding", "plan", {"replan": "hourly"})
    _add(registry, "plan-perfect", PerfectPlan, "planner", "clairvoyant")
