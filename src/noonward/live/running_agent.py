"""What a site's agent does with running jobs: suspend, resume, cap; each step may be repeated after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from noonward.live.aside import Aside
from noonward.live.executors.protocol import OVER, ClusterError, Executor, Order, RefusedError, Status
from noonward.live.executors.running import by_request
from noonward.live.orders import ORDERS, end, order_of, set_stage
from noonward.live.running_jobs import note_stopped
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store

IN_A_ROW: Final = 2
"""Jobs with which a cluster does nothing now after which the rest waits for the next step: it may be away, and a call
then takes as long as it may."""
WAIT_S: Final = 2.0
"""How long a site's deliveries wait for what is done with its running jobs, real s; after that it goes on beside."""
TO_ACT: Final = f"""
{ORDERS} WHERE o.site = ? AND o.stage IN ('stopping', 'resuming', 'dropped', 'suspended') AND (
    o.stage IN ('resuming', 'dropped')
    OR (o.stage = 'stopping' AND o.signalled_s IS NULL AND j.state IN ('starting', 'running'))
    OR (o.stage = 'suspended' AND j.state = 'suspended' AND j.cancelling <> 0))
"""
TO_STOP: Final = f"""
{ORDERS} WHERE o.site = ? AND o.stage = 'stopping' AND o.signalled_s IS NOT NULL AND j.state IN ('starting', 'running')
"""
TO_CAP: Final = f"{ORDERS} WHERE o.site = ? AND o.stage = 'released' AND o.cap <> o.cap_wanted AND j.state = 'running'"
TO_UNCAP: Final = f"""
{ORDERS} WHERE o.site = ? AND o.cap <> 0 AND o.stage || '' IN ('ended', 'withdrawn', 'suspended', 'dropped')
"""
"""The stage is put together, so that the index of capped attempts is read and not that of stages: most have ended."""
_log: Final = logging.getLogger("noonward.live")


class OfSite(Protocol):
    """What is needed of a site's agent (``handover.SiteAgent``)."""

    store: Store
    executor: Executor
    name: str
    ended: Callable[[int, float], None]

    def news(self, row: Row, status: Status | None) -> Status | None:
        """Returns what is new about a job, or None."""


class RunningJobsAgent:
    """Carries out at one cluster what was decided about its running jobs, and says what came of it.

    A suspension has five steps: the wish is committed (stage ``stopping``); the job is told to write its checkpoint,
    where the site states a signal; that is committed; when the job has ended or the grace is over, it is stopped; that
    is committed (stage ``suspended``) once the cluster says so, and only then does the engine free its GPUs. A
    resumption releases the job at its cluster, or hands it over again, under its own token. A power cap is set until
    the cap that is wanted is the one that is set, and is taken off when the job has left its GPUs.

    A cluster may take minutes to pass a signal on. Deliveries to the site do not wait for it: the jobs are gone through
    in a thread of their own, one after the other, and a job is in no other hands meanwhile, since its stage is one that
    hand-over and tracking pass over.

    Args:
        agent: Agent of the site.
        told: Called with what the cluster did (``World.running.told``).
        power: Share of full power that a class runs at under a power cap.
    """

    def __init__(self, agent: OfSite, told: Callable[..., None], power: Callable[[str, int], float]) -> None:
        self._agent, self.told, self._power = agent, told, power
        self._acting = Aside(self._act, WAIT_S)
        self._failed = 0

    def act(self) -> None:
        """Begins to stop jobs, resumes jobs, and ends what is left of suspended jobs that are not resumed.

        Where dispatch is off, suspended jobs wait until it is on. What takes longer than ``WAIT_S`` goes on by itself.
        """
        self._acting.take()

    def _act(self) -> None:
        store, site = self._agent.store, self._agent.name
        tokens = [row["token"] for row in store.read(TO_ACT, site)]
        if not tokens:
            return
        dispatched = store.read("SELECT dispatch FROM sites WHERE name = ?", site)[0][0]
        for token in tokens:
            rows = store.read(f"{TO_ACT} AND o.token = ?", site, token)  # the jobs before it may have taken minutes
            if not rows or not (dispatched or rows[0]["stage"] != "resuming" or rows[0]["cancelling"]):
                continue
            row = rows[0]
            try:
                if row["stage"] == "stopping":
                    self._begin_to_stop(row)
                elif row["stage"] == "resuming" and not row["cancelling"]:
                    self._resume(row)
                else:
                    self._drop(row)
            except RefusedError as error:
                self._refused(row, error)
            except ClusterError as error:
                self._put_off(row, error)

    def stopping(self) -> list[Row]:
        """Begins a step: returns the jobs that have been told to stop, for ``follow``.

        Where a model says what happens, none has to be told.
        """
        self._failed = 0
        return [] if self._agent.executor.exact_ends else self._in_turn(TO_STOP)

    def _in_turn(self, query: str) -> list[Row]:
        """Returns the site's jobs by a query; those that were put off come after the others."""
        return sorted(self._agent.store.read(query, self._agent.name), key=lambda row: int(row["tries"]))

    def _begin_to_stop(self, row: Row) -> None:
        """Tells a job to write its checkpoint; one that its cluster does not know has not begun."""
        executor, store, order = self._agent.executor, self._agent.store, order_of(row)
        if executor.exact_ends:
            return
        if row["handle"] is None:
            handle = executor.find(order)
            if handle is None:
                self._stopped(row)
                return
            order = order_of(row, handle)
        executor.signal(order)

        def change(connection: Connection, now_s: float) -> None:
            connection.execute(
                "UPDATE outbox SET signalled_s = ?, handle = ? WHERE token = ? AND stage = 'stopping'",
                (now_s, order.handle, order.token),
            )
            add_event(connection, now_s, row["id"], "stopping", {"site": self._agent.name, "handle": order.handle})

        store.do(change)

    def follow(self, row: Row, status: Status | None) -> Status | None:
        """Stops a job that has been told to, once it has had its time; returns what else has become of it.

        Args:
            row: A job that has been told to stop.
            status: What its cluster says; None: it does not know it.
        """
        executor, order = self._agent.executor, order_of(row)
        if self._failed == IN_A_ROW:
            return None
        if row["cancelling"] or status is None or status.phase == "unknown":
            return self._agent.news(row, status)
        try:
            if status.phase in executor.stopped_as:
                self._stopped(row)
            elif status.phase == "failed" and by_request(status.exit_code):
                executor.stop(order)
                if executor.fresh:
                    self._stopped(row)
            elif status.phase in OVER:
                return status
            elif self._agent.store.now_s() - row["signalled_s"] >= executor.grace_s:
                executor.stop(order)
                if any(each.phase in executor.stopped_as for each in executor.statuses([order])):
                    self._stopped(row)
        except RefusedError as error:
            self._refused(row, error)
        except ClusterError as error:
            self._put_off(row, error)
            self._failed += 1
        return None

    def _stopped(self, row: Row) -> None:
        """Stores that a job has stopped, and tells it."""

        def change(connection: Connection, now_s: float) -> float:
            note_stopped(connection, row["token"], row["id"], now_s)
            return now_s

        self.told("stopped", row["serial"], self._agent.store.do(change))

    def _refused(self, row: Row, error: RefusedError) -> None:
        """Stores that a job runs on, since its cluster does not stop it; or that it cannot be resumed."""
        if row["stage"] != "stopping":
            self._give_up(row, str(error))
            return

        def change(connection: Connection, now_s: float) -> float:
            connection.execute("UPDATE outbox SET stage = 'released' WHERE token = ?", (row["token"],))
            said = {"site": self._agent.name, "reason": str(error)[:1000]}
            add_event(connection, now_s, row["id"], "suspension refused", said)
            return now_s

        self.told("runs_on", row["serial"], self._agent.store.do(change))

    def run_again(self, connection: Connection, now_s: float, row: Row) -> None:
        """Stores, within a change, that a job wrote a checkpoint while it should run, and that it is to be resumed.

        It was told to stop earlier, and told twice, or heard of it only after it had been resumed: a command of the
        cluster may outlive the service. So each time that it was told counts once.
        """
        still = connection.execute(
            "UPDATE outbox SET stage = 'resuming', signalled_s = NULL WHERE token = ? AND stage = 'released'",
            (row["token"],),
        )
        if still.rowcount:  # else it is to stop again, and has
            connection.execute("UPDATE jobs SET state = 'starting', began_s = NULL WHERE id = ?", (row["id"],))
            add_event(connection, now_s, row["id"], "ended upon a late signal", {"site": self._agent.name})

    def _give_up(self, row: Row, reason: str) -> None:
        """Ends a job that its cluster does not resume."""

        def change(connection: Connection, now_s: float) -> float:
            set_stage(connection, row["token"], "withdrawn")
            end(connection, now_s, row["id"], "failed", now_s, None, reason[:1000])
            return now_s

        self._agent.ended(row["serial"], self._agent.store.do(change))

    def _put_off(self, row: Row, error: ClusterError) -> None:
        """Notes why nothing could be done with a job now; it is tried again at the next step."""
        reason = f"{self._agent.name}: {error}"[:1000]
        if row["reason"] != reason:
            _log.warning("job %d, %s: %s", row["id"], row["stage"], reason)

        def change(connection: Connection, now_s: float) -> None:
            connection.execute("UPDATE outbox SET tries = tries + 1 WHERE token = ?", (row["token"],))
            connection.execute("UPDATE jobs SET reason = ? WHERE id = ?", (reason, row["id"]))

        self._agent.store.do(change)

    def _resume(self, row: Row) -> None:
        """Resumes a suspended job at its cluster, or hands it over again where it cannot be, or has another size."""
        agent, order = self._agent, order_of(row)
        if row["cap"]:
            try:
                self._set_cap(row, 0)  # it may have left its GPUs
            except ClusterError as error:
                self._put_off(row, error)
        same = row["gpus_before"] in (None, row["gpus"]) and row["handle"] is not None
        if same and agent.executor.resume(order):

            def again(connection: Connection, now_s: float) -> None:
                set_stage(connection, order.token, "released")
                said = {"site": agent.name, "handle": order.handle}
                add_event(connection, now_s, row["id"], "released", said)

            agent.store.do(again)
            return
        if row["handle"] is not None:
            agent.executor.cancel(order)

        def anew(connection: Connection, now_s: float) -> None:
            runs = connection.execute("SELECT count(*) FROM outbox WHERE job = ?", (row["id"],)).fetchone()[0]
            token = f"{order.token.split('-r')[0]}-r{runs}"
            set_stage(connection, order.token, "withdrawn")
            connection.execute(
                "INSERT INTO outbox (token, job, site, stage, gpus, cap_wanted) VALUES (?, ?, ?, 'queued', ?, ?)",
                (token, row["id"], agent.name, row["gpus"], row["cap_wanted"]),
            )
            connection.execute("UPDATE jobs SET token = ? WHERE id = ?", (token, row["id"]))

        agent.store.do(anew)

    def _drop(self, row: Row) -> None:
        """Ends what is left at its cluster of a suspended job that was cancelled, or came too late."""
        if row["handle"] is not None:
            self._agent.executor.cancel(order_of(row))

        def change(connection: Connection, now_s: float) -> float:
            set_stage(connection, row["token"], "withdrawn")
            if row["state"] in ("suspended", "starting"):
                end(connection, now_s, row["id"], "cancelled", now_s, None, "cancelled while it was suspended")
                connection.execute("UPDATE jobs SET freed_s = ? WHERE id = ?", (now_s, row["id"]))
            return now_s

        self._agent.ended(row["serial"], self._agent.store.do(change))

    def set_caps(self, running: Collection[str]) -> None:
        """Sets the power caps that are wanted of running jobs, and takes off those of jobs that have left.

        Args:
            running: Tokens of the jobs that run by what the cluster has just said.
        """
        wanted = [(row, int(row["cap_wanted"])) for row in self._in_turn(TO_CAP) if row["token"] in running]
        for row, cap in [*wanted, *((row, 0) for row in self._in_turn(TO_UNCAP))]:
            if self._failed == IN_A_ROW:
                return
            try:
                self._set_cap(row, cap)
            except ClusterError as error:
                self._put_off(row, error)
                self._failed += 1

    def _set_cap(self, row: Row, cap: int) -> None:
        order, share = order_of(row), self._power(row["class"], cap)
        nodes, refused = row["nodes"], ""
        try:
            nodes = self._agent.executor.cap(order, share) or nodes
        except RefusedError as error:
            cap, refused = int(row["cap"]), str(error)[:1000]
        self._store_cap(row, order, cap, nodes, refused)

    def _store_cap(self, row: Row, order: Order, cap: int, nodes: str | None, refused: str) -> None:
        """Stores which power cap a job runs under, and tells it."""
        kind = "power cap refused" if refused else "capped" if cap else "uncapped"
        said = {"site": self._agent.name, "cap": cap, "power": self._power(row["class"], cap)}
        runs = row["stage"] == "released"

        def change(connection: Connection, now_s: float) -> float:
            wanted = cap if refused else row["cap_wanted"]
            connection.execute(
                "UPDATE outbox SET cap = ?, nodes = ?, cap_wanted = CASE WHEN cap_wanted = ? THEN ? ELSE cap_wanted "
                "END WHERE token = ?",
                (cap, nodes, row["cap_wanted"], wanted, order.token),
            )
            if runs:
                add_event(connection, now_s, row["id"], kind, said | ({"reason": refused} if refused else {}))
            return now_s

        at_s = self._agent.store.do(change)
        if runs:
            self.told("capped", row["serial"], at_s, cap)
