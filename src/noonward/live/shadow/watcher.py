"""Watches a cluster: its jobs become jobs of the service, and what became of them there is noted beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from noonward.decision.cluster.view import POWER_W, SECONDS
from noonward.errors import DataError, ScenarioError
from noonward.live.config import ShadowConfig
from noonward.live.executors.protocol import ClusterError
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.requests import JobRequest, JobRow, RequestChecker
from noonward.live.shadow.queue import FIELDS, SeenJob, seen_jobs
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.live.store.submit import submission
from noonward.live.world.world import World
from noonward.model.cluster.fleet import Fleet
from noonward.units import HOUR_S

LEFT_OUT: Final = -1
"""Number of the job in the service of a watched job that it does not decide about."""
_log: Final = logging.getLogger("noonward.live")
_AT_ONCE: Final = 500
"""Numbers of jobs that one query names."""
_STORE: Final = """
INSERT INTO watched (site, number, submit_s, job, gpus, state, start_s, end_s, expected_s, power_w)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (site, number, submit_s) DO UPDATE SET
    job = excluded.job, state = excluded.state, start_s = excluded.start_s, end_s = excluded.end_s,
    expected_s = excluded.expected_s, power_w = excluded.power_w
"""


class Watcher:
    """Watches one Slurm cluster. A step may be repeated.

    A job that waits, and that nothing holds back, is submitted to the service when it is first seen, with the run time
    that its time limit lets expect. Jobs that ran before the watch began keep their GPUs until they end.

    Args:
        store: Store.
        slurm: The cluster.
        site: Number of its site.
        fleet: The fleet.
        config: How jobs are taken.
        largest_gang: Largest gang that the service takes, GPUs.
        world: Returns the books, for what a job draws and takes by the model.
        cancelled: Called with the number of a job in the service that was cancelled.

    Raises:
        ScenarioError: The site has no ingress point, or the class does not fit.
    """

    def __init__(
        self, store: Store, slurm: SlurmExecutor, site: int, fleet: Fleet, config: ShadowConfig, largest_gang: int,
        world: Callable[[], World], cancelled: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.store, self.slurm, self.site, self.config = store, slurm, site, config
        self.name = fleet.site_names[site]
        self._checker = RequestChecker(fleet, largest_gang)
        self._world, self._cancelled = world, cancelled
        homes = fleet.tables(1).home_I.tolist()
        if site not in homes:
            raise ScenarioError(f"no ingress point of the fleet is at {self.name}, which is watched; add one")
        self._origin = fleet.ingress_points[homes.index(site)].name
        self.left_out: dict[str, str] = {}

    def step(self) -> None:
        """Reads the cluster's jobs and stores what is new.

        Raises:
            ClusterError: The cluster did not answer.
            DataError: Its listing cannot be read.
        """
        seen = seen_jobs(self.slurm.listing(FIELDS), f"squeue of {self.name}")
        began = f"watched since {self.name}"
        first = self.store.value(began) is None
        known = self._known([job.number for job in seen])
        at = {(job.number, self._second(job.submit)): job for job in seen}
        new = [job for key, job in at.items() if key not in known and (first or not job.waits)]
        before, wanted = self._sorted_out(new, first)
        changed = [(job, known[key]) for key, job in at.items() if key in known and known[key]["state"] != job.phase]
        ended = [row for key, row in known.items() if key not in at and row["end_s"] is None]
        try:
            ends = self._ends(ended) if ended else {}
        except ClusterError as error:  # they stay open until the accounting answers
            _log.warning("%s: the ends of %d watched jobs are not known yet: %s", self.name, len(ended), error)
            ended, ends = [], {}

        def change(connection: Connection, now_s: float) -> None:
            numbers, _ = submission([row for _, row in wanted])(connection, now_s) if wanted else ([], 0)
            for (job, _), number in zip(wanted, numbers, strict=True):
                self._keep(connection, job, number, self._model(job))
            for job in before:
                self._keep(connection, job, LEFT_OUT, (None, None))
            for job, row in changed:
                self._keep(connection, job, row["job"], (row["expected_s"], row["power_w"]))
            for row in ended:
                start_s, end_s = ends.get(row["number"], (None, now_s))
                connection.execute(
                    "UPDATE watched SET state = 'gone', start_s = ?, end_s = ? WHERE site = ? AND number = ? AND "
                    "submit_s = ?",
                    (start_s, end_s, self.name, row["number"], row["submit_s"]),
                )
            if first:
                self.store.keep(connection, {began: now_s})
                add_event(connection, now_s, None, "watched", {"site": self.name, "jobs": len(seen)})

        if wanted or before or changed or ended or first:
            self.store.do(change)
        never = [row for job, row in changed if job.end is not None and job.start is None]
        for row in (*never, *(row for row in ended if row["number"] not in ends)):
            self._cancel(row["job"])

    def _known(self, listed: Sequence[str]) -> dict[tuple[str, float], Row]:
        """Returns the stored jobs that have not ended, and those that the cluster lists; the history is left alone."""
        rows = self.store.read("SELECT * FROM watched WHERE site = ? AND end_s IS NULL", self.name)
        for first in range(0, len(listed), _AT_ONCE):
            numbers = listed[first : first + _AT_ONCE]
            marks = ", ".join("?" * len(numbers))
            rows += self.store.read(
                f"SELECT * FROM watched WHERE site = ? AND number IN ({marks})", self.name, *numbers
            )
        return {(row["number"], row["submit_s"]): row for row in rows}

    def _sorted_out(self, jobs: Sequence[SeenJob], first: bool) -> tuple[list[SeenJob], list[tuple[SeenJob, JobRow]]]:
        """Returns those that are noted alone, and those that the service decides about."""
        noted, wanted = [], []
        for job in jobs:
            if first and (job.start is not None or job.end is not None):
                noted.append(job)  # it ran before the watch began
            elif job.end is not None and job.start is None:
                noted.append(job)  # it was cancelled before anything could be decided
            elif first and job.waits:
                continue
            else:
                try:
                    wanted.append((job, self._row(job)))
                except DataError as error:
                    self.left_out[job.number] = str(error)
                    noted.append(job)
        return noted, wanted

    def _row(self, job: SeenJob) -> JobRow:
        """Returns a job as it is submitted.

        Raises:
            DataError: It does not fit the fleet, or nobody knows how long it may run.
        """
        if self._expected_s(job) is None:
            raise DataError(f"job {job.number} has no time limit; say how long such jobs run (shadow: run_hours)")
        row = self._checker.row(
            JobRequest(
                name=(job.name or "job")[:200],
                work=float(self._expected_s(job) or 0.0),
                class_=self.config.class_,
                origin=self._origin,
                gpus_min=job.gpus,
                key=f"{self.name}/{job.number}/{job.submit:.0f}",
                time_limit_s=job.limit_s or None,
            )
        )
        return row._replace(run_by=job.user)

    def _expected_s(self, job: SeenJob) -> float | None:
        """Returns how long a job is expected to run, s."""
        if job.limit_s is not None:
            return max(1.0, job.limit_s * self.config.run_share)
        return None if self.config.run_hours is None else self.config.run_hours * HOUR_S

    def _ends(self, rows: Sequence[Row]) -> dict[str, tuple[float | None, float]]:
        """Returns when jobs that the controller has forgotten began and ended, as far as the accounting knows."""
        return {
            status.handle: (status.began_s, status.ended_s)
            for status in self.slurm.accounted([row["number"] for row in rows])
            if status.ended_s is not None
        }

    def _keep(
        self, connection: Connection, job: SeenJob, number: int, model: tuple[float | None, float | None]
    ) -> None:
        times = [None if at is None else self._second(at) for at in (job.start, job.end)]
        connection.execute(
            _STORE, (self.name, job.number, self._second(job.submit), number, job.gpus, job.phase, *times, *model)
        )

    def _model(self, job: SeenJob) -> tuple[float, float]:
        """Returns the run time that is expected at the cluster itself, s, and the power that the model gives, W."""
        view = self._world().view
        class_ = 0 if self.config.class_ is None else self._checker.classes.index(self.config.class_)
        level = int(view.oracle_SCG[self.site, class_, job.gpus])
        speed = view.speed_KSCGF[:, self.site, class_, job.gpus, level]
        return float((self._expected_s(job) or 0.0) * speed[SECONDS]), float(
            speed[POWER_W] * view.site_S["pue"][self.site]
        )

    def _second(self, posix_s: float) -> float:
        return round(self.store.second_of(posix_s), 3)

    def _cancel(self, number: int) -> None:
        """Ends a job that was cancelled at its cluster before it began there, if it has not been started here."""
        if number == LEFT_OUT:
            return

        def change(connection: Connection, now_s: float) -> None:
            cancelled = connection.execute(
                "UPDATE jobs SET state = 'cancelled', ended_s = ?, reason = 'cancelled at its cluster' WHERE id = ? "
                "AND state IN ('submitted', 'transit', 'waiting')",
                (now_s, number),
            )
            if cancelled.rowcount:
                add_event(connection, now_s, number, "cancelled", {"by": f"the owner at {self.name}"})

        self.store.do(change)
        self._cancelled(number)


def facts(store: Store, jobs: list[int]) -> dict[int, Row]:
    """Returns what became of watched jobs at their clusters, by the number of the job in the service."""
    if not jobs:
        return {}
    rows = store.read("SELECT * FROM watched WHERE job >= ? AND job <= ?", min(jobs), max(jobs))
    return {row["job"]: row for row in rows}
