"""Observations: the view as the numbers a net is fed, each of order 1. The docstrings are the specification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from noonward.arrays import F4, F8
from noonward.compiled import kernel
from noonward.decision.brief import Brief
from noonward.decision.cluster.feasibility import first_start_s
from noonward.decision.cluster.lives import back_s, resume_until_s
from noonward.decision.cluster.value import (
    energy_usd,
    forecast_energy_usd,
    forecast_value_usd,
    gang_at,
    run_seconds,
    run_value_usd,
    travel_cost_usd,
)
from noonward.decision.cluster.view import (
    ASK_RUNNING,
    CARBON,
    HOLD,
    ORACLE,
    POWER_W,
    PRICE,
    SECONDS,
    ClusterView,
    latest_start_s,
    route_delay_s,
)
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.freedom import Lever
from noonward.model.cluster.setting import Protocol
from noonward.units import DAY_S, HOUR_S

EXTENDED, FORECAST_H, GPUS_MAX, SIGNALS, START_S, CLASSES, RAW, LEVELS, RUNNING, PREFERENCES = range(10)
"""Positions in ``Observation.numbers``; weights of a second per class follow under ``preferences``, W."""
SITE_ENTRIES: Final = ("gang", "run_time", "slack", "free", "queue", "price", "carbon")
"""Entries of a site under ``each-slot``."""
GANG: Final = 8.0
PRICE_USD_PER_MWH: Final = 100.0
CARBON_G_PER_KWH: Final = 500.0
LEFT_S: Final = 4 * HOUR_S
DATA_GB: Final = 10.0
VALUE_USD_PER_GPU_HOUR: Final = 0.05
SITE_GPUS: Final = 500.0
DELAY_S: Final = 0.2
SECOND_W: Final = 100.0


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What an agent is shown. Entries are float32, in the order of the tables.

    Short forms: time(x) = sqrt(x / 24 h); left(x) = x / (x + 4 h), 1 for no deadline; signed(x) = 2 x / (|x| + 1), so
    1 stays 1 and nothing passes 2; price(p) = signed(p / 100 USD/MWh); carbon(i) = i / 500 g/kWh; value(u) =
    signed(u / (GPU-hours of the job x 0.05 USD)). "Run time" is with the largest gang at the oracle's clock.

    Protocol ``each-slot``, global part. Site by site the state of MASAC, Sec. III; a site that is not asked about a
    job has zeros for it:

    | entry | per | value |
    |---|---|---|
    | gang | site | smallest gang r of the job the site is asked about / 8 GPUs |
    | run_time | site | time(run time d of that job at the site) |
    | slack | site | left(time to the job's deadline, d' left) |
    | free | site | free GPUs / GPUs |
    | queue | site | sqrt(GPUs asked by the queue / GPUs) |
    | price | site | price(price of the hour) |
    | carbon | site | carbon(intensity of the hour) |
    | running | site | 1 if the site is asked about a running job, else 0 (``running``) |
    | hour_sin, hour_cos | | of the hour of day, UTC (``extended``) |
    | price+1 ... price+h | site | price(forecast l hours on) (``extended`` with ``forecast_h``) |
    | carbon+1 ... carbon+h | site | carbon(forecast l hours on) (``extended`` with ``forecast_h``) |

    Protocol ``each-slot``, own part (``extended``), about the job the agent's site is asked about; zeros without one:

    | entry | per | value |
    |---|---|---|
    | gang | | as above |
    | run_time | | as above |
    | slack | | left(time to the job's latest start at the site, its result's return counted) |
    | deadline | | left(time to its deadline) |
    | data | | data and model that travel / 10 GB |
    | result | | result / 10 GB |
    | now | choice | value(of the job there at this hour's price and intensity over leaving GPUs free, less travel) |
    | best | choice | the same under the forecast at its best start (``forecast_h``) |

    Choices are hold and the sites. Hold counts the job at the own site, from the next slot on; the own site, a start
    now; another site, from the slot in which it would join the queue there. The best start is the best of the
    earliest, each full hour after it, and the latest. 0 where the choice is masked or no start is left. Hours that no
    forecast knows are shown as the last known one; a start whose run touches them does not count, and if none is left
    ``best`` is ``now``.

    About a running job (``running``) gang is the one it runs on, run_time what is left of its run, slack and deadline
    the time by which it would have to be resumed less the time from which it could be, data and result 0. ``now`` is 0
    but for hold: value(of the rest of its run at this hour's price and intensity over leaving its GPUs free, without
    revenue). ``best`` is that under the forecast: hold, from now on; the own site (suspension), at the best time to
    resume it, its load included.

    Protocol ``on-arrival``, global part (there is no own part):

    | entry | per | value |
    |---|---|---|
    | gpus | site | GPUs / 500 |
    | busy | site | busy GPUs / GPUs |
    | free | site | free GPUs / GPUs |
    | clock | site | oracle's clock for the job's class at its smallest gang, share of the maximum |
    | queue | site | ln(1 + jobs that wait) / ln 1000 |
    | hour_sin, hour_cos | | of the hour of day, UTC |
    | size | | time(shortest run time of the job at its smallest gang over the sites) |
    | from | ingress | 1 for the job's ingress point, else 0 |
    | class | class | 1 for the job's class, else 0 (``extended`` with ``classes``) |
    | preference | | w / (w + 100 W), w the weight of a second of the job's class (``extended`` with ``preferences``) |
    | energy_1 ... energy_G | site | 1 - least E_unit of all / E_unit at the oracle's clock; 0 for 0 (``extended``) |
    | time_1 ... time_G | site | time(the job's run time with that gang at the oracle's clock) (``extended``) |
    | energy_1_0 ... energy_G_F-1 | site | instead, where clocks are chosen: the same at every clock level |
    | time_1_0 ... time_G_F-1 | site | instead, where clocks are chosen: the same at every clock level |
    | delay | site | signed(delay from the ingress point, wait for the link included / 0.2 s) (``extended``) |
    | price, carbon | site | of the hour (``extended`` with ``signals``) |
    | price+1 ..., carbon+1 ... | site | as above (``extended`` with ``forecast_h``) |

    Gangs outside the job's own range, or larger than the site, have zeros, and so have levels that a site lacks.

    Protocol ``on-arrival``, kind ``raw``: seconds since the run's start, then site by site GPUs, busy GPUs, free GPUs,
    clock (as above) and jobs that wait, as they are: the state of CHSAC-AF's public code, a control. But for the clock
    nothing of it is of order 1, nor of the job.

    Attributes:
        kind: ``paper``: the papers' state; ``extended``: more; ``raw``: see above.
        protocol: Protocol of the environments.
        forecast_h: Hours of forecast (``extended``); 0 for none.
        gpus_max: Largest gang G of the choices (``on-arrival``), GPUs.
        levels: Clock levels F of the choices (``on-arrival``), as many as the site with most has; 0: the clock is no
            choice, it is the oracle's.
        signals: Whether price and intensity are shown (``on-arrival``, ``extended``); ``each-slot`` always shows them.
        classes: Job classes whose one-hot is shown, all of the fleet's (``on-arrival``, ``extended``); 0 for none.
        preferences: Whether the weight of latency against energy is shown (``on-arrival``, ``extended``).
        running: Whether sites are asked about running jobs that may be suspended, too (``each-slot``).

    Raises:
        ValueError: A field is out of range or does not fit the others.

    Example:
        >>> Observation(kind="paper").global_size(5), Observation(kind="paper").own_size(5)
        (35, 0)
        >>> Observation(kind="extended", forecast_h=2).own_size(5)
        18
    """

    kind: Literal["paper", "extended", "raw"]
    protocol: Protocol = "each-slot"
    forecast_h: int = 0
    gpus_max: int = 8
    levels: int = 0
    signals: bool = False
    classes: int = 0
    preferences: bool = False
    running: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("kind", ("paper", "extended", "raw")), ("protocol", get_args(Protocol))):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"unknown observation {name} {value!r}; {nearest(str(value), allowed)}")
        for names, kind in (
            (("forecast_h", "gpus_max", "levels", "classes"), int),
            (("signals", "preferences", "running"), bool),
        ):
            for name in names:
                if type(getattr(self, name)) is not kind:
                    said = "a whole number" if kind is int else "true or false"
                    raise ValueError(f"observation {name} is {getattr(self, name)!r}; allowed: {said}")
        if self.forecast_h < 0 or self.gpus_max < 1 or self.levels < 0 or self.classes < 0:
            raise ValueError(
                f"observation with {self.forecast_h} hours of forecast, gangs up to {self.gpus_max} GPUs and "
                f"{self.levels} clock levels; allowed: at least 0 hours, 1 GPU and 0 levels"
            )
        if self.kind != "extended" and (self.forecast_h or self.signals or self.classes or self.preferences):
            raise ValueError(
                f"the observation {self.kind!r} shows no forecasts, signals, classes or preferences; use "
                "kind='extended'"
            )
        if self.kind == "raw" and self.protocol == "each-slot":
            raise ValueError("the observation 'raw' is for protocol on-arrival; use kind='paper' or 'extended'")
        if self.protocol == "on-arrival" and self.running:
            raise ValueError("under on-arrival nobody is asked about running jobs; leave out running")
        if self.protocol == "each-slot" and self.levels:
            raise ValueError("under each-slot the clock is always the oracle's; use levels=0")
        if self.protocol == "each-slot" and (self.signals or self.classes or self.preferences):
            raise ValueError(
                "under each-slot signals are always shown, classes and preferences never; leave all three out"
            )

    def global_size(self, sites: int, ingress: int | None = None) -> int:
        """Returns the entries of the global part.

        Args:
            sites: Number of sites.
            ingress: Number of ingress points (``on-arrival``); as many as sites unless given.
        """
        return len(self.names([""] * sites, None if ingress is None else [""] * ingress))

    def own_size(self, sites: int) -> int:
        """Returns the entries of an agent's own part."""
        return len(self.own_names([""] * sites))

    def choices(self, sites: int) -> int:
        """Returns the choices of an agent: 1 + sites, or sites x gangs x clocks under on-arrival."""
        return 1 + sites if self.protocol == "each-slot" else sites * self.gpus_max * self.clocks

    @property
    def levers(self) -> tuple[Lever, ...]:
        """What is done with running jobs by those who see this: they suspend them where they are shown."""
        return ("suspend",) if self.running else ()

    @property
    def clocks(self) -> int:
        """Clocks to choose from for a gang at a site: the levels, or 1, the oracle's (``on-arrival``)."""
        return max(1, self.levels)

    def parts(self, choice: int) -> tuple[int, int, int]:
        """Returns site, gang and clock level (``ORACLE`` where it is no choice) of a choice (``on-arrival``).

        Example:
            >>> Observation(kind="paper", protocol="on-arrival", gpus_max=4, levels=3).parts(14)
            (1, 1, 2)
        """
        rest, level = divmod(choice, self.clocks)
        site, gang = divmod(rest, self.gpus_max)
        return site, gang + 1, level if self.levels else ORACLE

    def choice_of(self, site: int, gpus: int, level: int) -> int:
        """Returns the choice of site, gang and clock level; the level is not read where clocks are no choice."""
        return (site * self.gpus_max + gpus - 1) * self.clocks + (level if self.levels else 0)

    def names(self, sites: Sequence[str], ingress: Sequence[str] | None = None) -> tuple[str, ...]:
        """Returns the names of the global part's entries, ``entry/site``."""
        points = sites if ingress is None else ingress
        extended = self.kind == "extended"
        if self.protocol == "each-slot":
            entries = (*SITE_ENTRIES, "running") if self.running else SITE_ENTRIES
            out = [f"{entry}/{site}" for site in sites for entry in entries]
            out += ["hour_sin", "hour_cos"] if extended else []
            return (*out, *self._forecast_names(sites))
        out = [f"{entry}/{site}" for site in sites for entry in ("gpus", "busy", "free", "clock", "queue")]
        if self.kind == "raw":
            return ("time", *out)
        out += ["hour_sin", "hour_cos", "size", *(f"from/{point}" for point in points)]
        if extended:
            out += [f"class/{number}" for number in range(self.classes)]
            out += ["preference"] if self.preferences else []
            levels = [f"_{level}" for level in range(self.levels)] or [""]
            each = [f"{gpus}{level}" for gpus in range(1, self.gpus_max + 1) for level in levels]
            gangs = [f"{entry}_{gang}" for entry in ("energy", "time") for gang in each]
            entries = (*gangs, "delay", *(("price", "carbon") if self.signals else ()))
            out += [f"{entry}/{site}" for site in sites for entry in entries]
        return (*out, *self._forecast_names(sites))

    def own_names(self, sites: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the own part's entries."""
        if self.kind != "extended" or self.protocol == "on-arrival":
            return ()
        parts = ("now", "best") if self.forecast_h else ("now",)
        choices = [f"{part}/{choice}" for part in parts for choice in ("hold", *sites)]
        return ("gang", "run_time", "slack", "deadline", "data", "result", *choices)

    def _forecast_names(self, sites: Sequence[str]) -> Iterator[str]:
        for site in sites:
            for signal in ("price", "carbon"):
                yield from (f"{signal}+{lead}/{site}" for lead in range(1, self.forecast_h + 1))

    def numbers(self, brief: Brief) -> F8:
        """Returns what the compiled functions need to know.

        Args:
            brief: Brief of the run.

        Raises:
            ScenarioError: The run does not fit: its protocol, its signals or its gangs.
        """
        self._check(brief)
        out = np.zeros(PREFERENCES + 1)
        out[EXTENDED], out[FORECAST_H], out[GPUS_MAX] = self.kind == "extended", self.forecast_h, self.gpus_max
        out[SIGNALS], out[START_S] = self.signals, brief.start.hour * HOUR_S
        out[CLASSES], out[RAW] = self.classes, self.kind == "raw"
        out[LEVELS], out[RUNNING], out[PREFERENCES] = self.levels, self.running, self.preferences
        if not self.preferences:
            return out
        return np.concatenate([out, [brief.latency_weight_w[name] for name in brief.fleet.classes]])

    def _check(self, brief: Brief) -> None:
        where = f"scenario {brief.scenario!r}"
        if brief.protocol != self.protocol:
            raise ScenarioError(
                f"the observation is of protocol {self.protocol}, but {where} asks {brief.protocol}; "
                f"use Observation(protocol={brief.protocol!r})"
            )
        wants_signals = self.protocol == "each-slot" or self.signals or self.forecast_h > 0
        if wants_signals and not brief.signals:
            raise ScenarioError(f"the observation shows prices and intensities, but {where} has no signals; add them")
        if self.protocol == "each-slot" and self.kind == "extended" and brief.economics is None:
            raise ScenarioError(f"the observation shows what jobs are worth, but {where} has no economics; add them")
        if self.classes not in (0, len(brief.fleet.classes)):
            raise ScenarioError(
                f"the observation shows {self.classes} job classes, but {where} has {len(brief.fleet.classes)}; "
                f"use classes={len(brief.fleet.classes)}"
            )
        if self.preferences and not brief.latency_weight_w:
            raise ScenarioError(
                f"the observation shows preferences, but {where} states none; give every class a weight: "
                f"--set latency_weight_w={{{', '.join(f'{name}: 30' for name in brief.fleet.classes)}}}"
            )
        smallest = brief.largest_need
        if self.protocol == "on-arrival" and smallest > self.gpus_max:
            raise ScenarioError(
                f"a job of {where} needs {smallest} GPUs at once, but the choices end at {self.gpus_max}; "
                "raise the observation's gpus_max"
            )
        most = brief.fleet.clock_levels
        if self.levels not in (0, most):
            raise ScenarioError(
                f"the observation has {self.levels} clock levels to choose from, but sites of {where} have up to "
                f"{most}; use levels={most}"
            )


@kernel(inline=True, allocates=False)
def _time(seconds: float) -> float:
    return np.sqrt(seconds * (1.0 / DAY_S))


@kernel(inline=True, allocates=False)
def _left(seconds: float) -> float:
    return 1.0 - 1.0 / (1.0 + max(0.0, seconds) / LEFT_S)


@kernel(inline=True, allocates=False)
def _signed(number: float) -> float:
    return 2.0 * number / (abs(number) + 1.0)


@kernel(inline=True, allocates=False)
def _write_hour(view: ClusterView, numbers_P: F8, out_G: F4, at: int) -> int:
    """Writes sine and cosine of the hour of day; returns the next position."""
    angle = 2.0 * np.pi * (numbers_P[START_S] + view.run_1[0].now_s) / DAY_S
    out_G[at] = np.sin(angle)
    out_G[at + 1] = np.cos(angle)
    return at + 2


@kernel(inline=True, allocates=False)
def _write_forecasts(view: ClusterView, numbers_P: F8, out_G: F4, at: int) -> int:
    """Writes the forecasts of every site; returns the next position."""
    leads = int(numbers_P[FORECAST_H])
    for s in range(view.site_S.shape[0]):
        price, carbon = view.site_S[s].price, view.site_S[s].carbon
        for lead in range(1, leads + 1):
            ahead = (view.forecast_KSL[PRICE, s, lead + 1] - view.forecast_KSL[PRICE, s, lead]) / HOUR_S
            price = price if np.isnan(ahead) else ahead
            out_G[at + lead - 1] = _signed(price / PRICE_USD_PER_MWH)
            ahead = (view.forecast_KSL[CARBON, s, lead + 1] - view.forecast_KSL[CARBON, s, lead]) / HOUR_S
            carbon = carbon if np.isnan(ahead) else ahead
            out_G[at + leads + lead - 1] = carbon / CARBON_G_PER_KWH
        at += 2 * leads
    return at


@kernel(inline=True, allocates=False)
def _first_start_s(view: ClusterView, job: int, s: int, choice: int) -> float:
    """Returns when a job of site s starts at the earliest under a choice, s."""
    if choice == HOLD:
        return view.run_1[0].now_s + view.run_1[0].slot_s
    return first_start_s(view, job, s, choice - 1)


@kernel(inline=True, allocates=False)
def best_value_usd(view: ClusterView, job: int, site: int, first_s: float, last_s: float) -> float:
    """Returns what a job is worth at a site under the forecast at its best start, USD; NaN if no start is known.

    Args:
        view: View with forecasts.
        job: Job.
        site: Site.
        first_s: Earliest start, s.
        last_s: Latest start, s; the forecast's end limits it.
    """
    known_s = (view.run_1[0].now_s // HOUR_S + view.forecast_KSL.shape[2] - 1) * HOUR_S
    last_s = min(last_s, known_s - run_seconds(view, job, site))
    best, start_s = np.nan, first_s
    while start_s <= last_s:
        value = forecast_value_usd(view, job, site, start_s)
        if np.isnan(best) or value > best:
            best = value
        if start_s == last_s:
            break
        start_s = min((start_s // HOUR_S + 1.0) * HOUR_S, last_s)
    return best


@kernel(inline=True, allocates=False)
def _write_own(view: ClusterView, numbers_P: F8, job: int, s: int, own_O: F4) -> None:
    """Writes the own part of site s."""
    now, record, choices = view.run_1[0].now_s, view.job_J[job], view.site_S.shape[0] + 1
    own_O[0] = record.gpus_min / GANG
    own_O[1] = _time(run_seconds(view, job, s))
    own_O[2] = _left(latest_start_s(view, job, s) - now)
    own_O[3] = _left(record.deadline_s - now)
    own_O[4] = record.move_gb / DATA_GB
    own_O[5] = record.result_gb / DATA_GB
    for choice in range(choices):
        d = s if choice == HOLD else choice - 1
        first_s, last_s = _first_start_s(view, job, s, choice), latest_start_s(view, job, d)
        fits = record.gpus_min <= view.site_S[d].gpus
        if not view.mask_NA[s, choice] or first_s > last_s or not fits:
            continue
        travel = travel_cost_usd(view, job, s, d)
        gpu_hours = gang_at(view, job, d) * run_seconds(view, job, d) / HOUR_S
        unit = gpu_hours * VALUE_USD_PER_GPU_HOUR
        value = run_value_usd(view, job, d)
        own_O[6 + choice] = _signed((value - travel) / unit)
        if numbers_P[FORECAST_H] > 0:
            best = best_value_usd(view, job, d, first_s, first_s if choice == 1 + s else last_s)
            own_O[6 + choices + choice] = _signed(((value if np.isnan(best) else best) - travel) / unit)


@kernel(inline=True, allocates=False)
def _extra_power_w(view: ClusterView, job: int) -> float:
    """Returns the facility power of a running job over that of its GPUs when free, W: PUE (P - n free power)."""
    life, record = view.life_J[job], view.job_J[job]
    power_w = view.freedom_C[record.class_].cap_power[life.cap]
    power_w *= view.speed_KSCGF[POWER_W, life.site, record.class_, life.gpus, life.level]
    site = view.site_S[life.site]
    return site.pue * (power_w - life.gpus * site.free_w)


@kernel(inline=True, allocates=False)
def _write_own_running(view: ClusterView, numbers_P: F8, job: int, s: int, own_O: F4) -> None:
    """Writes the own part of site s about its running job."""
    life, now, choices = view.life_J[job], view.run_1[0].now_s, view.site_S.shape[0] + 1
    left_s, back, until = life.until_s - now, back_s(view, job), resume_until_s(view, job)
    own_O[0] = life.gpus / GANG
    own_O[1] = _time(max(0.0, left_s))
    own_O[2] = own_O[3] = _left(until - back)
    unit = max(life.gpus * left_s / HOUR_S, 1e-9) * VALUE_USD_PER_GPU_HOUR
    site, extra_w = view.site_S[s], _extra_power_w(view, job)
    now_usd = extra_w * energy_usd(view, site.price * left_s, site.carbon * left_s)
    own_O[6] = _signed(-now_usd / unit)
    if numbers_P[FORECAST_H] == 0:
        return
    known_s = (now // HOUR_S + view.forecast_KSL.shape[2] - 1) * HOUR_S
    hold_usd = extra_w * forecast_energy_usd(view, s, now, left_s) if now + left_s <= known_s else np.nan
    own_O[6 + choices] = _signed(-(now_usd if np.isnan(hold_usd) else hold_usd) / unit)
    if not view.mask_NA[s, 1 + s]:
        return
    least, start_s = np.nan, back
    seconds = left_s + view.freedom_C[view.job_J[job].class_].load_s
    while start_s <= min(until, known_s - seconds):
        usd = extra_w * forecast_energy_usd(view, s, start_s, seconds)
        if not np.isnan(usd) and (np.isnan(least) or usd < least):
            least = usd
        start_s = (start_s // HOUR_S + 1.0) * HOUR_S
    own_O[6 + choices + 1 + s] = _signed(-(now_usd if np.isnan(least) else least) / unit)


@kernel(inline=True, allocates=False)
def observe_each_slot(view: ClusterView, numbers_P: F8, global_G: F4, own_NO: F4) -> None:
    """Writes the observation of a question of protocol each-slot.

    Args:
        view: The question.
        numbers_P: ``Observation.numbers``.
        global_G: Global part, filled whole.
        own_NO: Own parts, filled whole.
    """
    at, now, running = 0, view.run_1[0].now_s, view.run_1[0].kind == ASK_RUNNING
    own_NO[:, :] = 0.0
    for s in range(view.site_S.shape[0]):
        job, site = view.asked_N[s], view.site_S[s]
        if job >= 0 and running:
            life = view.life_J[job]
            global_G[at] = life.gpus / GANG
            global_G[at + 1] = _time(max(0.0, life.until_s - now))
            global_G[at + 2] = _left(resume_until_s(view, job) - back_s(view, job))
            if numbers_P[EXTENDED] > 0:
                _write_own_running(view, numbers_P, job, s, own_NO[s])
        elif job >= 0:
            global_G[at] = view.job_J[job].gpus_min / GANG
            global_G[at + 1] = _time(run_seconds(view, job, s))
            global_G[at + 2] = _left(view.job_J[job].deadline_s - now)
            if numbers_P[EXTENDED] > 0:
                _write_own(view, numbers_P, job, s, own_NO[s])
        else:
            global_G[at : at + 3] = 0.0
        global_G[at + 3] = site.free / site.gpus
        global_G[at + 4] = np.sqrt(site.waiting_gpus / site.gpus)
        global_G[at + 5] = _signed(site.price / PRICE_USD_PER_MWH)
        global_G[at + 6] = site.carbon / CARBON_G_PER_KWH
        at += 7
        if numbers_P[RUNNING] > 0:
            global_G[at] = 1.0 if running and job >= 0 else 0.0
            at += 1
    if numbers_P[EXTENDED] > 0:
        at = _write_hour(view, numbers_P, global_G, at)
        _write_forecasts(view, numbers_P, global_G, at)


@kernel(inline=True, allocates=False)
def _seconds(view: ClusterView, job: int, s: int, gpus: int, level: int) -> float:
    """Returns the time per unit of a job's gang at a clock level, s."""
    return view.speed_KSCGF[SECONDS, s, view.job_J[job].class_, gpus, level]


@kernel(inline=True, allocates=False)
def _joules(view: ClusterView, job: int, s: int, gpus: int, level: int) -> float:
    """Returns E_unit of a gang at a clock level, J per unit: P T PUE (CHSAC-AF, Eq. 1)."""
    power_w = view.speed_KSCGF[POWER_W, s, view.job_J[job].class_, gpus, level]
    return power_w * _seconds(view, job, s, gpus, level) * view.site_S[s].pue


@kernel(inline=True, allocates=False)
def _level(view: ClusterView, numbers_P: F8, job: int, s: int, gpus: int, clock: int) -> int:
    """Returns the level of a clock to choose from: the level itself, or the oracle's where clocks are no choice."""
    return clock if numbers_P[LEVELS] > 0 else view.oracle_SCG[s, view.job_J[job].class_, gpus]


@kernel(inline=True, allocates=False)
def _clocks(view: ClusterView, numbers_P: F8, s: int) -> int:
    """Returns how many clocks there are to choose from at a site."""
    return view.site_S[s].levels if numbers_P[LEVELS] > 0 else 1


@kernel(inline=True, allocates=False)
def _write_gangs(view: ClusterView, numbers_P: F8, job: int, out_G: F4, at: int) -> int:
    """Writes energy and time of every gang and clock, delay, price and intensity of every site.

    Returns:
        The next position.
    """
    record, largest, clocks = view.job_J[job], int(numbers_P[GPUS_MAX]), max(1, int(numbers_P[LEVELS]))
    choices, least = largest * clocks, np.inf
    for s in range(view.site_S.shape[0]):
        for gpus in range(record.gpus_min, min(record.gpus_max, view.site_S[s].gpus, largest) + 1):
            for clock in range(_clocks(view, numbers_P, s)):
                least = min(least, _joules(view, job, s, gpus, _level(view, numbers_P, job, s, gpus, clock)))
    for s in range(view.site_S.shape[0]):
        out_G[at : at + 2 * choices] = 0.0
        for gpus in range(record.gpus_min, min(record.gpus_max, view.site_S[s].gpus, largest) + 1):
            for clock in range(_clocks(view, numbers_P, s)):
                level, here = _level(view, numbers_P, job, s, gpus, clock), at + (gpus - 1) * clocks + clock
                joules = _joules(view, job, s, gpus, level)
                out_G[here] = 1.0 - least / joules if joules > 0.0 else 0.0
                out_G[here + choices] = _time(record.work * _seconds(view, job, s, gpus, level))
        at += 2 * choices
        out_G[at] = _signed(route_delay_s(view, job, s) / DELAY_S)
        at += 1
        if numbers_P[SIGNALS] > 0:
            out_G[at] = _signed(view.site_S[s].price / PRICE_USD_PER_MWH)
            out_G[at + 1] = view.site_S[s].carbon / CARBON_G_PER_KWH
            at += 2
    return at


@kernel(inline=True, allocates=False)
def _write_raw(view: ClusterView, out_G: F4) -> None:
    """Writes the state of kind ``raw``."""
    record = view.job_J[view.asked_N[0]]
    out_G[0] = view.run_1[0].now_s
    for s in range(view.site_S.shape[0]):
        site, at = view.site_S[s], 1 + 5 * s
        out_G[at] = site.gpus
        out_G[at + 1] = site.gpus - site.free
        out_G[at + 2] = site.free
        out_G[at + 3] = view.clock_SF[s, view.oracle_SCG[s, record.class_, record.gpus_min]]
        out_G[at + 4] = site.waiting


@kernel(inline=True, allocates=False)
def observe_on_arrival(view: ClusterView, numbers_P: F8, global_G: F4, own_NO: F4) -> None:
    """Writes the observation of a question ASK_ROUTE of protocol on-arrival; arguments as ``observe_each_slot``."""
    if numbers_P[RAW] > 0:
        _write_raw(view, global_G)
        return
    at, job = 0, view.asked_N[0]
    record, shortest = view.job_J[job], np.inf
    for s in range(view.site_S.shape[0]):
        site = view.site_S[s]
        level = view.oracle_SCG[s, record.class_, record.gpus_min]
        global_G[at] = site.gpus / SITE_GPUS
        global_G[at + 1] = (site.gpus - site.free) / site.gpus
        global_G[at + 2] = site.free / site.gpus
        global_G[at + 3] = view.clock_SF[s, level]
        global_G[at + 4] = np.log1p(site.waiting) / np.log(1000.0)
        shortest = min(shortest, record.work * _seconds(view, job, s, record.gpus_min, level))
        at += 5
    at = _write_hour(view, numbers_P, global_G, at)
    global_G[at] = _time(shortest)
    at += 1
    for i in range(view.link_IS.shape[0]):
        global_G[at + i] = 1.0 if i == record.origin else 0.0
    at += view.link_IS.shape[0]
    classes = int(numbers_P[CLASSES])
    for c in range(classes):
        global_G[at + c] = 1.0 if c == record.class_ else 0.0
    at += classes
    if numbers_P[PREFERENCES] > 0:
        weight_w = numbers_P[PREFERENCES + 1 + record.class_]
        global_G[at] = weight_w / (weight_w + SECOND_W)
        at += 1
    if numbers_P[EXTENDED] > 0:
        at = _write_gangs(view, numbers_P, job, global_G, at)
        _write_forecasts(view, numbers_P, global_G, at)
