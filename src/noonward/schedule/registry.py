"""The registry of schedulers by name: the package's own, and what users add."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.environment import Protocol
from noonward.schedule.cluster.advised_policy import AdvisedPolicy
from noonward.schedule.cluster.bandit import Ucb1
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.booking import Booked
from noonward.schedule.cluster.packaged_policies import FOLDER, PolicyFile, planners, trained_policies
from noonward.schedule.cluster.routing import CheapestNow, Router
from noonward.schedule.cluster.slot_rules import (
    CarbonGreedy,
    CheapestFeasible,
    LocalBackfill,
    LocalFcfs,
    MostFree,
    PriceGreedy,
    RandomMasked,
)
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_policy
from noonward.schedule.cluster.weighed import MarketRouter, WeighedRouter
from noonward.schedule.plan.follow import FollowPlan, Fractional, PerfectPlan


@dataclass(frozen=True)
class Policy:
    """A registered scheduler.

    Attributes:
        name: Name on the command line and in reports.
        make: Makes a fresh scheduler.
        summary: What it does, in a line.
        trained: Packaged file it runs, or None for one that is not trained.
    """

    name: str
    make: Callable[[], Scheduler]
    summary: str
    trained: PolicyFile | None = None


_POLICIES: dict[str, Policy] = {}


def register(name: str, make: Callable[[], Scheduler], summary: str = "", *, trained: PolicyFile | None = None) -> None:
    """Adds a scheduler to the registry.

    Args:
        name: Its name; must be new.
        make: A class or function that returns a fresh scheduler.
        summary: What it does, in a line; by default the first line of the docstring of ``make``.
        trained: Packaged file it runs, if it does.

    Raises:
        ValueError: The name is taken.
    """
    if name in _POLICIES:
        raise ValueError(f"a policy named {name!r} is registered already; choose another name")
    _POLICIES[name] = Policy(name, make, summary or (make.__doc__ or "").strip().split("\n")[0], trained)


def register_trained(folder: Path = FOLDER) -> None:
    """Adds the trained policies of a folder, each by its file's name.

    Args:
        folder: Folder; by default the package's.

    Raises:
        DataError: A file is damaged or of another format.
        ValueError: A name is taken.
    """
    for file in trained_policies(folder):
        register(file.name, partial(load_policy, file.path), file.summary, trained=file)


def policies(protocol: Protocol | None = None, *, trained: bool | None = None) -> list[Policy]:
    """Returns the registered schedulers, in the order they were registered.

    Args:
        protocol: Only those that answer it.
        trained: Only trained ones (True: they run at the sites they were trained for) or only others (False).
    """
    found = [p for p in _POLICIES.values() if trained is None or trained == (p.trained is not None)]
    return [p for p in found if protocol is None or protocol in p.make().protocols]


def make_scheduler(name: str) -> Scheduler:
    """Returns a fresh scheduler by its name, by ``module:Class`` for one of your own, or by a trained policy's file.

    Raises:
        ScenarioError: There is no such policy, module or class, or the class cannot be made without arguments.
        DataError: A file ``.npz`` holds no trained policy.

    Example:
        >>> type(make_scheduler("local-fcfs")).__name__
        'LocalFcfs'
    """
    if name in _POLICIES:
        return _POLICIES[name].make()
    if name.endswith(".npz"):
        return load_policy(Path(name))
    if ":" not in name:
        close = nearest(name, _POLICIES, list_all=False) or "'noonward policies' lists those there are"
        raise ScenarioError(f"unknown policy {name!r}; {close} (or give module:Class)")
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # whatever a user's module does when it is imported
        raise ScenarioError(
            f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}; give an importable module:Class "
            "that is made without arguments"
        ) from error
    if not isinstance(made, Scheduler):
        raise ScenarioError(f"policy {name!r} is no Scheduler; derive it from noonward.Scheduler")
    return made


def load_policy(path: str | Path) -> Scheduler:
    """Returns the scheduler of a trained policy's file, with its adviser if it has one.

    Raises:
        DataError: There is no such file, or it holds no trained policy.
        ScenarioError: Its adviser is unknown.
    """
    path = Path(path)
    adviser = read_policy(path).meta.get("adviser")
    return TrainedPolicy(path) if adviser is None else AdvisedPolicy(path, make_scheduler(adviser))


register("local-fcfs", LocalFcfs)
register("local-backfill", LocalBackfill)
register("price-greedy", PriceGreedy)
register("carbon-greedy", CarbonGreedy)
register("random", RandomMasked)
register("most-free", MostFree)
register("cheapest-feasible", CheapestFeasible)
_FORECASTS = {
    "a perfect forecast": Forecast("perfect"),
    "the last day's values as forecast": Forecast("persistence"),
    "a regression on the last days": Forecast("regression"),
    "a noisy forecast": Forecast("noisy"),
}
for _what, _forecast in _FORECASTS.items():
    register(
        f"booked-{_forecast.kind}",
        partial(Booked, _forecast),
        f"Best (site, start) booked at arrival under {_what}.",
    )
    register(
        f"bid-price-{_forecast.kind}",
        partial(BidPrice, _forecast),
        f"Booked and rebooked hourly where value exceeds the price of capacity, under {_what}.",
    )

register("dp", partial(Router, "uniform", clock=0.6), "Default policy: uniform site, all useful GPUs, clock 0.6.")
register("dp-max-clock", partial(Router, "uniform", clock=1.0), "Default policy at the maximum clock.")
register("ucb1", Ucb1)
register("jointnf", partial(Router, "jointnf"), "Uniform site; gang and clock of least energy per unit.")
register("uniform", partial(Router, "uniform"), "Uniform site, all useful GPUs, oracle clock.")
register("random-free", partial(Router, "random-free"), "Random site with a free GPU, random gang, oracle clock.")
for _gpus in range(1, 9):
    register(
        f"most-free-{_gpus}",
        partial(Router, "most-free", gpus=_gpus),
        f"Site with the most free GPUs, up to {_gpus} GPU{'s' * (_gpus > 1)}, oracle clock.",
    )
for _gpus in range(1, 9):
    register(
        f"greedy-energy-{_gpus}",
        partial(Router, "greedy-energy", gpus=_gpus),
        f"Least extra energy among sites with a free GPU, up to {_gpus} GPU{'s' * (_gpus > 1)}, oracle clock.",
    )
for _watts in (10, 30, 100, 200, 300, 500, 1000):
    register(
        f"greedy-tradeoff-{_watts}",
        partial(WeighedRouter, second=float(_watts)),
        f"Site, gang and clock of least extra energy plus {_watts} J per second in system, among those free.",
    )
register(
    "sla-energy",
    partial(WeighedRouter, target_s=1800.0, heed_stated=True),
    "Least extra energy within the latency target of the job's class (1800 s where none is stated), else the fastest.",
)
for _target in (900, 1200, 1800, 2700, 3600, 7200):
    register(
        f"sla-energy-{_target}",
        partial(WeighedRouter, target_s=float(_target)),
        f"Least extra energy that keeps the time in system within {_target} s, else the fastest, among those free.",
    )
register(
    "greedy-price",
    partial(MarketRouter, usd=1.0, second=3e-6),
    "Site, gang and clock of least energy cost this hour plus 3e-6 USD per second in system.",
)
register(
    "greedy-carbon",
    partial(MarketRouter, kg=1.0, second=1e-5),
    "Site, gang and clock of least emissions this hour plus 1e-5 kg per second in system.",
)
register(
    "greedy-mixed",
    partial(MarketRouter, usd=1.0, kg=0.1, second=4e-6),
    "Least energy cost and emissions at 100 USD/t this hour plus 4e-6 USD per second in system.",
)

register("cheapest-now", CheapestNow)
register("at-once", Fractional, "Every job at once, evenly over the sites of its range.")
register("spread-evenly", partial(Fractional, spread=True), "Evenly over the sites and hours each job may run in.")
register("plan-advisory", FollowPlan, "Day-ahead plan from sampled days, followed; its curves are advisory.")
register("plan-hard", partial(FollowPlan, "hard"), "Day-ahead plan from sampled days, followed; its curves are limits.")
register("plan-receding", partial(FollowPlan, hourly=True), "The same planned again every hour; advisory curves.")
register("plan-perfect", PerfectPlan)

register_trained()
for _file in planners():
    register(
        _file.name,
        partial(BidPrice, Forecast("learned", net=_file.seed), samples=4, rounds=16),
        _file.summary,
        trained=_file,
    )
