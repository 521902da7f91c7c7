"""What policies without foresight of the signals can earn: the utility bound with penalties for knowing them early.

Information relaxation (Brown, Smith, Sun 2010, "Information relaxations and duality in stochastic dynamic programs"):
a policy that sees the signals hour by hour earns, on average over their law, at most the average of

    max over schedules of (utility - penalty),

where every schedule may look ahead, and the penalty has expectation 0 for every policy that does not. Here

    penalty = sum over jobs of [ v(k) - E_tau v(k) ] + sum over hours t < tau of [ E_(t+1) v(k_t) - E_t v(k_t) ],

with v(k) the job's worth in the way k in which it runs, tau the hour it starts in (its last one if it never runs), E_t
the expectation given what is known in hour t, and k_t the later start that looked best in hour t. All brackets have
mean 0 given what was known before them, whatever a policy without foresight chose by then. The first
takes away what a start earns by signals that come after it; the others take away what waiting earns by knowing the next
hour. The penalty is a number for each way to run a job, so the Lagrangian relaxation solves the maximum as before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import Columns, Options, build_columns, slot_of
from noonward.bound.cluster_utility.dual import Dual, Relaxation
from noonward.bound.cluster_utility.kernels import run_value
from noonward.bound.cluster_utility.metered import require_unbilled
from noonward.bound.cluster_utility.prices import descend, polish
from noonward.compiled import kernel
from noonward.errors import ScenarioError
from noonward.ledger.settle import integral_between
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S, KG_PER_TONNE

STRENGTH = 0.5
"""Factor of the penalties: of 0, 0.25, 0.5 and 1 the one of the lowest mean over 24 validation environments."""
FIRST_ITERATIONS = 60
"""Subgradient steps of the prices that later starts are compared at."""


@dataclass(frozen=True, kw_only=True)
class NonclairvoyantBound:
    """One environment's share in the bound: only the mean over environments is a bound.

    Attributes:
        penalised_usd: Upper bound on utility less penalty of every schedule, USD.
        clairvoyant_usd: The same without penalties: what no schedule exceeds that knows all signals, USD.
    """

    penalised_usd: float
    clairvoyant_usd: float


def nonclairvoyant_bound(
    environment: Environment,
    expected_QTSH: F8,
    *,
    strength: float = STRENGTH,
    iterations: int = 400,
    tolerance: float = 1e-4,
) -> NonclairvoyantBound:
    """Bounds what policies that do not know the signals to come can earn, jobs known beforehand.

    Args:
        environment: Environment with economics and signals, ``each-slot``, ``end: drained``, without late jobs.
        expected_QTSH: Price, USD/MWh, and carbon intensity, g/kWh, expected in hour T of hour H at site S; those of
            hours up to T are known (``data.signals.expected.expected_signals``).
        strength: Factor of the penalties; the mean is a bound for any. 0: the clairvoyant bound.
        iterations: Subgradient steps of either bound, at least 1.
        tolerance: As in ``utility_bound``.

    Raises:
        ScenarioError: The environment is of another kind, or expectations have another shape or disagree with it.
    """
    require_unbilled(environment, "the non-clairvoyant bound")
    if environment.protocol != "each-slot" or environment.late_until_s > -np.inf:
        raise ScenarioError(
            "a non-clairvoyant bound needs the protocol each-slot and jobs that may not be late; it has "
            f"{environment.protocol} and {'late jobs' if environment.late_until_s > -np.inf else 'none'}"
        )
    relaxation = Relaxation(environment)
    clairvoyant_usd = _least(relaxation, iterations, tolerance)
    columns, options = _with_ends_of_hours(environment, relaxation)
    weight_TSP = _expected_weights(environment, expected_QTSH)
    known_usd_O = _known_usd(environment, options)
    price_SH = _first_prices(relaxation, columns, options, weight_TSP[0], known_usd_O, environment.window_s)
    value_K, idle_J = columns.value_K.copy(), np.zeros(len(environment.jobs))
    if strength:
        penalise(
            columns.first_J, columns.option_K, columns.start_s_K, environment.jobs.arrival_s_J, options.site_O,
            options.gpus_O, options.run_s_O, options.revenue_usd_O, options.power_w_O, options.saved_w_O, known_usd_O,
            weight_TSP, relaxation.costs.weight_cumulative_SP, _cumulative(price_SH), environment.window_s,
            strength, value_K, idle_J,
        )  # fmt: skip
    jobs_K = np.repeat(np.arange(len(idle_J)), np.diff(columns.first_J))
    dual = Dual(replace(columns, value_K=value_K - idle_J[jobs_K]), relaxation.capacity_SH, relaxation.idle_usd)
    penalised_usd = _least(dual, iterations, tolerance) + float(idle_J.sum())
    return NonclairvoyantBound(penalised_usd=penalised_usd, clairvoyant_usd=clairvoyant_usd)


def _least(dual: Dual, iterations: int, tolerance: float) -> float:
    """Returns the least value of a dual function, USD."""
    upper_usd, price_SH, columns = descend(dual, iterations)
    if len(dual.columns.value_K) and np.isfinite(tolerance):
        upper_usd, _, _ = polish(dual, price_SH, columns, tolerance)
    return upper_usd


def _cumulative(price_SH: F8) -> F8:
    """Returns running integrals of prices a GPU and hour, USD per GPU, (S, H + 1)."""
    out_SP = np.zeros((price_SH.shape[0], price_SH.shape[1] + 1))
    np.cumsum(price_SH, axis=1, out=out_SP[:, 1:])
    return out_SP


def _with_ends_of_hours(environment: Environment, relaxation: Relaxation) -> tuple[Columns, Options]:
    """Returns the candidate starts with those at the last slot of every hour beside them.

    What is known changes at the hour, so the worth of a start may jump there: the slot before it can be best too.
    """
    options, slot_s = relaxation.options, slot_of(environment)
    first_O = (options.earliest_s_O / HOUR_S).astype(np.int64) + 1
    count_O = np.maximum((options.latest_s_O / HOUR_S).astype(np.int64) - first_O + 1, 0)
    of_X = np.repeat(np.arange(len(count_O)), count_O)
    nth_X = np.arange(len(of_X)) - np.repeat(np.cumsum(count_O) - count_O, count_O)
    start_s_X = (first_O[of_X] + nth_X) * HOUR_S - slot_s
    fits_X = start_s_X >= options.earliest_s_O[of_X]
    more = options.take(of_X[fits_X])
    more = replace(more, earliest_s_O=start_s_X[fits_X], latest_s_O=start_s_X[fits_X])
    names = [each.name for each in fields(Options)]
    both = Options(**{name: np.concatenate([getattr(options, name), getattr(more, name)]) for name in names})
    both = both.take(np.argsort(both.job_O, kind="stable"))
    return build_columns(environment, both, relaxation.costs), both


def _expected_weights(environment: Environment, expected_QTSH: F8) -> F8:
    """Returns running integrals of the expected ``price + mu carbon``, USD/MWh x s, (T, S, H + 1)."""
    signals, economics, hours = environment.site_signals, environment.economics, environment.hours
    assert economics is not None  # Relaxation has checked it
    if expected_QTSH.shape != (2, hours, len(environment.sites), hours):
        raise ScenarioError(
            f"expected signals have shape {expected_QTSH.shape}; give (2, {hours}, {len(environment.sites)}, {hours}): "
            "signal, hour of knowing, site, hour"
        )
    for row, real_SH in enumerate((signals.price_SH, signals.carbon_SH)):
        known_SH = np.diagonal(expected_QTSH[row], axis1=0, axis2=2)
        if not np.array_equal(known_SH, real_SH[:, :hours]):
            raise ScenarioError("expected signals differ from the environment's in the hour itself; take its own draw")
    weight_TSH = expected_QTSH[0] + economics.carbon_usd_per_t / KG_PER_TONNE * expected_QTSH[1]
    out_TSP = np.zeros((*weight_TSH.shape[:2], hours + 1))
    np.cumsum(weight_TSH * HOUR_S, axis=2, out=out_TSP[:, :, 1:])
    return out_TSP


def _known_usd(environment: Environment, options: Options) -> F8:
    """Returns what moving a job and its result costs whatever the signals are, over a direct link, USD."""
    jobs, job_O = environment.jobs, options.job_O
    spot = (jobs.origin_J[job_O], options.site_O)
    moved_gb_O = jobs.data_gb_J[job_O] + jobs.model_gb_J[job_O]
    away_O = options.home_O != options.site_O
    return options.return_usd_O + np.where(away_O, moved_gb_O * environment.links.usd_per_gb_IS[spot], 0.0)


def _first_prices(
    relaxation: Relaxation, columns: Columns, options: Options, weight_SP: F8, known_usd_O: F8, window_s: float
) -> F8:
    """Returns capacity prices under the signals expected in hour 0, USD per GPU-hour, (S, H)."""
    value_K = expected_values(
        columns.option_K, columns.start_s_K, options.site_O, options.run_s_O, options.revenue_usd_O, options.power_w_O,
        options.saved_w_O, known_usd_O, weight_SP, window_s,
    )  # fmt: skip
    dual = Dual(replace(columns, value_K=value_K), relaxation.capacity_SH, 0.0)
    return descend(dual, FIRST_ITERATIONS)[1]


@kernel()
def expected_values(
    option_K: I8,
    start_s_K: F8,
    site_O: I8,
    run_s_O: F8,
    revenue_usd_O: F8,
    power_w_O: F8,
    saved_w_O: F8,
    known_usd_O: F8,
    weight_SP: F8,
    window_s: float,
) -> F8:
    """Returns what columns are worth under given integrals of ``price + mu carbon``, carbon of moves apart, USD."""
    out_K = np.empty(len(option_K))
    for k in range(len(option_K)):
        o = option_K[k]
        usd = run_value(
            weight_SP[site_O[o]], start_s_K[k], start_s_K[k] + run_s_O[o], window_s, revenue_usd_O[o], power_w_O[o],
            saved_w_O[o], HOUR_S,
        )  # fmt: skip
        out_K[k] = usd - known_usd_O[o]
    return out_K


@kernel()
def penalise(
    first_J: I8,
    option_K: I8,
    start_s_K: F8,
    arrival_s_J: F8,
    site_O: I8,
    gpus_O: I8,
    run_s_O: F8,
    revenue_usd_O: F8,
    power_w_O: F8,
    saved_w_O: F8,
    known_usd_O: F8,
    weight_TSP: F8,
    weight_SP: F8,
    paid_SP: F8,
    window_s: float,
    strength: float,
    value_K: F8,
    idle_J: F8,
) -> None:
    """Takes the penalties off the worth of all columns, and off that of never running.

    Args:
        first_J: First column of every job, one more than there are jobs.
        option_K: Option of every column.
        start_s_K: Start, s.
        arrival_s_J: Arrivals, s.
        site_O: Site.
        gpus_O: Gang.
        run_s_O: Run time, s.
        revenue_usd_O: Revenue, USD.
        power_w_O: Power of the running gang, W.
        saved_w_O: Power of its GPUs when free, W.
        known_usd_O: Costs of moving that no signal changes, USD.
        weight_TSP: Running integrals of the expected ``price + mu carbon``, by hour of knowing, USD/MWh x s.
        weight_SP: The same of the signals that came.
        paid_SP: Running sums of capacity prices by which later starts are compared, USD per GPU.
        window_s: Window over which free GPUs are charged, s.
        strength: Factor of the penalties.
        value_K: Worth of the columns, USD, updated.
        idle_J: Receives the worth of never running, USD.
    """
    for j in range(len(first_J) - 1):
        begin, end = first_J[j], first_J[j + 1]
        if begin == end:
            continue
        first = int(arrival_s_J[j] / HOUR_S)
        last = first
        for k in range(begin, end):
            last = max(last, int(start_s_K[k] / HOUR_S))
        waited = np.zeros(last - first + 1)
        for t in range(first, last):
            best, at = 0.0, -1
            for k in range(begin, end):
                if int(start_s_K[k] / HOUR_S) <= t:
                    continue
                o = option_K[k]
                start_s, end_s = start_s_K[k], start_s_K[k] + run_s_O[o]
                worth = run_value(
                    weight_TSP[t, site_O[o]], start_s, end_s, window_s, revenue_usd_O[o], power_w_O[o], saved_w_O[o],
                    HOUR_S,
                )  # fmt: skip
                paid = integral_between(paid_SP[site_O[o]], start_s, end_s, HOUR_S)
                worth -= known_usd_O[o] + gpus_O[o] * paid
                if worth > best:
                    best, at = worth, k
            step = 0.0
            if at >= 0:
                o = option_K[at]
                start_s, end_s = start_s_K[at], start_s_K[at] + run_s_O[o]
                for knowing, sign in ((t + 1, 1.0), (t, -1.0)):
                    step += sign * run_value(
                        weight_TSP[knowing, site_O[o]], start_s, end_s, window_s, revenue_usd_O[o], power_w_O[o],
                        saved_w_O[o], HOUR_S,
                    )  # fmt: skip
            waited[t + 1 - first] = waited[t - first] + step
        for k in range(begin, end):
            o, t = option_K[k], int(start_s_K[k] / HOUR_S)
            start_s, end_s = start_s_K[k], start_s_K[k] + run_s_O[o]
            site = site_O[o]
            early = run_value(weight_SP[site], start_s, end_s, window_s, 0.0, power_w_O[o], saved_w_O[o], HOUR_S)
            early -= run_value(weight_TSP[t, site], start_s, end_s, window_s, 0.0, power_w_O[o], saved_w_O[o], HOUR_S)
            value_K[k] -= strength * (early + waited[t - first])
        idle_J[j] = -strength * waited[last - first]
