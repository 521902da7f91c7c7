"""The policies for edge scenarios that come registered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.schedule.edge.carbon import CarbonAware
from noonward.schedule.edge.greedy import Greedy
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.metaheuristics import Genetic, Harmony
from noonward.schedule.edge.priced_lookahead import PricedLookahead
from noonward.schedule.edge.queue_lookahead import QueueLookahead
from noonward.schedule.edge.rules import Fifo, FirstFit, PatientReuse, RandomTries, ReuseFirst
from noonward.schedule.edge.sampled_lookahead import USUAL, SampledLookahead
from noonward.schedule.edge.trained_policy import FOLDER, EdgePolicy, read_meta
from noonward.schedule.families import Family, Role
from noonward.schedule.registry import Policy, Registry
from noonward.schedule.trained_files import trained_files

KIND: Final = "edge"
"""Kind of scenarios that these policies run in."""

FORECAST_WORDS: Final = {
    "perfect": "a perfect forecast",
    "persistence": "the last day's values as forecast",
    "regression": "a regression on the last days",
}
"""Forecasts that carbon-aware launching can be given, and their words."""
Futures = Annotated[int, Field(ge=1, le=4096, description="sampled futures of a question")]
FuturesOrNone = Annotated[int, Field(ge=0, le=4096, description="sampled futures of a question")]


def add_policies(registry: Registry, *nets: Path) -> None:
    """Adds the package's policies for edge scenarios, and trained ones of further folders."""
    _add(registry, "random", RandomTries, "control", "published")
    _add(registry, "fifo", Fifo, "rule", "control")
    _add(registry, "first-fit", FirstFit, "rule", "control")
    _add(registry, "reuse-first", ReuseFirst, "rule", "control")
    _add(registry, "patient-reuse", PatientReuse, "rule")
    _add(registry, "lookahead", Lookahead, "planner")
    _add(registry, "queue-lookahead", QueueLookahead, "planner", "control")
    _add_sampled(registry)
    _add(
        registry,
        "greedy",
        functools.partial(Greedy, blind=True),
        "published",
        summary="The published control: the launch of the best immediate reward, rated before its duration is known.",
    )
    _add(registry, "greedy-corrected", Greedy, "rule", "control")
    _add(registry, "genetic", Genetic, "published")
    _add(registry, "harmony", Harmony, "published")
    registry.add_family(
        Family(
            packaged=True,
            name="carbon-aware",
            make=carbon_aware,
            describe=lambda forecast: (
                "Patient reuse; tasks with a deadline wait for a cleaner hour, by " + FORECAST_WORDS[forecast] + "."
            ),
            roles=lambda forecast: frozenset({"planner", "clairvoyant"} if forecast == "perfect" else {"planner"}),
            kind=KIND,
        )
    )
    registry.add_member("carbon-aware", "carbon-aware", kind=KIND)
    add_trained(registry, FOLDER, *nets, packaged=True)


def carbon_aware(forecast: Literal["perfect", "persistence", "regression"] = "regression") -> EdgeScheduler:
    """Returns carbon-aware launching under a forecast."""
    return CarbonAware(forecast)


def sampled_lookahead(futures: Futures = USUAL) -> EdgeScheduler:
    """Returns the lookahead over sampled futures."""
    return SampledLookahead(futures)


def priced_lookahead(futures: FuturesOrNone = 0) -> EdgeScheduler:
    """Returns the lookahead that also chooses the steps."""
    return PricedLookahead(futures=futures)


def _add_sampled(registry: Registry) -> None:
    """Adds the lookaheads that can play sampled futures."""
    registry.add_family(
        Family(
            packaged=True,
            name="sampled-lookahead",
            make=sampled_lookahead,
            describe=lambda futures: (
                f"The lookahead, each choice also played on with {futures} sampled futures of tasks to come."
            ),
            roles=frozenset({"planner"}),
            kind=KIND,
        )
    )
    registry.add_member("sampled-lookahead", "sampled-lookahead", kind=KIND)
    registry.add_family(
        Family(
            packaged=True,
            name="priced-lookahead",
            make=priced_lookahead,
            describe=lambda futures: (
                f"The lookahead{f' over {futures} sampled futures' if futures else ''}, which also chooses the steps: "
                "few where tasks wait, by a price that holds the quality's goal."
            ),
            roles=frozenset({"planner", "control"}),
            kind=KIND,
        )
    )
    registry.add_member("priced-lookahead", "priced-lookahead", kind=KIND)
    registry.add_member("priced-sampled-lookahead", "priced-lookahead", {"futures": USUAL}, kind=KIND)


def _add(registry: Registry, name: str, make: Callable[[], EdgeScheduler], *roles: Role, summary: str = "") -> None:
    said = summary or (make.__doc__ or "").strip().split("\n")[0]
    policy = Policy(name=name, make=make, summary=said, family=name, roles=frozenset(roles), kind=KIND, packaged=True)
    registry.add(policy)


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
    for file in trained_files(folders, read_meta):
        published = file.family.endswith("published")
        roles: frozenset[Role] = frozenset({"learned", "control"} if published else {"learned"})
        registry.add(
            Policy(
                name=file.name,
                make=functools.partial(EdgePolicy, file.path),
                summary=file.summary,
                family=file.family,
                roles=roles,
                kind=KIND,
                trained=file,
                packaged=packaged,
            )
        )
