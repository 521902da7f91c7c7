"""What happened: a job log replayed as a policy, every job at the site and from the time that the log states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, I8
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import Answers, ClusterView, RuleMemory
from noonward.decision.scheduler import CompiledScheduler
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import NO_SITE, UNKNOWN_SITE, Jobs

SITE, START = 0, 1
"""Columns of the rule's table, a row a job: site to start at, and earliest start, s."""
WHAT_HAPPENED = "what-happened"
"""Name of the policy."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Where and from when a log's jobs are replayed, and what of the log cannot be.

    Attributes:
        site_J: Site.
        start_s_J: Earliest start, seconds since the run's start.
        unknown_J: Jobs whose recorded site the fleet does not have.
        too_large_J: Jobs that do not fit their recorded site, or may not run there.
        undated_J: Jobs without a recorded start.
        early_J: Jobs whose recorded start is before their submission.
    """

    site_J: I8
    start_s_J: F8
    unknown_J: np.ndarray
    too_large_J: np.ndarray
    undated_J: np.ndarray
    early_J: np.ndarray


def replay_of(jobs: Jobs, fleet: Fleet) -> Replay:
    """Returns how a log's jobs are replayed.

    A job without a site that it can run at, as recorded, stays at its origin's site if it can run there, else it goes
    to the first site of the fleet that it can run at. One without a recorded start, or with one before its submission,
    starts as soon as there is room.
    """
    tables = fleet.tables(1)
    can_JS = (tables.range_CS[jobs.class_J] == 1) & (jobs.gpus_min_J[:, None] <= tables.gpus_S[None])
    row_J = np.arange(len(jobs))
    home_J = tables.home_I[jobs.origin_J]
    at_home_J = (home_J >= 0) & can_JS[row_J, home_J]
    elsewhere_J = np.where(at_home_J, home_J, can_JS.argmax(axis=1))
    named_J = jobs.recorded_site_J >= 0
    fits_J = named_J & can_JS[row_J, jobs.recorded_site_J]
    undated_J = np.isnan(jobs.recorded_start_s_J)
    early_J = ~undated_J & (jobs.recorded_start_s_J < jobs.arrival_s_J)
    return Replay(
        site_J=np.where(fits_J, jobs.recorded_site_J, elsewhere_J),
        start_s_J=np.where(undated_J | early_J, jobs.arrival_s_J, jobs.recorded_start_s_J),
        unknown_J=jobs.recorded_site_J == UNKNOWN_SITE,
        too_large_J=named_J & ~fits_J,
        undated_J=undated_J,
        early_J=early_J,
    )


@rule
def _as_recorded(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    now = view.run_1[0].now_s
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        serial = view.job_J[job].serial
        d = int(memory.table_XY[serial, SITE])
        if view.mask_NA[s, 1 + d] and (d != s or now >= memory.table_XY[serial, START]):
            answers.answer_N[s].choice = 1 + d
        elif d == s:
            answers.answer_N[s].earliest_s = memory.table_XY[serial, START]


class WhatHappened(CompiledScheduler):
    """Replays a log: every job at the site and from the time that the log states (docs/own-fleet.md).

    A job leaves for its site when it arrives, and starts in the first second with room at or after its recorded start:
    its slots are seconds, so that no job is late only because others end at a slot.
    Jobs for whose record the fleet has no place follow ``replay_of``.
    """

    rule = staticmethod(_as_recorded)
    needs = Needs(protocols=("each-slot",), record=True)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns site and earliest start of every job, by its serial."""
        assert brief.recorded is not None, "check_fit"
        replay = replay_of(brief.recorded, brief.fleet)
        return RuleMemory.make(table=np.column_stack([replay.site_J, replay.start_s_J]))

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns how many jobs cannot be replayed as recorded, and what is done with them."""
        if brief.recorded is None:
            return ()
        jobs, replay = brief.recorded, replay_of(brief.recorded, brief.fleet)
        elsewhere = "replayed where it came from, or at the first site that can run it"
        at_once = "replayed as starting as soon as there is room"
        told = [
            (replay.unknown_J, f"ran at a site that the fleet does not have: {elsewhere}"),
            (replay.too_large_J, f"ran at a site that, as described, cannot run it: {elsewhere}"),
            (jobs.recorded_site_J == NO_SITE, f"has no recorded site: {elsewhere}"),
            (replay.undated_J, f"has no recorded start: {at_once}"),
            (replay.early_J, f"has a recorded start before its submission: {at_once}"),
        ]
        count = len(jobs)
        return tuple(
            f"what-happened: each of {int(which_J.sum()):,} of {count:,} jobs {said}"
            for which_J, said in told
            if which_J.any()
        )
