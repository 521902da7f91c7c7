"""What each freedom of jobs can be worth at most on a fleet: bounds with and without it, and schedules found."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedom_schedule import improved, taken
from noonward.bound.cluster_utility.freedoms import FREEDOMS, TOLERANCE, FreedomDual, free_options, lower, stated
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.metered import require_unbilled
from noonward.bound.cluster_utility.primal import BookedSchedule
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment

NONE: Final = "none"
"""Name of the bound without freedoms."""
ALL: Final = "all"
"""Name of the bound with all freedoms that the fleet states."""
NAMES: Final = (NONE, *FREEDOMS, ALL)


@dataclass(frozen=True, kw_only=True)
class FreedomWorth:
    """Bound and schedule with some freedoms.

    Attributes:
        upper_usd: Upper bound on the utility, USD.
        known_usd: Utility of the best schedule found, USD; NaN where none was looked for.
    """

    upper_usd: float
    known_usd: float


@dataclass(frozen=True, kw_only=True)
class FreedomBounds:
    """What freedoms can be worth in an environment.

    Attributes:
        worth: Bound and schedule by name, ``none`` among them.
        bill_usd: Cost of energy, carbon and moves in the best schedule without freedoms, idle GPUs included, USD; NaN
            where none was looked for.
    """

    worth: dict[str, FreedomWorth]
    bill_usd: float


def require_stated(environment: Environment, names: Collection[str]) -> None:
    """Raises ScenarioError if freedoms are asked for and no class of the fleet states any of them."""
    asked = [name for name in names if name != NONE]
    known = stated(environment)
    if asked and not any((name == ALL and known) or name in known for name in asked):
        says = f"the fleet states {', '.join(known)}" if known else "the fleet states none"
        name = environment.fleet.classes[0]
        raise ScenarioError(
            f"freedom {', '.join(asked)} was asked for, but {says}; state it, for example with "
            f"--set fleet.freedoms.{name}.interruptible=true or --set fleet.freedoms.{name}.caps=zeus-v100-bert "
            "(docs/freedoms.md)"
        )


def freedom_bounds(
    environment: Environment, names: Sequence[str], *, tolerance: float = TOLERANCE, seed: int = 0
) -> FreedomBounds:
    """Bounds the utility with each of some sets of freedoms, and looks for schedules.

    The sets' bounds are in order: ``none`` is at most each, and each is at most ``all``, since every dual function is
    also evaluated at the others' prices.

    Args:
        environment: Environment with economics and signals, ``end: drained``.
        names: Freedoms, of ``NAMES``; ``none`` is computed in any case.
        tolerance: Excess over the linear relaxation at which a search for prices stops, as a share of what jobs add.
        seed: Seed of the schedule's search.

    Raises:
        ScenarioError: As ``utility_bound``, or no class states the freedoms asked for.
    """
    require_unbilled(environment, "the bound with freedoms")
    require_stated(environment, names)
    plain = utility_bound(environment, seed=seed)
    relaxation = Relaxation(environment)
    sets = {name: FREEDOMS if name == ALL else (name,) for name in NAMES if name in names and name != NONE}
    upper, added = {NONE: plain.upper_usd}, dict[str, float]()
    prices = [plain.price_usd_per_gpu_hour_SH]
    for name in reversed(sets):
        dual = FreedomDual(environment, relaxation, sets[name])
        found = lower(dual, plain.price_usd_per_gpu_hour_SH, tolerance)
        moves = "move" in sets[name] and dual.options.moves_O.any()
        if moves:
            upper[name] = min(dual.moved_value(price_SH) for price_SH in (found.price_SH, *prices))
        else:
            upper[name] = min([found.upper_usd, *(dual.value(price_SH)[0] for price_SH in prices)])
        upper[NONE] = min(upper[NONE], relaxation.value(found.price_SH)[0])
        prices.append(found.price_SH)
        if plain.schedule is not None:
            dual.value(found.price_SH)
            tables = [free_options(environment, relaxation, asked) for asked in _alone_and_together(sets[name])]
            added[name] = improved(environment, relaxation, tables, plain.schedule, found.price_SH, dual.lives.priced_J)
    known = {NONE: plain.lower_usd}
    for name in sets:
        values = list(added.values()) if name == ALL else [added.get(name, math.nan)]
        known[name] = plain.idle_usd + max(values, default=math.nan)
    worth = {name: FreedomWorth(upper_usd=upper[name], known_usd=known[name]) for name in known}
    return FreedomBounds(worth=worth, bill_usd=_bill_usd(relaxation, plain.schedule, plain.lower_usd))


def _alone_and_together(asked: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns every freedom alone and, where there are several, all of them: schedules are sought with each set.

    Example:
        >>> _alone_and_together(("suspend", "caps"))
        [('suspend',), ('caps',), ('suspend', 'caps')]
    """
    return [*((each,) for each in asked), *([tuple(asked)] if len(asked) > 1 else [])]


def _bill_usd(relaxation: Relaxation, schedule: BookedSchedule | None, utility_usd: float) -> float:
    """Returns the revenue of a schedule less its utility, USD."""
    if schedule is None:
        return math.nan
    options = relaxation.options
    return float(options.revenue_usd_O[taken(options, schedule) & ~options.late_O].sum()) - utility_usd
