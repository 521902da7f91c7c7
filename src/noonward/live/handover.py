"""Hand-over of jobs to one site by the held protocol, and what becomes of them there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from noonward.errors import NoonwardError
from noonward.live.executors.protocol import ClusterError, Executor, Order, RefusedError, Status
from noonward.live.executors.running import CHECKPOINTED
from noonward.live.orders import ORDERS, end, order_of, set_stage
from noonward.live.running_agent import IN_A_ROW, RunningJobsAgent
from noonward.live.service_name import ServiceName
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.live.terms import stated

LOST_POLLS: Final = 20
"""A job that its cluster does not know this many times in a row is lost."""
UNREACHABLE: Final = 3
"""Failures in a row after which a site counts as unreachable."""
PUT_OFF: Final = "not handed over yet: "
"""How the reason of a job begins whose hand-over is tried again."""
TO_DELIVER: Final = f"{ORDERS} WHERE o.site = ? AND o.stage IN ('queued', 'intent', 'placed')"
TO_TRACK: Final = f"{ORDERS} WHERE o.site = ? AND o.stage = 'released' AND j.state IN ('starting', 'running')"
TO_TAKE_BACK: Final = f"{ORDERS} WHERE o.site = ? AND o.stage = 'abandoned'"
"""What is read at every step, over an index: stages of jobs that have ended are others, ``ended`` or ``withdrawn``."""
_log: Final = logging.getLogger("noonward.live")
_TERMINAL: Final = {"done": "done", "failed": "failed", "cancelled": "cancelled"}


def _nobody(*told: object) -> None:
    """Passes over what a cluster did with a running job."""


def _full_power(class_: str, cap: int) -> float:
    """Returns full power."""
    return 1.0


class _ElsewhereError(NoonwardError):
    """Another site's cluster was given a job."""


class SiteAgent:
    """Hands over, follows and cleans up the jobs of one site. Each step may be repeated and does no more by it.

    Args:
        store: Store.
        executor: The site's executor.
        name: Name of the site.
        service: Name that tokens carry.
        ended: Called with the serial and the time of a job that gave its GPUs back.
        told: Called with what the cluster did with a running job (``World.running.told``).
        power: Share of full power that a class runs at under a power cap.

    Attributes:
        others: Agents of the other sites, whose clusters may have run a job that is older than a restore of the store.
    """

    def __init__(
        self, store: Store, executor: Executor, name: str, service: ServiceName, ended: Callable[[int, float], None],
        told: Callable[..., None] | None = None, power: Callable[[str, int], float] | None = None,
    ) -> None:  # fmt: skip
        self.store, self.executor, self.name, self._service = store, executor, name, service
        self.running = RunningJobsAgent(self, told or _nobody, power or _full_power)
        self.others: Sequence[SiteAgent] = ()
        self.ended = ended
        self._fresh: set[str] = set()
        self._missed: dict[str, int] = {}
        self._failures = 0

    def deliver(self) -> None:
        """Hands over every job that waits for it, some side by side: intent, held submission, handle, release.

        A job that its cluster refuses has failed, with the cluster's words. One that cannot be handed over now is
        passed over, and tried again after the others; after ``IN_A_ROW`` of them the rest waits too. Where
        dispatch is off, jobs wait here until it is on; those that are cancelled meanwhile are withdrawn.

        Raises:
            ClusterError: The cluster did not answer; what was done is kept, the rest is tried again.
        """
        self.running.act()
        rows = sorted(self.store.read(TO_DELIVER, self.name), key=lambda row: int(row["tries"]))
        if rows and not self.store.read("SELECT dispatch FROM sites WHERE name = ?", self.name)[0][0]:
            rows = [row for row in rows if row["cancelling"]]
        at_once, failed = self.executor.at_once, 0
        with ThreadPoolExecutor(at_once) as pool:
            for first in range(0, len(rows), at_once):
                some = rows[first : first + at_once]
                errors = pool.map(self._delivered, some) if len(some) > 1 else map(self._delivered, some)
                for row, error in zip(some, list(errors), strict=True):
                    failed = 0 if error is None else failed + 1
                    if error is not None:
                        self._put_off(row, error)
                    if error is not None and (failed == IN_A_ROW or row is rows[-1]):
                        raise error

    def _delivered(self, row: Row) -> ClusterError | None:
        """Hands a job over, or withdraws it; returns what kept it from that."""
        try:
            if row["cancelling"]:
                self._withdraw(row)
            else:
                self._hand_over(row)
        except (RefusedError, _ElsewhereError) as error:
            self._refused(row, error)
        except ClusterError as error:
            return error
        return None

    def _refused(self, row: Row, error: RefusedError | _ElsewhereError) -> None:
        """Ends a job that its cluster does not take, or that another one was given."""
        state = "lost" if isinstance(error, _ElsewhereError) else "failed"

        def change(connection: Connection, now_s: float) -> float:
            set_stage(connection, row["token"], "withdrawn")
            end(connection, now_s, row["id"], state, now_s, None, str(error)[:1000])
            return now_s

        self.ended(row["serial"], self.store.do(change))

    def _put_off(self, row: Row, error: ClusterError) -> None:
        """Notes why a job could not be handed over now; the others go first the next time."""
        reason = f"{PUT_OFF}{error}"[:1000]
        if row["reason"] != reason:
            _log.warning("%s: job %d is %s", self.name, row["id"], reason)

        def change(connection: Connection, now_s: float) -> None:
            connection.execute("UPDATE outbox SET tries = tries + 1 WHERE token = ?", (row["token"],))
            connection.execute("UPDATE jobs SET reason = ? WHERE id = ? AND state = 'starting'", (reason, row["id"]))

        self.store.do(change)

    def _hand_over(self, row: Row) -> None:
        order, stage = order_of(row), row["stage"]
        handle: str | None = row["handle"]
        if stage == "queued":
            if not self._stage(order.token, "intent", None):
                return
            if not self._service.restored(order.job):
                self._fresh.add(order.token)
        if stage in ("queued", "intent"):
            # A token that this process has not tried before may have reached the cluster before a crash, and one that
            # is older than a restore of the store before that.
            handle = None if order.token in self._fresh else self.executor.find(order)
            if handle is None and self._service.restored(order.job):
                self._require_nowhere_else(order)
            self._fresh.discard(order.token)
            if handle is None:
                self._require_taken(order)
                handle = self.executor.submit_held(order)
            if not self._stage(order.token, "placed", handle):
                return  # it is to stop before it has begun
        self.executor.release(order_of(row, handle))
        self._stage(order.token, "released", handle, event=("released", {"site": self.name, "handle": handle}))

    def _require_taken(self, order: Order) -> None:
        """Raises RefusedError where a job asks for what the site's executor cannot pass on: it was steered here."""
        if lacking := stated(order.terms) - self.executor.takes:
            raise RefusedError(f"the cluster of {self.name} cannot be told {', '.join(sorted(lacking))} of a job")

    def _require_nowhere_else(self, order: Order) -> None:
        """Raises _ElsewhereError where another site's cluster knows a job."""
        for other in self.others:
            if not other.executor.exact_ends and (handle := other.executor.find(order)) is not None:
                raise _ElsewhereError(
                    f"lost: {other.name} was given it as {handle} before the store was restored; look there what "
                    "became of it"
                )

    def _withdraw(self, row: Row) -> None:
        """Ends a job that was cancelled before its hand-over was complete."""
        order = order_of(row)
        handle = row["handle"] or (self.executor.find(order) if row["stage"] == "intent" else None)
        if handle is not None:
            self.executor.cancel(order_of(row, handle))

        def change(connection: Connection, now_s: float) -> float:
            set_stage(connection, order.token, "withdrawn")
            end(connection, now_s, row["id"], "cancelled", now_s, None, "cancelled before it was handed over")
            return now_s

        self.ended(row["serial"], self.store.do(change))

    def _stage(
        self, token: str, stage: str, handle: str | None, event: tuple[str, dict[str, object]] | None = None
    ) -> bool:
        """Stores where a hand-over stands; returns whether it still does."""

        def change(connection: Connection, now_s: float) -> bool:
            connection.execute("UPDATE outbox SET handle = coalesce(?, handle) WHERE token = ?", (handle, token))
            stored = connection.execute(
                "UPDATE outbox SET stage = ?, tries = tries + 1 WHERE token = ? AND stage IN ('queued', 'intent', "
                "'placed')",
                (stage, token),
            )
            if stored.rowcount and event is not None:
                connection.execute(
                    "UPDATE jobs SET reason = NULL WHERE token = ? AND reason LIKE ?", (token, f"{PUT_OFF}%")
                )
                connection.execute(
                    "INSERT INTO events (at_s, job, kind, data) SELECT ?, id, ?, ? FROM jobs WHERE token = ?",
                    (now_s, event[0], json.dumps(event[1]), token),
                )
            return stored.rowcount == 1

        return self.store.do(change)

    def track(self) -> None:
        """Asks the cluster about the jobs it has, stores what is new, and reports GPUs that were given back.

        A job that its cluster failed is taken back: first it is ended there, so that it cannot run after all, then it
        is queued again or has failed.

        Raises:
            ClusterError: The cluster did not answer.
        """
        stopping = self.running.stopping()
        rows = self.store.read(TO_TRACK, self.name) + stopping
        for row in rows:
            if row["cancelling"] and row["handle"] is not None:
                self.executor.cancel(order_of(row))
        orders = [order_of(row) for row in rows]
        found = {status.token: status for status in (self.executor.statuses(orders) if orders else [])}
        news = [
            (row, self.news(row, found.get(row["token"])) if row["stage"] == "released" else
             self.running.follow(row, found.get(row["token"])))
            for row in rows
        ]  # fmt: skip
        self._store_news([(row, status) for row, status in news if status is not None])
        for row in self.store.read(TO_TAKE_BACK, self.name):
            self._take_back(row)
        self.running.set_caps({status.token for status in found.values() if status.phase == "running"})
        self._keep_site(self.executor.usable_gpus(sum(row["gpus"] for row in rows)))

    def news(self, row: Row, status: Status | None) -> Status | None:
        """Returns what is new about a job, or None; a job that stays unknown is lost."""
        token = row["token"]
        if row["cancelling"] and self.executor.exact_ends and (status is None or status.phase == "running"):
            return Status(token=token, handle=token, phase="cancelled", reason="cancelled")
        if status is None:
            self._missed[token] = self._missed.get(token, 0) + 1
            if self._missed[token] < LOST_POLLS:
                return None
            return Status(token=token, handle=row["handle"] or "", phase="failed", reason="lost: its cluster forgot it")
        if status.phase == "unknown":
            return None
        self._missed.pop(token, None)
        began = status.phase in ("running", "suspended") and row["state"] == "starting"
        requeued = status.phase in ("queued", "held") and row["state"] == "running"
        stopped = status.phase == "held" and row["reason"] != status.reason
        let_go = status.phase == "queued" and row["state"] == "starting" and (row["reason"] or "") != status.reason
        over = status.phase == "node-failed" or status.phase in _TERMINAL
        return status if began or requeued or stopped or let_go or over else None

    def _take_back(self, row: Row) -> None:
        """Ends a job that its cluster failed there, and queues it again as often as it allows."""
        self.executor.cancel(order_of(row))

        def change(connection: Connection, now_s: float) -> float:
            set_stage(connection, row["token"], "withdrawn")
            if row["attempt"] < row["retries"] and not row["cancelling"]:
                _again(connection, now_s, row["id"], row["reason"])
            else:
                state = "cancelled" if row["cancelling"] else "failed"
                end(connection, now_s, row["id"], state, now_s, None, row["reason"])
            return now_s

        self.ended(row["serial"], self.store.do(change))

    def _store_news(self, news: Iterable[tuple[Row, Status]]) -> None:
        news = list(news)
        if not news:
            return

        def change(connection: Connection, now_s: float) -> list[tuple[int, float]]:
            ended = [each for each in news if self._store_one(connection, now_s, *each)]
            exact = self.executor.exact_ends
            return [
                (row["serial"], status.ended_s if exact and status.ended_s is not None else now_s)
                for row, status in ended
            ]

        for serial, time_s in self.store.do(change):
            self.ended(serial, time_s)

    def _store_one(self, connection: Connection, now_s: float, row: Row, status: Status) -> bool:
        """Stores one piece of news; returns whether the job has ended."""
        job = row["id"]
        if status.phase in ("running", "suspended"):
            began_s = now_s if status.began_s is None else status.began_s
            began_s = max(began_s, row["resumed_s"] or began_s)
            connection.execute(
                "UPDATE jobs SET state = 'running', began_s = ?, reason = NULL WHERE id = ?", (began_s, job)
            )
            add_event(connection, now_s, job, "running", {"site": self.name, "began_s": began_s})
            if row["resumed_s"] is not None:
                self.running.told("began", row["serial"], began_s)
            return False
        if status.phase in ("queued", "held"):
            kind = "requeued" if row["state"] == "running" else f"{status.phase} by its cluster"
            reason = status.reason or None
            connection.execute(
                "UPDATE jobs SET state = 'starting', began_s = NULL, reason = ? WHERE id = ?", (reason, job)
            )
            add_event(connection, now_s, job, kind, {"site": self.name, "reason": status.reason})
            return False
        if status.phase == "node-failed":
            set_stage(connection, row["token"], "abandoned")
            connection.execute("UPDATE jobs SET reason = ? WHERE id = ?", (status.reason, job))
            add_event(connection, now_s, job, "failed by its cluster", {"site": self.name, "reason": status.reason})
            return False
        ended_s = now_s if status.ended_s is None else status.ended_s
        if status.began_s is not None:
            connection.execute("UPDATE jobs SET began_s = ? WHERE id = ?", (status.began_s, job))
        state = "lost" if status.reason.startswith("lost") else _TERMINAL[status.phase]
        if status.exit_code == CHECKPOINTED and row["signalled_s"] is not None and not row["cancelling"]:
            self.running.run_again(connection, now_s, row)
            return False
        set_stage(connection, row["token"], "ended")
        again = state == "failed" and row["attempt"] < row["retries"] and not row["cancelling"]
        if again and json.loads(row["request"]).get("retry_failed"):
            code = "" if status.exit_code is None else f"exit code {status.exit_code}"
            _again(connection, now_s, job, status.reason or code)
            return True
        end(connection, now_s, job, state, ended_s, status.exit_code, status.reason)
        return True

    def _keep_site(self, usable: int | None) -> None:
        """Stores that the site answered, and how many of its GPUs are not for the service."""
        self._failures = 0
        row = self.store.read("SELECT * FROM sites WHERE name = ?", self.name)[0]
        withheld = 0 if usable is None else max(0, int(row["gpus"]) - usable)

        def change(connection: Connection, now_s: float) -> None:
            connection.execute(
                "UPDATE sites SET withheld = ?, reachable = 1, seen_s = ?, remark = '' WHERE name = ?",
                (withheld, now_s, self.name),
            )
            if withheld != row["withheld"] or not row["reachable"]:
                add_event(connection, now_s, None, "site", {"site": self.name, "reachable": True, "withheld": withheld})

        if usable is not None or not row["reachable"] or row["seen_s"] is None:
            self.store.do(change)

    def failed(self, error: ClusterError) -> None:
        """Notes that the cluster did not answer when it was asked; after some times in a row, nothing is sent there."""
        self._failures += 1
        if self._failures < UNREACHABLE:
            return
        was = self.store.read("SELECT reachable FROM sites WHERE name = ?", self.name)[0]["reachable"]

        def change(connection: Connection, now_s: float) -> None:
            connection.execute(
                "UPDATE sites SET reachable = 0, remark = ? WHERE name = ?", (str(error)[:500], self.name)
            )
            if was:
                add_event(
                    connection, now_s, None, "site", {"site": self.name, "reachable": False, "reason": str(error)}
                )

        self.store.do(change)

    def reconcile(self) -> None:
        """Cancels held jobs at the cluster that are this service's and were not recorded: strays of a crash.

        Raises:
            ClusterError: The cluster did not answer.
        """
        for stray in self.executor.strays():
            if not self._service.owns(stray.token):
                continue
            rows = self.store.read("SELECT stage, handle FROM outbox WHERE token = ?", stray.token)
            known = rows and (rows[0]["handle"] == stray.handle or rows[0]["stage"] in ("queued", "intent", "stopping"))
            if not known:
                self.executor.cancel(stray)

                def change(connection: Connection, now_s: float, stray: Order = stray) -> None:
                    said: dict[str, object] = {"site": self.name, "token": stray.token, "handle": stray.handle}
                    add_event(connection, now_s, None, "stray cancelled", said)

                self.store.do(change)


def _again(connection: Connection, now_s: float, job: int, reason: str) -> None:
    """Queues a job again after its site, or its own command, failed; its delay is counted again."""
    connection.execute(
        "UPDATE jobs SET resumed_s = NULL, finish_s = NULL, running_place = -1, cap = 0, life = NULL, "
        "state = 'submitted', attempt = attempt + 1, arrival_s = ?, serial = NULL, slot = NULL, "
        "place = NULL, site = NULL, gpus = 0, level = -1, earliest_s = 0, reach_s = NULL, start_s = NULL, "
        "run_s = NULL, power_w = NULL, freed_s = NULL, began_s = NULL, token = NULL, reason = NULL WHERE id = ?",
        (now_s, job),
    )
    add_event(connection, now_s, job, "queued again", {"reason": reason})
