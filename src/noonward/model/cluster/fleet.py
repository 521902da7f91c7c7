"""The fleet: sites with their GPUs, the ingress points jobs arrive at, and the tables engines read."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from noonward.arrays import F8, I8
from noonward.errors import nearest
from noonward.model.cluster.books import Ppa
from noonward.model.cluster.devices import BehindMeter
from noonward.model.cluster.freedom import Freedom, check_freedoms
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.power import GpuType, energy_optimal_level
from noonward.model.cluster.pue import PueFile
from noonward.model.cluster.tariff import Tariff
from noonward.model.cluster.water import Water
from noonward.model.cluster.withheld import GpuFile, GpuStep
from noonward.model.spec import LARGEST, Count, NonNegative, Spec, without_defaults


class Site(Spec):
    """A data center: GPUs of one type in one electricity zone."""

    name: str = Field(min_length=1)
    """Unique name."""
    zone: str = Field(min_length=1)
    """Key of its electricity zone in the signals."""
    gpu_type: str
    """Name of its GPU type."""
    gpus: Count
    """Number of GPUs. In a scenario file it is a number, steps (``[{from: 2024-05-06, gpus: 96}, ...]``, the first of
    which holds before it, too), or a file of them (``GpuFile``, or its path); then this is the most there ever are."""
    gpus_by_time: tuple[GpuStep, ...] | GpuFile | None = None
    """The steps, or their file, where the number changes."""
    pue: float = Field(default=1.0, ge=1, le=LARGEST)
    """Power usage effectiveness: facility power over IT power. In a scenario file it is a number, or a file of
    hours (``PueFile``, or its path); then this is the median of the hours."""
    pue_by_hour: PueFile | None = None
    """File of the hours, where it changes."""
    timezone: str | None = None
    """IANA time zone of its users (for the daily shape of arrivals); by default the zone's own."""
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    """Latitude, degrees, for maps; by default a place in its electricity zone."""
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None
    """Longitude, degrees."""
    meter: Meter | None = None
    """Its meter (docs/meter.md); none: energy is settled, power is not metered."""
    behind_meter: BehindMeter | None = None
    """Battery, solar cells and export (docs/meter.md)."""
    ppa: Ppa | None = None
    """Contract for the output of a plant in its zone (docs/carbon-books.md)."""
    water: Water | None = None
    """Water that it uses, on-site and off-site; it needs a meter (docs/pue.md)."""

    @model_validator(mode="before")
    @classmethod
    def _gpus_of_steps(cls, said: Any) -> Any:
        """Takes steps of GPUs, or their file, for those by time; of a file the most is known once it is read."""
        told = said.get("gpus") if isinstance(said, dict) else None
        if not isinstance(told, str | dict | GpuFile | list | tuple) or (isinstance(told, str) and told.isdigit()):
            return said
        if not isinstance(told, list | tuple):
            return {**said, "gpus": 1, "gpus_by_time": {"path": told} if isinstance(told, str) else told}
        steps = [GpuStep.model_validate(step) for step in told]
        if not steps:
            raise ValueError("gpus holds no step; give a number, or steps such as [{from: 2024-05-06, gpus: 96}]")
        if any(step.from_ >= after.from_ for step, after in itertools.pairwise(steps)):
            raise ValueError("the steps of gpus do not ascend; give them in the order of time, each time once")
        most = max(step.gpus for step in steps)
        if most < 1:
            raise ValueError("no step of gpus has a GPU; give at least one that has, or leave the site out")
        return {**said, "gpus": most, "gpus_by_time": steps}

    @model_validator(mode="before")
    @classmethod
    def _pue_of_file(cls, said: Any) -> Any:
        """Takes a file that is given as the PUE for that of its hours."""
        if isinstance(said, dict) and isinstance(said.get("pue"), str | dict | PueFile):
            told = said["pue"]
            rest = {name: value for name, value in said.items() if name != "pue"}
            return {**rest, "pue_by_hour": {"path": told} if isinstance(told, str) else told}
        return said

    @model_validator(mode="after")
    def _whole_place(self) -> Self:
        if (self.lat is None) != (self.lon is None):
            raise ValueError(f"site {self.name!r} has lat or lon alone; give both, or neither")
        return self

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out what is optional and not stated: digests of scenarios without it stay what they were."""
        said: dict[str, Any] = write(self)
        if said.get("pue_by_hour") is not None:
            said["pue"] = said.pop("pue_by_hour")
        if said.get("gpus_by_time") is not None:
            said["gpus"] = said.pop("gpus_by_time")
        optional = ("pue_by_hour", "gpus_by_time", "lat", "lon", "meter", "behind_meter", "ppa", "water")
        return {name: value for name, value in said.items() if name not in optional or value is not None}


class Ingress(Spec):
    """A point where jobs arrive."""

    name: str = Field(min_length=1)
    """Unique name."""
    home: str | None = None
    """Site it belongs to; none for a region that holds no GPUs."""


class Fleet(Spec):
    """Sites, GPU types and ingress points."""

    gpu_types: dict[str, GpuType]
    """GPU types by name."""
    sites: tuple[Site, ...] = Field(min_length=1)
    """Sites, in the order of every array's site axis."""
    ingress: tuple[Ingress, ...] | Literal["sites"] = "sites"
    """Ingress points in the order of their axis; ``sites``: one at home in every site."""
    free_gpus: Literal["idle", "sleep"] = "idle"
    """What free GPUs do: stay awake at idle power or sleep at once."""
    clock_weight_w: NonNegative = 0.0
    """What a second less of a run is worth when a GPU frequency is chosen, J per s; 0: minimum energy (CHSAC-AF,
    Eq. 2)."""
    ranges: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Sites that jobs of a class may run at, by class; a class that is not named may run anywhere."""
    freedoms: dict[str, Freedom] = Field(default_factory=dict)
    """What may be done to running jobs, by class; jobs of a class that is not named run unbroken."""
    tariffs: dict[str, Tariff] = Field(default_factory=dict)
    """Tariffs by name, for the meters of sites."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_repeats("site", (site.name for site in self.sites))
        refuse_repeats("ingress", (point.name for point in self.ingress_points))
        for site in self.sites:
            if site.gpu_type not in self.gpu_types:
                raise ValueError(
                    f"site {site.name!r} has the unknown GPU type {site.gpu_type!r}; "
                    f"{nearest(site.gpu_type, self.gpu_types)}"
                )
        names = {site.name for site in self.sites}
        for point in self.ingress_points:
            if point.home is not None and point.home not in names:
                raise ValueError(
                    f"ingress {point.name!r} has the unknown home {point.home!r}; {nearest(point.home, names)}"
                )
        for name, kind in self.gpu_types.items():
            if list(kind.clocks) != sorted(set(kind.clocks)) or kind.clocks[-1] > 1:
                raise ValueError(
                    f"GPU type {name!r} has clocks {list(kind.clocks)}; they must ascend, be distinct and at most 1"
                )
            if self.free_gpus == "sleep" and kind.sleep_w is None:
                raise ValueError(f"GPU type {name!r} has no sleep_w, but free GPUs sleep; give sleep_w in W")
            if set(kind.classes) != set(self.classes):
                raise ValueError(
                    f"GPU type {name!r} has profiles of the classes {sorted(kind.classes)}, others of "
                    f"{sorted(self.classes)}; give every GPU type a profile of every class"
                )
        self._check_ranges()
        check_freedoms(self.freedoms, self.classes)
        for site in self.sites:
            self._check_meter(site)
        return self

    def _check_meter(self, site: Site) -> None:
        """Raises ValueError if a meter names an unknown tariff, or one whose charges it cannot meter."""
        meter = site.meter
        if site.water is not None and meter is None:
            raise ValueError(f"site {site.name!r} states water, but has no meter to reckon it by; give meter: {{}}")
        if meter is None or meter.tariff is None:
            if site.ppa is not None:
                raise ValueError(
                    f"site {site.name!r} has a contract for a plant's output (ppa), but no meter with a tariff to hold "
                    "it against; give meter: {tariff: NAME}"
                )
            if site.behind_meter is not None:
                raise ValueError(
                    f"site {site.name!r} has devices behind its meter, but no meter with a tariff, which they are "
                    "dispatched by; give meter: {tariff: NAME}"
                )
            return
        if meter.tariff not in self.tariffs:
            raise ValueError(
                f"the meter of site {site.name!r} has the unknown tariff {meter.tariff!r}; "
                f"{nearest(meter.tariff, self.tariffs)}"
            )
        tariff = self.tariffs[meter.tariff]
        for interval_min in [
            *(charge.interval_min for charge in tariff.demand), *(charge.interval_min for charge in tariff.coincident)
        ]:  # fmt: skip
            if interval_min % meter.interval_min:
                raise ValueError(
                    f"tariff {meter.tariff!r} charges power over {interval_min} min, but the meter of site "
                    f"{site.name!r} reads every {meter.interval_min} min; give an interval_min that divides it"
                )
        if meter.system_load is None and len(meter.system_peaks) != len(tariff.coincident):
            raise ValueError(
                f"tariff {meter.tariff!r} has {len(tariff.coincident)} coincident charges, and the meter of site "
                f"{site.name!r} states the system peaks of {len(meter.system_peaks)}; give system_load, or one list "
                "of system_peaks per charge"
            )

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "freedoms", "tariffs")

    def tariff_of(self, s: int) -> Tariff | None:
        """Returns the tariff of the site at a position; None for a site without one."""
        meter = self.sites[s].meter
        return None if meter is None or meter.tariff is None else self.tariffs[meter.tariff]

    def _check_ranges(self) -> None:
        """Raises ValueError if a range is empty, names a site twice, or names an unknown class or site."""
        for name, sites in self.ranges.items():
            if name not in self.classes:
                raise ValueError(f"ranges name the unknown class {name!r}; {nearest(name, self.classes)}")
            if not sites:
                raise ValueError(f"class {name!r} has an empty range; name the sites it may run at, or leave it out")
            if len(set(sites)) < len(sites):
                raise ValueError(f"the range of class {name!r} names a site twice: {list(sites)}; name each once")
            for site in sites:
                if site not in self.site_names:
                    raise ValueError(
                        f"the range of class {name!r} names the unknown site {site!r}; {nearest(site, self.site_names)}"
                    )

    @property
    def billed(self) -> bool:
        """Whether a site has a tariff: what it charges beyond a price of energy no other figure contains."""
        return any(site.meter is not None and site.meter.tariff is not None for site in self.sites)

    @property
    def classes(self) -> tuple[str, ...]:
        """Job classes, in the order of every array's class axis."""
        return tuple(next(iter(self.gpu_types.values())).classes)

    @property
    def ingress_points(self) -> tuple[Ingress, ...]:
        """Ingress points, made out of the sites where the file says so."""
        if self.ingress == "sites":
            return tuple(Ingress(name=site.name, home=site.name) for site in self.sites)
        return self.ingress

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(site.name for site in self.sites)

    @property
    def clock_levels(self) -> int:
        """Clock levels of the site that has the most."""
        return max(len(self.gpu_types[site.gpu_type].clocks) for site in self.sites)

    def site_index(self, name: str) -> int:
        """Returns a site's position.

        Raises:
            ValueError: There is no such site.
        """
        if name not in self.site_names:
            raise ValueError(f"unknown site {name!r}; {nearest(name, self.site_names)}")
        return self.site_names.index(name)

    def with_gpus(self, gpus: Sequence[int]) -> Self:
        """Returns the same fleet with other numbers of GPUs, one a site, that do not change."""
        sites = [
            site.model_copy(update={"gpus": count, "gpus_by_time": None})
            for site, count in zip(self.sites, gpus, strict=True)
        ]
        return self.model_copy(update={"sites": tuple(sites)})

    def tables(self, gpus_max: int) -> FleetTables:
        """Returns the arrays engines read, with gangs of 0 (unused) to ``gpus_max`` GPUs."""
        kinds = [self.gpu_types[site.gpu_type] for site in self.sites]
        levels_S = np.array([len(kind.clocks) for kind in kinds], dtype=np.int64)
        shape = (len(self.sites), len(self.classes), gpus_max + 1, int(levels_S.max()))
        clock_SF = np.full((shape[0], shape[3]), np.nan)
        power_w_SCGF = np.full(shape, np.nan)
        seconds_per_unit_SCGF = np.full(shape, np.nan)
        oracle_level_SCG = np.zeros(shape[:3], dtype=np.int64)
        gangs = np.arange(1, gpus_max + 1, dtype=np.float64)[:, None]
        types = np.array([site.gpu_type for site in self.sites])
        for gpu_type in dict.fromkeys(types.tolist()):
            kind, there = self.gpu_types[gpu_type], np.flatnonzero(types == gpu_type)
            clocks = np.array(kind.clocks)
            width = len(clocks)
            clock_SF[there, :width] = clocks
            for c, name in enumerate(self.classes):
                profile = kind.classes[name]
                power = profile.power.power_w(gangs, clocks)
                seconds = profile.seconds_per_unit(gangs, clocks)
                power_w_SCGF[there, c, 1:, :width] = power
                seconds_per_unit_SCGF[there, c, 1:, :width] = seconds
                oracle_level_SCG[there, c, 1:] = energy_optimal_level(power, seconds, self.clock_weight_w)
        range_CS = np.ones((len(self.classes), len(self.sites)), dtype=np.uint8)
        for name, sites in self.ranges.items():
            range_CS[self.classes.index(name)] = [site in sites for site in self.site_names]
        free_w = [kind.sleep_w if self.free_gpus == "sleep" else kind.idle_w for kind in kinds]
        homes = [-1 if point.home is None else self.site_index(point.home) for point in self.ingress_points]
        return FleetTables(
            gpus_S=np.array([site.gpus for site in self.sites], dtype=np.int64),
            pue_S=np.array([site.pue for site in self.sites]),
            free_w_S=np.array(free_w, dtype=np.float64),
            home_I=np.array(homes, dtype=np.int64),
            levels_S=levels_S,
            range_CS=range_CS,
            clock_SF=clock_SF,
            power_w_SCGF=power_w_SCGF,
            seconds_per_unit_SCGF=seconds_per_unit_SCGF,
            oracle_level_SCG=oracle_level_SCG,
        )


@dataclass(frozen=True, kw_only=True)
class FleetTables:
    """The fleet as arrays. Axes: S sites, I ingress points, C classes, G gang sizes from 0, F clock levels.

    Attributes:
        gpus_S: GPUs; of sites whose number changes the most there are.
        pue_S: Power usage effectiveness; of sites whose PUE changes by the hour the number it is reckoned with.
        free_w_S: IT power of a free GPU, W.
        home_I: Site an ingress belongs to, or -1.
        levels_S: Number of clock levels.
        range_CS: 1 where jobs of a class may run.
        clock_SF: Clock levels; NaN beyond a site's own number.
        power_w_SCGF: Active IT power P(n, f), W; NaN at n = 0.
        seconds_per_unit_SCGF: T(n, f), s per unit; NaN at n = 0.
        oracle_level_SCG: Level the clock oracle takes, f*(n): least energy per unit (``clock_weight_w`` 0).
    """

    gpus_S: I8
    pue_S: F8
    free_w_S: F8
    home_I: I8
    levels_S: I8
    range_CS: NDArray[np.uint8]
    clock_SF: F8
    power_w_SCGF: F8
    seconds_per_unit_SCGF: F8
    oracle_level_SCG: I8

    @functools.cached_property
    def slowest_s_C(self) -> F8:
        """Longest time per unit that a job of a class may take, at any site, gang and clock, s."""
        return np.asarray(np.nanmax(self.seconds_per_unit_SCGF[:, :, 1:], axis=(0, 2, 3)))


def refuse_repeats(what: str, names: Iterable[str]) -> None:
    """Raises ValueError if a name stands twice.

    Example:
        >>> refuse_repeats("site", ["a", "b", "a"])
        Traceback (most recent call last):
        ValueError: the site name 'a' stands twice; give every site a name of its own
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {what} name {name!r} stands twice; give every {what} a name of its own")
        seen.add(name)
