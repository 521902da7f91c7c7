"""What your own scenario is made from: sites with zones and GPUs, files of signals and jobs, days, delay, prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

from noonward.data.gpu_library import Gpu, find_gpu
from noonward.data.jobs.classes import OTHER_CLASS, ClassRule
from noonward.data.local_time import zone_timezones
from noonward.errors import ScenarioError, nearest
from noonward.files import SLUG

ONE_CLASS: Final = OTHER_CLASS
"""Class of all jobs where the table states none and they are not bound to a GPU type."""
LEAVE_ALONE_MIN = 15.0
"""Jobs that run for less than this, min, are not delayed unless you say otherwise."""
OVERTIME_H = 24
"""Hours after the window in which late jobs may start where no job has a latest start."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """GPUs of one type at a site.

    Attributes:
        site: Name of the site.
        zone: Its electricity zone.
        gpu: GPU type.
        gpus: Number of GPUs.
        name: Name in the scenario: the site's, with the type's where it has several.
    """

    site: str
    zone: str
    gpu: Gpu
    gpus: int
    name: str


def parse_site(text: str) -> list[Pool]:
    """Returns the pools of a site written ``NAME=ZONE:COUNTxGPU``, several types separated by commas.

    Raises:
        ScenarioError: The text has another form, or a GPU is unknown.

    Example:
        >>> [(pool.name, pool.zone, pool.gpus) for pool in parse_site("oslo=NO-NO1:32xH100-SXM,64xL4")]
        [('oslo-h100-sxm', 'NO-NO1', 32), ('oslo-l4', 'NO-NO1', 64)]
    """
    match = re.fullmatch(r"\s*([^=:]+)=([^=:]+):(.+)", text)
    if match is None:
        raise ScenarioError(f"site {text!r} is not of the form NAME=ZONE:COUNTxGPU, e.g. berlin=DE:64xA100-80-SXM")
    site, zone = match[1].strip(), match[2].strip()
    if not SLUG.fullmatch(site):
        raise ScenarioError(f"site name {site!r}: use letters, digits, dots, dashes and underscores")
    parts = [part.strip() for part in match[3].split(",")]
    pools = []
    for part in parts:
        counted = re.fullmatch(r"(\d+)\s*[x*]\s*(.+)", part)
        if counted is None or int(counted[1]) < 1:
            raise ScenarioError(f"site {site!r}: {part!r} is not of the form COUNTxGPU, e.g. 64xA100-80-SXM")
        gpu = find_gpu(counted[2])
        name = site if len(parts) == 1 else f"{site}-{gpu.name.lower()}"
        pools.append(Pool(site=site, zone=zone, gpu=gpu, gpus=int(counted[1]), name=name))
    return pools


@dataclass(frozen=True, kw_only=True)
class OwnFleet:
    """What your own scenario is made from.

    Attributes:
        name: Name of the scenario.
        pools: GPUs of the sites.
        pue: Power usage effectiveness of all sites.
        signals: Signal files; none: generated signals.
        jobs: Dated job table or log; None: generated jobs.
        origins: Site by the name of a place in the job table.
        origin: Site that all jobs come from, where the table names no place.
        rules: Rules that give jobs their class; the first that fits.
        job_classes: Classes of the job table; the only one, ``ONE_CLASS``, where it has none.
        bound_classes: Classes, each of jobs of one GPU type, that jobs of the table have; None: not looked up.
        class_slack_h: Largest accepted delay of a start of jobs of a class, h, above ``slack_h``.
        class_sites: Sites that jobs of a class may run at; those of other classes may run at all.
        first: First day of the window; None: found from jobs and signals.
        last: Last day of the window.
        slack_h: Largest accepted delay of a start, h; infinite for none.
        late_usd_per_gpu_hour: Price of an hour that a job starts later than that, per GPU; 0: lateness is a limit.
        waiting_usd_per_hour: What an hour is worth that a job waits.
        gpu_usd_per_hour: What a GPU costs per hour whether it runs or not; 0: not said.
        leave_alone_min: Jobs that run for less, min, have no slack.
        carbon_usd_per_t: Carbon price.
        revenue_usd_per_gpu_hour: What a GPU-hour of work is worth.
    """

    name: str
    pools: tuple[Pool, ...]
    pue: float = 1.3
    signals: tuple[Path, ...] = ()
    jobs: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None
    rules: tuple[ClassRule, ...] = ()
    job_classes: tuple[str, ...] = (ONE_CLASS,)
    bound_classes: frozenset[str] | None = None
    class_slack_h: Mapping[str, float] = field(default_factory=dict)
    class_sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: date | None = None
    last: date | None = None
    slack_h: float = 24.0
    late_usd_per_gpu_hour: float = 0.0
    waiting_usd_per_hour: float = 0.0
    gpu_usd_per_hour: float = 0.0
    leave_alone_min: float = LEAVE_ALONE_MIN
    carbon_usd_per_t: float = 100.0
    revenue_usd_per_gpu_hour: float = 2.0

    def __post_init__(self) -> None:
        if not self.pools:
            raise ScenarioError("no site was given; give at least one: --site berlin=DE:64xA100-80-SXM")
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ScenarioError(
                f"site {twice[0]!r} stands twice; name every site once, all its GPU types in one --site"
            )
        for pool in self.pools:
            if pool.zone not in zone_timezones() and not self.signals:
                raise ScenarioError(
                    f"site {pool.site!r}: zone {pool.zone!r} is unknown; {nearest(pool.zone, zone_timezones())} "
                    "('noonward init --zones' lists them)"
                )

    @property
    def by_type(self) -> bool:
        """Whether jobs are bound to GPU types: there are several, and a table of jobs that ran on one of them."""
        return self.jobs is not None and len({pool.gpu.name for pool in self.pools}) > 1

    @property
    def classes(self) -> dict[str, list[str]]:
        """Pools that jobs of a class may run in, by class.

        A class that no job of the table has is left out where its sites lack its GPU type.

        Raises:
            ScenarioError: All sites that a class may run at lack the GPU type that its jobs are bound to.
        """
        kinds = dict.fromkeys(pool.gpu.name for pool in self.pools) if self.by_type else [None]
        found = {}
        for name in self.job_classes:
            sites = self.class_sites.get(name, tuple(pool.site for pool in self.pools))
            for kind in kinds:
                pools = [pool.name for pool in self.pools if pool.site in sites and kind in (None, pool.gpu.name)]
                of_type = name if kind is None else self.class_of(name, kind)
                if not pools and self.bound_classes is not None and of_type not in self.bound_classes:
                    continue
                if not pools:
                    raise ScenarioError(
                        f"jobs of class {name!r} may run at {', '.join(sites)} alone, where there is no {kind}, which "
                        "jobs are bound to; name a site that has it"
                    )
                found[of_type] = pools
        return found

    def class_of(self, name: str, kind: str) -> str:
        """Returns the class of jobs of a class of the table that are bound to a GPU type."""
        return kind.lower() if self.job_classes == (ONE_CLASS,) else f"{name}-{kind.lower()}"
