"""The job table of your own scenario: its places and GPU types under the fleet's own names."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from noonward.data.gpu_library import plain_gpu
from noonward.data.jobs.classes import classed
from noonward.data.jobs.dated import JobRows, job_rows
from noonward.data.scenarios.own_fleet import ONE_CLASS, OwnFleet, Pool
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.scenario import JobTable
from noonward.units import HOUR_S


def dated_rows(asked: OwnFleet) -> JobRows | None:
    """Returns the rows of the job table, None without one.

    Raises:
        ScenarioError: It has no dates.
        DataError: It cannot be read.
    """
    if asked.jobs is None:
        return None
    rows = job_rows(JobTable(source="table", path=asked.jobs))
    if rows.submit_s_J is None:
        raise ScenarioError(
            f"{asked.jobs} has no dates (column submit_time); your own fleet takes dated jobs: noonward import"
        )
    return rows


def own_jobs(asked: OwnFleet, notes: list[str]) -> pl.DataFrame | None:
    """Returns the job table under the fleet's own names; None where it may stay as it is, or there is none.

    Args:
        asked: What the scenario is made from.
        notes: Receives what was decided.

    Raises:
        ScenarioError: A place of the table is no site of the fleet.
        DataError: The table cannot be read.
    """
    rows = dated_rows(asked)
    if rows is None:
        return None
    frame = rows.table.frame
    sites = list(dict.fromkeys(pool.site for pool in asked.pools))
    for name, site in asked.origins.items():
        if site not in sites:
            raise ScenarioError(f"--origin {name}={site}: there is no site {site!r}; {nearest(site, sites)}")
    if asked.origin is not None:
        if asked.origin not in sites:
            raise ScenarioError(f"--origin {asked.origin}: there is no such site; {nearest(asked.origin, sites)}")
        places = pl.Series([asked.origin]).new_from_index(0, frame.height)
    elif "origin" in frame.columns:
        places = frame["origin"].cast(pl.String).replace(dict(asked.origins))
    elif len(sites) == 1:
        places = pl.Series(sites).new_from_index(0, frame.height)
    else:
        raise ScenarioError(
            f"{asked.jobs} does not say where its jobs come from (no column origin); give the site: --origin "
            f"{sites[0]}. If another column says it, such as Partition, import the log with --column "
            "origin=Partition, and give --origin VALUE=SITE for each of its values"
        )
    unknown = sorted(set(places.drop_nulls()) - set(sites))
    if unknown:
        shown = ", ".join(repr(name) for name in unknown[:8])
        raise ScenarioError(
            f"{asked.jobs}: jobs come from {shown}, which is no site of the fleet ({', '.join(sites)}); say "
            f"which site it is: --origin '{unknown[0]}={sites[0]}'"
        )
    if places.is_null().any():
        raise ScenarioError(
            f"{asked.jobs}: {places.null_count():,} of {frame.height:,} jobs do not say where they come from; name the "
            f"site of their log when you import it: noonward import ... --origin FILE={sites[0]}"
        )
    made = _in_pools(asked, frame, places, notes)
    if made.equals(frame):
        return None
    notes.append(f"the jobs' origins, GPU types and classes were mapped to the fleet's: {asked.name}-jobs.csv")
    return made


def _in_pools(asked: OwnFleet, frame: pl.DataFrame, places: pl.Series, notes: list[str]) -> pl.DataFrame:
    """Returns a job table with the pool that each job comes from and, where types differ, the class of its type."""
    kinds = frame["gpu_type"] if "gpu_type" in frame.columns else pl.Series([None]).new_from_index(0, frame.height)
    pools: dict[tuple[str, str | None], Pool] = {}
    guessed = 0
    for place, kind in set(zip(places, kinds, strict=True)):
        here = [pool for pool in asked.pools if pool.site == place]
        alike = [pool for pool in here if kind and plain_gpu(pool.gpu.name).startswith(plain_gpu(kind))]
        if len(here) > 1 and len(alike) != 1:
            count = int(((places == place) & (kinds == kind if kind else kinds.is_null())).sum())
            alike = alike or here
            guessed += count
            notes.append(
                f"{count} jobs of {place} ran on {kind or 'GPUs of an unnamed type'}, which may be any of "
                f"{', '.join(pool.gpu.name for pool in here)}: taken as {alike[0].gpu.name}"
            )
        pools[place, kind] = alike[0] if len(here) > 1 else here[0]
    of = [pools[place, kind] for place, kind in zip(places, kinds, strict=True)]
    made = frame.with_columns(origin=pl.Series([pool.name for pool in of]))
    if "start_site" in frame.columns:
        made = made.with_columns(start_site=_recorded_pools(asked, frame["start_site"], kinds))
    classes = _classes_of(asked, frame)
    if asked.class_slack_h:
        told = {name: str(hours * HOUR_S) for name, hours in asked.class_slack_h.items()}
        own = frame["slack_s"].cast(pl.String) if "slack_s" in frame.columns else None
        others = pl.lit(str(asked.slack_h * HOUR_S)) if own is None else own
        slack = classes.replace_strict(told, default=None, return_dtype=pl.String)
        made = made.with_columns(pl.when(slack.is_not_null()).then(slack).otherwise(others).alias("slack_s"))
    if asked.by_type:
        classes = pl.Series([asked.class_of(name, pool.gpu.name) for name, pool in zip(classes, of, strict=True)])
    elif asked.job_classes == (ONE_CLASS,):
        return made
    return made.with_columns(classes.alias("class"))


def with_classes(asked: OwnFleet, notes: list[str]) -> OwnFleet:
    """Returns what the scenario is made from with the classes of its job table.

    Args:
        asked: What the scenario is made from.
        notes: Receives how many jobs each class has.

    Raises:
        ScenarioError: A class or a site is told of that there is not.
        DataError: The table cannot be read, or has no column that a rule names.
    """
    rows = dated_rows(asked)
    if rows is None:
        if asked.rules:
            raise ScenarioError("--class names columns of a job table, and none was given; add --jobs FILE")
    elif asked.rules or "class" in rows.table.frame.columns:
        classes = _classes_of(asked, rows.table.frame)
        counts = dict(zip(*classes.value_counts().sort("count", descending=True).get_columns(), strict=True))
        notes.append("classes of jobs: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        asked = replace(asked, job_classes=tuple(sorted(counts)))
    for option, named in (("--class-slack-h", asked.class_slack_h), ("--class-sites", asked.class_sites)):
        for name in named:
            if name not in asked.job_classes:
                hint = nearest(name, asked.job_classes)
                raise ScenarioError(f"{option} names the class {name!r}, which no job of the table has; {hint}")
    sites = {pool.site for pool in asked.pools}
    for name, told in asked.class_sites.items():
        for site in told:
            if site not in sites:
                raise ScenarioError(f"--class-sites {name}: there is no site {site!r}; {nearest(site, sites)}")
    return asked


def _classes_of(asked: OwnFleet, frame: pl.DataFrame) -> pl.Series:
    """Returns the class of each job of a table."""
    assert asked.jobs is not None
    made, _ = classed(frame, asked.rules, asked.jobs.name)
    if "class" not in made.columns:
        return pl.Series([ONE_CLASS]).new_from_index(0, frame.height)
    classes = made["class"].cast(pl.String).str.strip_chars().fill_null("")
    return classes.set(classes == "", ONE_CLASS)


def _recorded_pools(asked: OwnFleet, sites: pl.Series, kinds: pl.Series) -> pl.Series:
    """Returns the pools that jobs ran in as recorded; a name that is none of the fleet's stays as it is."""
    named = sites.cast(pl.String).replace(dict(asked.origins))
    pool_of: dict[tuple[str | None, str | None], str | None] = {}
    for site, kind in set(zip(named, kinds, strict=True)):
        here = [pool for pool in asked.pools if pool.site == site]
        alike = [pool for pool in here if kind and plain_gpu(pool.gpu.name).startswith(plain_gpu(kind))]
        pool_of[site, kind] = (alike or here)[0].name if here else site
    return pl.Series([pool_of[pair] for pair in zip(named, kinds, strict=True)], dtype=pl.String)
