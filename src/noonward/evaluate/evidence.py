"""What a comparison rests on: how many windows of jobs, whether its prices were recorded, what was assumed, and how to
get more windows.
"""

from __future__ import annotations

import math
from typing import Any, Final

from noonward.data.jobs.dated import job_rows
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.scenario import GeneratedSignals, JobTable, Scenario, SignalFiles, SinusoidalSignals

SPANS: Final = {"w2022": "the year 2022", "train": "January 2021 to June 2023"}
"""Years whose statistics generated prices and carbon intensities are drawn from, by calibration."""


def how_to_run_more(scenario: Any) -> str:
    """Returns how to compare over more windows of jobs, in words: the option that this scenario takes."""
    jobs = getattr(scenario, "jobs", None)
    if not isinstance(jobs, JobTable) or job_rows(jobs).days is None:
        return "-n"
    if not isinstance(scenario.signals, SignalFiles):
        return "--windows, on recorded prices: --signals FILE"
    return "--windows" if scenario.windows is None else "--windows: shorter ones, or of a longer log"


def made_prices(scenario: Any) -> str:
    """Returns a sentence that says where prices come from that were not recorded; empty where they were."""
    source = getattr(scenario, "signals", None)
    if isinstance(source, GeneratedSignals):
        made = f"drawn from the statistics of {SPANS[source.calibration]}"
    elif isinstance(source, SinusoidalSignals):
        made = "made of a cosine that repeats every day"
    else:
        return ""
    return (
        f"Prices and carbon intensities are {made}, not recorded: before you act, compare on recorded hours "
        "(--signals FILE)."
    )


def assumed(scenario: Scenario) -> str:
    """Returns what an own fleet's comparison assumes of its jobs and sites, in a sentence."""
    told = [*_waits(scenario), _reach(scenario.fleet)]
    network = scenario.network
    if not (network.usd_per_gb or network.kwh_per_gb):
        told.append("moving a job's data costs nothing")
    pue = sorted({site.pue for site in scenario.fleet.sites if isinstance(site.pue, int | float)})
    if pue:
        told.append(f"the PUE is {' to '.join(f'{each:g}' for each in (pue[0], pue[-1])[: len(pue)])}")
    return f"Assumed: {'; '.join(told)}."


def _waits(scenario: Scenario) -> list[str]:
    """Returns how long jobs may wait, where one setting says it."""
    jobs = scenario.jobs
    if not isinstance(jobs, JobTable) or jobs.slack_h is None or math.isinf(jobs.slack_h):
        return []
    frame = job_rows(jobs).table.frame
    own = " unless the job table says otherwise" if "slack_s" in frame.columns else ""
    return [f"a job may start up to {jobs.slack_h:g} hours after it arrives{own}"]


def _reach(fleet: Fleet) -> str:
    """Returns whether jobs may run in another electricity zone than the one where they arrive."""
    zones = list(dict.fromkeys(site.zone for site in fleet.sites))
    zone_of = {site.name: site.zone for site in fleet.sites}
    if len(zones) == 1:
        return f"all sites are in the zone {zones[0]}"
    roaming = [
        name for name in fleet.classes if len({zone_of[site] for site in fleet.ranges.get(name, tuple(zone_of))}) > 1
    ]
    if not roaming:
        return (
            "no job may run in another zone than the one where it arrives (ranges in the file; add a site to the list "
            "of a class to let its jobs run there)"
        )
    which = "jobs" if len(roaming) == len(fleet.classes) else f"jobs of class {', '.join(roaming)}"
    between = zones if len(zones) <= 4 else [*zones[:3], f"{len(zones) - 3} more"]
    return f"{which} may run in any zone ({', '.join(between)}), across borders"
