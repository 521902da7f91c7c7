"""The registry of schedulers by name: the package's own, and what users add."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError, nearest
from noonward.model.environment import Protocol
from noonward.model.forecast import Forecast
from noonward.schedule.bandit import Ucb1
from noonward.schedule.bid_price import BidPrice
from noonward.schedule.booking import Booked
from noonward.schedule.routing import Router
from noonward.schedule.slot_rules import (
    CarbonGreedy,
    CheapestFeasible,
    LocalBackfill,
    LocalFcfs,
    MostFree,
    PriceGreedy,
    RandomMasked,
)
from noonward.schedule.trained_policy import TrainedPolicy
from noonward.schedule.weighed import MarketRouter, WeighedRouter


@dataclass(frozen=True)
class Policy:
    """A registered scheduler.

    Attributes:
        name: Name on the command line and in reports.
        make: Makes a fresh scheduler.
        summary: What it does, in a line.
    """

    name: str
    make: Callable[[], Scheduler]
    summary: str


_POLICIES: dict[str, Policy] = {}


def register(name: str, make: Callable[[], Scheduler], summary: str = "") -> None:
    """Adds a scheduler to the registry.

    Args:
        name: Its name; must be new.
        make: A class or function that returns a fresh scheduler.
        summary: What it does, in a line; by default the first line of the docstring of ``make``.

    Raises:
        ValueError: The name is taken.
    """
    if name in _POLICIES:
        raise ValueError(f"a policy named {name!r} is registered already; choose another name")
    _POLICIES[name] = Policy(name, make, summary or (make.__doc__ or "").strip().split("\n")[0])


def policies(protocol: Protocol | None = None) -> list[Policy]:
    """Returns the registered schedulers (of one protocol), in the order they were registered."""
    return [p for p in _POLICIES.values() if protocol is None or protocol in p.make().protocols]


def make_scheduler(name: str) -> Scheduler:
    """Returns a fresh scheduler by its name, or by ``module:Class`` for one of your own.

    Raises:
        ScenarioError: There is no such policy, module or class, or the class cannot be made without arguments.

    Example:
        >>> type(make_scheduler("local-fcfs")).__name__
        'LocalFcfs'
    """
    if name in _POLICIES:
        return _POLICIES[name].make()
    if ":" not in name:
        raise ScenarioError(f"unknown policy {name!r}; {nearest(name, _POLICIES)} (or give module:Class)")
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
        f"Site with the most free GPUs, up to {_gpus} GPUs, oracle clock.",
    )
for _gpus in range(1, 9):
    register(
        f"greedy-energy-{_gpus}",
        partial(Router, "greedy-energy", gpus=_gpus),
        f"Least extra energy among sites with a free GPU, up to {_gpus} GPUs, oracle clock.",
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

TRAINED = Path(__file__).parent / "trained"
"""Trained policies that are shipped; docs/dvfs-training.md and docs/fine-tuning.md say how each was made."""
register(
    "chsac-af",
    partial(TrainedPolicy, TRAINED / "chsac-af.npz"),
    "CHSAC-AF with its corrections, trained for a mean latency of 3600 s.",
)
register(
    "chsac-af-published",
    partial(TrainedPolicy, TRAINED / "chsac-af-published.npz"),
    "CHSAC-AF as its public code trains it: a control, next to random-free.",
)
