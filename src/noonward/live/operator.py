"""What operators and owners of jobs change: cancel, hold, release, pin, veto, drain, dispatch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from noonward.errors import DataError, nearest
from noonward.live.controller import Controller
from noonward.live.refusals import NoSuchJobError, NotYoursError, TooLateError
from noonward.live.store.database import Change, Connection
from noonward.live.store.events import add_event
from noonward.live.store.schema import ENDED


def cancel_job(controller: Controller, job: int, who: str, *, only_of: str | None = None) -> None:
    """Cancels a job: at once if it has not been started, else at its cluster.

    Args:
        controller: Controller.
        job: Job.
        who: Who asks.
        only_of: Owner whose jobs alone may be changed; None: all may.

    Raises:
        NoSuchJobError: There is no such job.
        NotYoursError: It is another owner's.
    """

    def change(connection: Connection, now_s: float) -> None:
        state = _state(connection, job, only_of)
        if state in ENDED:
            return
        if state in ("submitted", "transit", "waiting"):
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', ended_s = ?, reason = 'cancelled' WHERE id = ?", (now_s, job)
            )
        else:
            connection.execute("UPDATE jobs SET cancelling = 1 WHERE id = ?", (job,))
        kind = "cancelled" if state in ("submitted", "transit", "waiting") else "cancelling"
        add_event(connection, now_s, job, kind, {"by": who})

    _change_job(controller, job, change)


def hold_job(controller: Controller, job: int, held: bool, who: str, *, only_of: str | None = None) -> None:
    """Holds a waiting job or lets it go on.

    Args:
        controller: Controller.
        job: Job.
        held: Whether it is held.
        who: Who asks.
        only_of: Owner whose jobs alone may be changed; None: all may.

    Raises:
        NoSuchJobError: There is no such job.
        NotYoursError: It is another owner's.
        TooLateError: It has been started, or has ended.
    """

    def change(connection: Connection, now_s: float) -> None:
        _require_waiting(connection, job, "held", only_of)
        connection.execute("UPDATE jobs SET held = ? WHERE id = ?", (int(held), job))
        add_event(connection, now_s, job, "held" if held else "let go", {"by": who})

    _change_job(controller, job, change)


def steer_job(
    controller: Controller, job: int, who: str, *, pin: str | None = None, unpin: bool = False,
    veto: Sequence[str] | None = None, only_of: str | None = None,
) -> None:  # fmt: skip
    """Says where a waiting job must run, or must not.

    Args:
        controller: Controller.
        job: Job.
        who: Who asks.
        pin: Site it must run at; None: as it was.
        unpin: Let the policy choose again.
        veto: Sites it must not run at; None: as it was.
        only_of: Owner whose jobs alone may be changed; None: all may.

    Raises:
        NoSuchJobError: There is no such job.
        NotYoursError: It is another owner's.
        TooLateError: It has been started, or has ended.
        DataError: A site is unknown, or the job fits nowhere any more.
    """
    sites = controller.setup.sites
    for name in [*([] if pin is None else [pin]), *(veto or ())]:
        if name not in sites:
            raise DataError(f"unknown site {name!r}; {nearest(name, sites)}")
    tables = controller.setup.scenario.fleet.tables(1)

    def change(connection: Connection, now_s: float) -> None:
        _require_waiting(connection, job, "steered", only_of)
        row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
        pinned = None if unpin else row["pinned"] if pin is None else pin
        vetoed = json.loads(row["vetoed"]) if veto is None else sorted(set(veto), key=sites.index)
        class_ = controller.names.classes.index(row["class"])
        possible = [
            name
            for s, name in enumerate(sites)
            if pinned in (None, name) and name not in vetoed and tables.range_CS[class_, s]
            and tables.gpus_S[s] >= row["gpus_min"]
        ]  # fmt: skip
        if not possible:
            raise DataError(f"job {job} would fit into no site any more; allow another one")
        connection.execute("UPDATE jobs SET pinned = ?, vetoed = ? WHERE id = ?", (pinned, json.dumps(vetoed), job))
        add_event(connection, now_s, job, "steered", {"by": who})

    _change_job(controller, job, change)


def drain_site(controller: Controller, site: str, drained: bool, who: str) -> None:
    """Stops or resumes starts at a site; running jobs continue.

    Raises:
        DataError: There is no such site.
    """
    _change_site(controller, site, "drained", drained, who)
    controller.decide_wake.set()


def set_dispatch(controller: Controller, site: str, on: bool, who: str) -> None:
    """Stops or resumes the hand-over of jobs to a site's cluster; the policy decides as before.

    Raises:
        DataError: There is no such site.
    """
    _change_site(controller, site, "dispatch", on, who)
    for wake in controller.site_wakes:
        wake.set()


def audit(controller: Controller, who: str, action: str, detail: str) -> None:
    """Notes who did what, for the audit log."""

    def change(connection: Connection, now_s: float) -> None:
        at = controller.time_of(now_s)
        connection.execute("INSERT INTO audit (at, who, action, detail) VALUES (?, ?, ?, ?)", (at, who, action, detail))

    controller.store.do(change)


def _change_site(controller: Controller, site: str, what: Literal["drained", "dispatch"], on: bool, who: str) -> None:
    """Sets a switch of a site and notes who did."""
    if site not in controller.setup.sites:
        raise DataError(f"unknown site {site!r}; {nearest(site, controller.setup.sites)}")

    def change(connection: Connection, now_s: float) -> None:
        connection.execute(f"UPDATE sites SET {what} = ? WHERE name = ?", (int(on), site))
        add_event(connection, now_s, None, "site", {"site": site, what: on, "by": who})

    controller.store.do(change)


def _change_job(controller: Controller, job: int, change: Change[None]) -> None:
    controller.store.do(change)
    controller.touch(job)
    for wake in (*controller.site_wakes, *controller.track_wakes):
        wake.set()


def _state(connection: Connection, job: int, only_of: str | None) -> str:
    found = connection.execute("SELECT state, owner FROM jobs WHERE id = ?", (job,)).fetchone()
    if found is None:
        raise NoSuchJobError(f"there is no job {job}")
    if only_of not in (None, found["owner"]):
        raise NotYoursError(f"job {job} is not {only_of}'s; its owner or an administrator can change it")
    return str(found["state"])


def _require_waiting(connection: Connection, job: int, what: str, only_of: str | None) -> None:
    state = _state(connection, job, only_of)
    if state not in ("submitted", "transit", "waiting"):
        raise TooLateError(
            f"job {job} is {state}; only a job that has not been started can be {what}: cancel it instead"
        )
