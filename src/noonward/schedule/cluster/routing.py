"""Rules of protocol on-arrival: where a job goes, with how many GPUs and at which GPU frequency."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import run_value_usd
from noonward.decision.cluster.view import (
    ORACLE,
    POWER_W,
    SECONDS,
    Answers,
    ClusterView,
    RuleMemory,
    route_delay_s,
)
from noonward.decision.scheduler import CompiledScheduler
from noonward.draws import random_below
from noonward.errors import ScenarioError

Gang = Annotated[int, Field(ge=1, le=4096, description="GPUs")]
Spare = Annotated[int, Field(ge=1, le=4096, description="GPUs")]
Clock = Annotated[float, Field(gt=0, le=1, description="share of the maximum clock")]
LimitS = Annotated[float, Field(gt=0, allow_inf_nan=False, description="s")]
GPUS, TARGET, SPARE = range(3)
"""Positions in ``memory.number_P``: gang asked for (0: all the job can use), limit on transfer and run, s, and GPUs
that are left free."""


@kernel(inline=True, allocates=False)
def uniform_site(view: ClusterView, memory: RuleMemory, job: int) -> int:
    """Returns the site the workload names, else a uniformly random feasible one."""
    preset = view.job_J[job].preset_site
    if preset >= 0 and view.mask_NA[0, 1 + preset]:
        return preset
    return _random_site(view, memory, 0)


@kernel(inline=True, allocates=False)
def _random_site(view: ClusterView, memory: RuleMemory, room: int) -> int:
    """Returns a uniformly random feasible site among those with at least ``room`` free GPUs, or among all if none."""
    sites = view.site_S.shape[0]
    count = 0
    for s in range(sites):
        count += view.mask_NA[0, 1 + s] and view.site_S[s].free >= room
    if count == 0:
        return _random_site_of_all(view, memory)
    pick = random_below(memory.random_1, count)
    for s in range(sites):
        if view.mask_NA[0, 1 + s] and view.site_S[s].free >= room:
            if pick == 0:
                return s
            pick -= 1
    return -1


@kernel(inline=True, allocates=False)
def _random_site_of_all(view: ClusterView, memory: RuleMemory) -> int:
    """Returns a uniformly random feasible site."""
    count = 0
    for s in range(view.site_S.shape[0]):
        count += view.mask_NA[0, 1 + s]
    pick = random_below(memory.random_1, count)
    for s in range(view.site_S.shape[0]):
        if view.mask_NA[0, 1 + s]:
            if pick == 0:
                return s
            pick -= 1
    return -1


@kernel(inline=True, allocates=False)
def _gang(view: ClusterView, memory: RuleMemory, job: int) -> int:
    """Returns the gang asked for within what the job allows; 0 for all it can use."""
    gpus = int(memory.number_P[GPUS])
    if gpus == 0:
        return 0
    return max(view.job_J[job].gpus_min, min(gpus, view.job_J[job].gpus_max))


@kernel(inline=True, allocates=False)
def _send(answers: Answers, memory: RuleMemory, site: int, gpus: int) -> None:
    """Answers with a site, a gang and the site's clock level."""
    answer = answers.answer_N[0]
    answer.choice = 1 + site
    answer.gpus = gpus
    answer.level = memory.index_XY[site, 0]


@kernel(inline=True, allocates=False)
def _extra_joules(view: ClusterView, memory: RuleMemory, job: int, s: int) -> float:
    """Returns E_unit less the energy its GPUs would draw free, J per unit, at the gang that would start now."""
    record, site = view.job_J[job], view.site_S[s]
    gpus = _gang(view, memory, job)
    if gpus == 0:
        gpus = record.gpus_max
    if site.free >= record.gpus_min:
        gpus = min(gpus, site.free)
    level = memory.index_XY[s, 0]
    if level == ORACLE:
        level = view.oracle_SCG[s, record.class_, gpus]
    seconds = view.speed_KSCGF[SECONDS, s, record.class_, gpus, level]
    return site.pue * (view.speed_KSCGF[POWER_W, s, record.class_, gpus, level] - gpus * site.free_w) * seconds


@rule
def _uniform(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    job = view.asked_N[0]
    _send(answers, memory, uniform_site(view, memory, job), _gang(view, memory, job))


@rule
def _random_free(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    record = view.job_J[view.asked_N[0]]
    site = _random_site(view, memory, record.gpus_min)
    gpus = record.gpus_min + random_below(memory.random_1, record.gpus_max - record.gpus_min + 1)
    _send(answers, memory, site, gpus)


@rule
def _most_free(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    best, most = -1, -1
    for s in range(view.site_S.shape[0]):
        if view.mask_NA[0, 1 + s] and view.site_S[s].free > most:
            best, most = s, view.site_S[s].free
    _send(answers, memory, best, _gang(view, memory, view.asked_N[0]))


@rule
def _greedy_energy(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    job = view.asked_N[0]
    best, least, best_room = -1, np.inf, False
    for s in range(view.site_S.shape[0]):
        if not view.mask_NA[0, 1 + s]:
            continue
        room = view.site_S[s].free >= view.job_J[job].gpus_min + memory.number_P[SPARE]
        joules = _extra_joules(view, memory, job, s)
        if (room and not best_room) or (room == best_room and joules < least):
            best, least, best_room = s, joules, room
    _send(answers, memory, best, _gang(view, memory, job))


@rule
def _joint_nf(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    job = view.asked_N[0]
    record = view.job_J[job]
    s = uniform_site(view, memory, job)
    row = s * view.speed_KSCGF.shape[2] + record.class_
    best_gpus, least = 0, np.inf
    for gpus in range(record.gpus_min, min(record.gpus_max, view.site_S[s].gpus) + 1):
        if memory.table_XY[row, gpus] < least:
            best_gpus, least = gpus, memory.table_XY[row, gpus]
    answer = answers.answer_N[0]
    answer.choice, answer.gpus, answer.level = 1 + s, best_gpus, memory.index_XY[row, best_gpus]


@rule
def _joint_nf_within(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    job = view.asked_N[0]
    record = view.job_J[job]
    s = uniform_site(view, memory, job)
    best_gpus, best_level, least, soonest = 0, 0, np.inf, np.inf
    for gpus in range(record.gpus_min, min(record.gpus_max, view.site_S[s].gpus) + 1):
        for level in range(view.site_S[s].levels):
            seconds = view.speed_KSCGF[SECONDS, s, record.class_, gpus, level]
            joules = view.speed_KSCGF[POWER_W, s, record.class_, gpus, level] * seconds
            taken_s = record.work * seconds + route_delay_s(view, job, s)
            late_s = 0.0 if taken_s <= memory.number_P[TARGET] else taken_s
            if late_s < soonest or (late_s == soonest and joules < least):
                best_gpus, best_level, least, soonest = gpus, level, joules, late_s
    answer = answers.answer_N[0]
    answer.choice, answer.gpus, answer.level = 1 + s, best_gpus, best_level


def least_joules(power_w_SCGF: F8, seconds_per_unit_SCGF: F8) -> tuple[F8, I8]:
    """Returns the least energy per unit of work, J, and the clock level that takes it.

    Both have a row per site and class (s x C + c) and a column per gang; where no power is given it is infinite.

    Args:
        power_w_SCGF: Active IT power, W; NaN where there is no such level.
        seconds_per_unit_SCGF: Time per unit of work, s.
    """
    joules_XGF = (power_w_SCGF * seconds_per_unit_SCGF).reshape(-1, *power_w_SCGF.shape[2:])
    joules_XGF[np.isnan(joules_XGF)] = np.inf
    return joules_XGF.min(axis=2), joules_XGF.argmin(axis=2)


RULES: Final[dict[str, Any]] = {
    "uniform": _uniform,
    "random-free": _random_free,
    "most-free": _most_free,
    "greedy-energy": _greedy_energy,
    "jointnf": _joint_nf,
}


@rule
def _cheapest_now(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    job = view.asked_N[0]
    best, least, some_room = -1, np.inf, False
    for s in range(view.site_S.shape[0]):
        if not view.mask_NA[0, 1 + s]:
            continue
        site = view.site_S[s]
        room = site.free - site.waiting_gpus >= view.job_J[job].gpus_min
        cost = -run_value_usd(view, job, s) if room else site.waiting_gpus / site.gpus
        if best < 0 or (room and not some_room) or (room == some_room and cost < least):
            best, least, some_room = s, cost, room
    answers.answer_N[0].choice = 1 + best


class CheapestNow(CompiledScheduler):
    """Greedy: each job at once to the cheapest site of its range with GPUs left (Hall et al., Sec. V.D).

    Without room anywhere it queues where the least waits for the site's size. Cheapest is what earns most over leaving
    the GPUs free, at this hour's price and carbon.
    """

    needs = Needs(protocols=("on-arrival",), signals=True)
    rule = staticmethod(_cheapest_now)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns an empty memory."""
        return RuleMemory.make()


class Router(CompiledScheduler):
    """Routes each job at its arrival.

    Args:
        where: ``uniform``: a uniformly random site (the one the workload names, where it does); ``random-free``: a
            random site with a free GPU and a random gang; ``most-free``: the site with the most free GPUs;
            ``greedy-energy``: the least energy per unit less what its GPUs would draw free, among the sites with a
            free GPU; ``jointnf``: uniform site, then gang and clock of least energy per unit.
        target_s: Under ``jointnf``, take only what keeps transfer and run within this, s, and the fastest where nothing
            does: the limit of the service level that the paper names (CHSAC-AF, Sec. V). Infinite: none.
        gpus: Largest gang, GPUs; 0 for all a job can use. A job starts with as many as are free.
        spare: Under ``greedy-energy``, GPUs that a site must have free beyond the job's smallest gang. Jobs that are on
            their way to the same site then still find room there.
        clock: Clock as a share of the maximum clock, which every site must offer; None for the oracle.

    Raises:
        ValueError: An argument is out of range.
    """

    needs = Needs(protocols=("on-arrival",))

    def __init__(
        self,
        where: Literal["uniform", "random-free", "most-free", "greedy-energy", "jointnf"],
        *,
        gpus: int = 0,
        clock: float | None = None,
        target_s: float = np.inf,
        spare: int = 0,
    ) -> None:
        if where not in RULES:
            raise ValueError(f"unknown routing {where!r}; known: {', '.join(RULES)}")
        if gpus < 0:
            raise ValueError(f"gang of {gpus} GPUs; it must be at least 1, or 0 for all a job can use")
        if not target_s > 0 or (where != "jointnf" and target_s < np.inf):
            raise ValueError(
                f"limit of {target_s:g} s under {where!r}; it must be above 0, and is read by jointnf alone"
            )
        if spare < 0 or (where != "greedy-energy" and spare):
            raise ValueError(f"{spare} spare GPUs under {where!r}; at least 0, and only greedy-energy leaves any")
        self.rule = RULES[where] if target_s == np.inf else _joint_nf_within
        self.where = where
        self.gpus = gpus
        self.clock = clock
        self.target_s = target_s
        self.spare = spare

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns the gang, the limit and the spare GPUs (numbers) and the clock level per site (index).

        Under ``jointnf`` the table and the indices are those of ``least_joules``.

        Raises:
            ScenarioError: A site does not offer the clock.
        """
        levels = clock_levels(brief, self.clock)[:, None]
        table, index = np.zeros((1, 1)), levels
        if self.where == "jointnf":
            tables = brief.fleet.tables(brief.largest_gang)
            table, index = least_joules(tables.power_w_SCGF, tables.seconds_per_unit_SCGF)
        return RuleMemory.make(
            numbers=(float(self.gpus), self.target_s, float(self.spare)),
            table=table,
            index=index,
            random_state=int(rng.integers(2**63)),
        )


def clock_levels(brief: Brief, clock: float | None) -> np.ndarray:
    """Returns the level of a clock at every site, or ORACLE.

    Raises:
        ScenarioError: A site does not offer the clock.
    """
    levels = np.full(len(brief.sites), ORACLE, np.int64)
    if clock is None:
        return levels
    for s, site in enumerate(brief.fleet.sites):
        clocks = brief.fleet.gpu_types[site.gpu_type].clocks
        near = np.isclose(clocks, clock, rtol=0, atol=1e-9)
        if not near.any():
            raise ScenarioError(
                f"site {site.name!r} does not offer the clock {clock} (share of the maximum clock); it offers "
                f"{', '.join(f'{level:g}' for level in clocks)}; choose a policy of another clock, as dp-max-clock or "
                "jointnf"
            )
        levels[s] = int(near.argmax())
    return levels
