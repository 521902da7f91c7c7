"""Rules of protocol each-slot: local first-come-first-served, greedy, random, most free, cheapest, patient."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.feasibility import first_start_s, is_suspended
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import (
    energy_usd,
    least_travel_cost_usd,
    most_run_value_usd,
    run_value_usd,
    travel_cost_usd,
)
from noonward.decision.cluster.view import PER_JOB, Answers, ClusterView, RuleMemory, latest_start_s
from noonward.decision.scheduler import CompiledScheduler, State, checked_state
from noonward.draws import random_below
from noonward.schedule.cluster.claims import CLAIM_ROWS, claim, end_claims
from noonward.units import HOUR_S

WAIT_ABOVE: Final = 0.7
"""Share of the last day's mean cost above which ``patient`` waits."""
KEPT_SLACK: Final = 0.3
"""Share of a job's slack that ``patient`` leaves unused."""
DAY_H: Final = 24
"""Hours of which ``patient`` remembers the cost."""
KINDS: Final = 61
"""Kinds of jobs (class and largest gang) of which ``cheapest-feasible`` remembers what they earn at most."""
BLOCK: Final = 16
"""Successive sites that it can pass over at once."""
PRICES, INTENSITIES = KINDS, KINDS + 1
"""Rows of its ``memory.table_XY``, after those of kinds: prices and intensities that these hold for, by site."""
CLAIMS: Final = KINDS + 2
"""First of its rows of claims, where ``cheapest-unclaimed`` keeps them."""
PRICES_S, LEAST_CARBON, COUNTED = range(3)
"""Positions in its ``memory.number_P``: when it last looked at prices, s, the lowest intensity, g/kWh, and the slot up
to which claims were ended, -1 before the first."""
HOUR, HOURS = range(2)
"""Positions in ``memory.number_P`` of ``patient``: the last hour noted, and how many have been."""


class SlotRule(CompiledScheduler):
    """A rule of protocol each-slot that keeps no memory of its own."""

    needs = Needs(protocols=("each-slot",))

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns an empty memory with a random state."""
        return RuleMemory.make(random_state=int(rng.integers(2**63)))


@rule
def _local_fcfs(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    now = view.run_1[0].now_s
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0 or (memory.table_XY[s, 0] == now and not is_suspended(view, job)):
            continue
        if view.mask_NA[s, 1 + s]:
            answers.answer_N[s].choice = 1 + s
        else:
            memory.table_XY[s, 0] = now


class LocalFcfs(SlotRule):
    """S0: every job runs where it arrived, strictly first-come-first-served (MASAC, Sec. IV.A).

    A job that does not fit holds back those behind it, but no suspended one: that started before it, and room is kept
    for it that the job in front must not take.
    """

    rule = staticmethod(_local_fcfs)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns per site the slot in which its queue was blocked, s."""
        return RuleMemory.make(table=np.full((len(brief.sites), 1), -1.0))


@rule
def _local_backfill(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    for s in range(view.site_S.shape[0]):
        if view.asked_N[s] >= 0 and view.mask_NA[s, 1 + s]:
            answers.answer_N[s].choice = 1 + s


class LocalBackfill(SlotRule):
    """Every job runs where it arrived; in arrival order, each that fits starts, also past one that does not."""

    rule = staticmethod(_local_backfill)


@kernel(inline=True, allocates=False)
def _greedy_move(view: ClusterView, answers: Answers, s: int, price: bool) -> None:
    """Starts a site's job here if it fits, else sends it to the site of lowest price or intensity."""
    if view.mask_NA[s, 1 + s]:
        answers.answer_N[s].choice = 1 + s
        return
    best = s
    for d in range(view.site_S.shape[0]):
        if view.mask_NA[s, 1 + d] and d != s:
            here, there = view.site_S[best], view.site_S[d]
            if (there.price < here.price) if price else (there.carbon < here.carbon):
                best = d
    if best != s:
        answers.answer_N[s].choice = 1 + best


@rule
def _price_greedy(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    for s in range(view.site_S.shape[0]):
        if view.asked_N[s] >= 0:
            _greedy_move(view, answers, s, True)


@rule
def _carbon_greedy(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    for s in range(view.site_S.shape[0]):
        if view.asked_N[s] >= 0:
            _greedy_move(view, answers, s, False)


class PriceGreedy(SlotRule):
    """S1: local first; without room, to the site of lowest price (MASAC, Sec. IV.A)."""

    rule = staticmethod(_price_greedy)
    needs = Needs(protocols=("each-slot",), signals=True)


class CarbonGreedy(SlotRule):
    """S2: local first; without room, to the site of lowest carbon intensity (MASAC, Sec. IV.A)."""

    rule = staticmethod(_carbon_greedy)
    needs = Needs(protocols=("each-slot",), signals=True)


@rule
def _random_masked(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    for s in range(view.site_S.shape[0]):
        if view.asked_N[s] < 0:
            continue
        feasible = 0
        for choice in range(view.mask_NA.shape[1]):
            feasible += view.mask_NA[s, choice]
        pick = random_below(memory.random_1, feasible)
        for choice in range(view.mask_NA.shape[1]):
            if view.mask_NA[s, choice]:
                if pick == 0:
                    answers.answer_N[s].choice = choice
                pick -= 1


class RandomMasked(SlotRule):
    """Control: a uniformly random feasible choice, holding included."""

    rule = staticmethod(_random_masked)


@rule
def _most_free(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        best, most = -1, view.job_J[job].gpus_min - 1
        for d in range(view.site_S.shape[0]):
            free = view.site_S[d].free
            if view.mask_NA[s, 1 + d] and (free > most or (free == most and d == s and best >= 0)):
                best, most = d, free
        if best >= 0:
            answers.answer_N[s].choice = 1 + best


class MostFree(SlotRule):
    """Control: to the site with the most free GPUs, among those with room; else hold."""

    rule = staticmethod(_most_free)


@kernel(inline=True, allocates=False)
def cheapest_site(view: ClusterView, s: int, job: int) -> int:
    """Returns the site with room now at which a job earns most at the prices of this hour, or -1.

    Where jobs may be late, sites at which it starts in time come before others: a move takes a slot, and makes a job
    late that had to start at once.
    """
    return _cheapest_below(view, s, job, False, view.clock_SF[0], 0.0, view.clock_SF[0, :0])


@kernel(inline=True, allocates=False)
def _cheapest_below(
    view: ClusterView, s: int, job: int, bounded: bool, ceiling_X: F8, travel_usd: float, claimed_S: F8
) -> int:
    """Does what ``cheapest_site`` does; leaves out sites at which a job surely earns no more than at one it has seen.

    Args:
        view: View.
        s: Site at which the job waits.
        job: Job.
        bounded: Whether bounds are given.
        ceiling_X: What it earns by running at a site at most, per unit of work, USD; then the most of each ``BLOCK``.
        travel_usd: What its journey costs at least to a site other than s and its home, USD.
        claimed_S: Free GPUs of other sites that are not for this job; empty: none.
    """
    best, most, best_in_time = -1, -np.inf, False
    sites, work, home = view.site_S.shape[0], view.job_J[job].work, view.home_I[view.job_J[job].origin]
    for first in range(0, sites, BLOCK):
        last = min(first + BLOCK, sites)
        near = first <= s < last or first <= home < last
        if bounded and best_in_time and not near and work * ceiling_X[sites + first // BLOCK] - travel_usd <= most:
            continue
        for d in range(first, last):
            if bounded and best_in_time and work * ceiling_X[d] - travel_usd <= most and d != s and d != home:
                continue
            if not view.mask_NA[s, 1 + d] or view.site_S[d].free < view.job_J[job].gpus_min:
                continue
            if d != s and d < claimed_S.shape[0] and view.site_S[d].free - claimed_S[d] < view.job_J[job].gpus_min:
                continue
            value = run_value_usd(view, job, d)
            if best_in_time and value <= most:
                continue  # whatever the journey costs
            in_time = first_start_s(view, job, s, d) <= latest_start_s(view, job, d)
            value -= travel_cost_usd(view, job, s, d)
            if (in_time and not best_in_time) or (in_time == best_in_time and value > most):
                best, most, best_in_time = d, value, in_time
    return best


@rule
def _cheapest_feasible(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    _note_prices(view, memory)
    for s in range(view.site_S.shape[0]):
        if view.asked_N[s] >= 0:
            answers.answer_N[s].choice = 1 + _cheapest(view, memory, s, view.asked_N[s], memory.table_XY[PRICES, :0])


@rule
def _cheapest_unclaimed(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    _note_prices(view, memory)
    sites, claim_XS = view.site_S.shape[0], memory.table_XY[CLAIMS:]
    memory.number_P[COUNTED] = end_claims(view, claim_XS, int(memory.number_P[COUNTED]))
    for s in range(sites):
        job = view.asked_N[s]
        if job >= 0:
            best = _cheapest(view, memory, s, job, claim_XS[0, :sites])
            answers.answer_N[s].choice = 1 + best
            if best >= 0 and best != s:
                claim(view, claim_XS, job, s, best)


@kernel(inline=True, allocates=False)
def _cheapest(view: ClusterView, memory: RuleMemory, s: int, job: int, claimed_S: F8) -> int:
    """Does what ``cheapest_site`` does, but leaves out claimed GPUs, and uses ceilings if the job has any work."""
    if view.job_J[job].work <= 0.0:
        return _cheapest_below(view, s, job, False, claimed_S, 0.0, claimed_S)
    row = _ceilings(view, memory, job)
    travel_usd = least_travel_cost_usd(view, job, s, memory.number_P[LEAST_CARBON])
    return _cheapest_below(view, s, job, True, memory.table_XY[row], travel_usd, claimed_S)


@kernel(inline=True, allocates=False)
def _note_prices(view: ClusterView, memory: RuleMemory) -> None:
    """Forgets all ceilings if prices or intensities have changed; they do not within one time."""
    now = view.run_1[0].now_s
    if memory.number_P[PRICES_S] == now:
        return
    memory.number_P[PRICES_S] = now
    changed, least = False, np.inf
    for s in range(view.site_S.shape[0]):
        site = view.site_S[s]
        least = min(least, site.carbon)
        if memory.table_XY[PRICES, s] != site.price or memory.table_XY[INTENSITIES, s] != site.carbon:
            changed = True
            memory.table_XY[PRICES, s] = site.price
            memory.table_XY[INTENSITIES, s] = site.carbon
    if changed:
        memory.number_P[LEAST_CARBON] = least
        memory.index_XY[:, :] = -1


@kernel(inline=True, allocates=False)
def _ceilings(view: ClusterView, memory: RuleMemory, job: int) -> int:
    """Returns the row of ``memory.table_XY`` with what a job's class and gang earn at most per unit of work by site."""
    kind = (view.job_J[job].class_ << 32) | view.job_J[job].gpus_max
    row = kind % KINDS
    if memory.index_XY[row, 0] != kind:
        memory.index_XY[row, 0] = kind
        sites = view.site_S.shape[0]
        memory.table_XY[row, sites:] = -np.inf
        for d in range(sites):
            usd, block = most_run_value_usd(view, job, d), sites + d // BLOCK
            memory.table_XY[row, d] = usd
            memory.table_XY[row, block] = max(memory.table_XY[row, block], usd)
    return row


class CheapestFeasible(SlotRule):
    """Starts or moves each job where it earns most at the prices of this hour, among the sites with room now.

    Where jobs may be late, sites at which it starts in time come first.
    """

    rule = staticmethod(_cheapest_feasible)
    needs = Needs(protocols=("each-slot",), signals=True, economics=True)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns a memory for the sites' prices and ceilings."""
        return ceilings_of(len(brief.sites))

    def state(self) -> State:
        """Returns an empty memory: ceilings follow from the view."""
        return dict(RuleMemory.make()._asdict())

    def load_state(self, state: State) -> None:
        """Checks the state and takes nothing from it: the ceilings are computed again.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        checked_state(self, state, RuleMemory.make()._asdict(), grows=PER_JOB)


class CheapestUnclaimed(CheapestFeasible):
    """As ``cheapest-feasible``, but GPUs that a job on its way to a site will take are not free for another one.

    At many sites, or with many jobs that wait, ``cheapest-feasible`` sends each of them to the same few free GPUs; all
    but a few find none there, and go on to the next. A job claims its smallest gang from the answer that sends it until
    the slot in which it arrives is over, for 96 slots at most (``claims``). A claim reserves nothing: a job that waits
    at the site itself may take the GPUs. A job that starts in the slot of its arrival counts twice for the rest of it.
    """

    rule = staticmethod(_cheapest_unclaimed)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns a memory for the sites' prices, ceilings and claims."""
        return ceilings_of(len(brief.sites), claims=True)

    def state(self) -> State:
        """Returns a copy of the claims; the rest follows from the view."""
        return {"claim_XS": self.memory.table_XY[CLAIMS:].copy(), "counted": self.memory.number_P[COUNTED:].copy()}

    def load_state(self, state: State) -> None:
        """Restores the claims.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        checked = checked_state(self, state, self.state())
        self.memory.table_XY[CLAIMS:] = checked["claim_XS"]
        self.memory.number_P[COUNTED:] = checked["counted"]


def ceilings_of(sites: int, *, claims: bool = False) -> RuleMemory:
    """Returns the memory of ``cheapest-feasible`` for so many sites: it knows no prices, and no ceiling of any job.

    Args:
        sites: Sites.
        claims: Whether it has room for claims, too, and none yet.
    """
    columns = sites + -(-sites // BLOCK)
    ceilings, claimed = np.full((CLAIMS, columns), np.nan), np.zeros((CLAIM_ROWS if claims else 0, columns))
    return RuleMemory.make(
        numbers=(-1.0, 0.0, -1.0), table=np.concatenate([ceilings, claimed]), index=np.full((KINDS, 1), -1)
    )


@kernel(inline=True, allocates=False)
def _cost_usd(view: ClusterView, site: int) -> float:
    """Returns what a joule costs a site in this hour, carbon and PUE included, USD."""
    here = view.site_S[site]
    return here.pue * energy_usd(view, here.price, here.carbon)


@kernel(inline=True, allocates=False)
def _mean_cost_usd(view: ClusterView, memory: RuleMemory) -> float:
    """Notes the cost of this hour's cheapest site; returns the mean of 24 such, USD per J, or infinity before."""
    hour = view.run_1[0].now_s // HOUR_S
    if memory.number_P[HOUR] != hour:
        cheapest = np.inf
        for s in range(view.site_S.shape[0]):
            cheapest = min(cheapest, _cost_usd(view, s))
        memory.table_XY[int(memory.number_P[HOURS]) % DAY_H, 0] = cheapest
        memory.number_P[HOUR] = hour
        memory.number_P[HOURS] += 1.0
    if memory.number_P[HOURS] < DAY_H:
        return np.inf
    total = 0.0
    for row in range(DAY_H):
        total += memory.table_XY[row, 0]
    return total / DAY_H


@rule
def _patient(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    dear, cheap = WAIT_ABOVE * _mean_cost_usd(view, memory), False
    for s in range(view.site_S.shape[0]):
        cheap = cheap or not _cost_usd(view, s) > dear
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        record = view.job_J[job]
        left_s = record.deadline_s - view.run_1[0].now_s
        waits = left_s > KEPT_SLACK * (record.deadline_s - record.arrival_s)
        if waits and not cheap:  # wherever there is room
            continue
        best = cheapest_site(view, s, job)
        if best >= 0 and waits and _cost_usd(view, best) > dear:
            best = -1
        answers.answer_N[s].choice = 1 + best


class Patient(SlotRule):
    """Cheapest site with room now, but waits for a cheap hour while more than 30% of the job's slack is left.

    An hour is cheap if energy and carbon at that site cost at most 0.7 times the mean over 24 hours of each hour's
    cheapest site: the last 24 hours in which jobs waited. Before it has seen so many it does not wait for cheap hours,
    nor does a job without a deadline.
    """

    rule = staticmethod(_patient)
    needs = Needs(protocols=("each-slot",), signals=True, economics=True)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns the costs of no hours."""
        return RuleMemory.make(numbers=(-1.0, 0.0), table=np.zeros((DAY_H, 1)))
