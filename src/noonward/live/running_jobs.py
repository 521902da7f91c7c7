"""What the books decide about running jobs, in the store: wishes that a site's agent carries out."""

from __future__ import annotations

import json

from noonward.decision.cluster.view import DARK, LOADS, RUNS, STOPS, WAITS
from noonward.engine.cluster.kernels.world import A_CAP, A_RUN
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.schema import ENDED
from noonward.live.store.store import Store
from noonward.live.world.seats import OVERDUE, SUSPENDED, Seat
from noonward.live.world.world import World

_OF_RUN = """
UPDATE jobs SET life = ?, place = ?, gpus = ?, run_s = ?, power_w = ?, resumed_s = ?, finish_s = ?, running_place = ?,
    cap = ? WHERE id = ?
"""
_LINE = """
SELECT j.state, j.cancelling, o.token, o.stage, o.wish_s FROM jobs j JOIN outbox o ON o.token = j.token
WHERE j.id = ? AND j.attempt = ?
"""


def is_dark(row: Row) -> bool:
    """Returns whether the books of a stored job say that it is suspended and holds no GPUs."""
    return bool(row["life"]) and json.loads(row["life"])["state"] in (DARK, WAITS)


def store_running(connection: Connection, seat: Seat, now_s: float) -> bool:
    """Stores a job that has been started, and what its site's agent is to do with it.

    The stages of an attempt say what is wanted and what is done: ``stopping`` (suspend it), ``suspended``, ``resuming``
    (resume it), ``dropped`` (end what is left of it at its cluster). ``cap_wanted`` is the power cap that is wanted.

    Args:
        connection: The store's.
        seat: The job.
        now_s: Time of the books, s.

    Returns:
        Whether the job is still what the books think.
    """
    about = seat.about
    line = connection.execute(_LINE, (about.job, about.attempt)).fetchone()
    if line is None or line["state"] in ENDED:
        return False
    token, stage = line["token"], line["stage"]
    if seat.state == OVERDUE:
        connection.execute(
            "UPDATE jobs SET state = ?, ended_s = ?, freed_s = ? WHERE id = ?", (OVERDUE, now_s, now_s, about.job)
        )
        connection.execute("UPDATE outbox SET stage = 'dropped' WHERE token = ?", (token,))
        return True
    life = seat.life or {}
    connection.execute(
        _OF_RUN,
        (json.dumps(life), seat.place, seat.gpus, seat.run_s, seat.power_w, seat.resumed_s, seat.finish_s,
         seat.running_place, seat.cap, about.job),
    )  # fmt: skip
    connection.execute("UPDATE outbox SET cap_wanted = ? WHERE token = ?", (seat.cap, token))
    if life.get("state") == STOPS and stage in ("queued", "intent", "placed", "released"):
        connection.execute(
            "UPDATE outbox SET stage = 'stopping', wish_s = ?, signalled_s = NULL, stopped_s = NULL WHERE token = ?",
            (life["since_s"], token),
        )
        return True
    resumed = seat.resumed_s is not None and life.get("state") in (LOADS, RUNS)
    halted = seat.state == SUSPENDED or (resumed and float(seat.resumed_s or 0.0) > float(line["wish_s"] or 0.0))
    state = line["state"]
    if halted and stage == "stopping":  # the model says so; where a cluster does, it was stored before
        note_stopped(connection, token, about.job, now_s if resumed else life["since_s"])
        stage, state = "suspended", SUSPENDED
    if resumed and stage == "suspended" and state == SUSPENDED:
        if line["cancelling"]:
            return False
        connection.execute("UPDATE outbox SET stage = 'resuming' WHERE token = ?", (token,))
        connection.execute(
            "UPDATE jobs SET state = 'starting', began_s = NULL, reason = NULL WHERE id = ?", (about.job,)
        )
    return True


def note_stopped(connection: Connection, token: str, job: int, at_s: float) -> None:
    """Stores that a job which was to be suspended has stopped, once."""
    line = connection.execute("SELECT site, stage, wish_s FROM outbox WHERE token = ?", (token,)).fetchone()
    if line["stage"] != "stopping":
        return
    connection.execute("UPDATE outbox SET stage = 'suspended', stopped_s = ? WHERE token = ?", (at_s, token))
    connection.execute(
        "UPDATE jobs SET state = 'suspended', began_s = NULL, reason = NULL WHERE id = ? AND state IN ('starting', "
        "'running')",
        (job,),
    )
    said = {"site": line["site"], "stop_s": round(at_s - float(line["wish_s"]), 3)}
    add_event(connection, at_s, job, "suspended", said)


def tell_again(store: Store, world: World, row: Row) -> None:
    """Tells books that were opened what a cluster confirmed and the last books did not take.

    Args:
        store: Store.
        world: Books.
        row: A job that has been started.
    """
    life, serial = json.loads(row["life"]), row["serial"]
    (line,) = store.read("SELECT * FROM outbox WHERE token = ?", row["token"])
    if life["state"] == STOPS and line["stage"] == "suspended":
        world.stopped(serial, line["stopped_s"])
    elif life["state"] == STOPS and line["stage"] == "released":
        world.runs_on(serial, store.now_s())
    elif life["state"] == LOADS and life["awaits"] == A_RUN and row["state"] == "running":
        world.began(serial, row["began_s"])
    elif life["awaits"] == A_CAP and line["cap"] == line["cap_wanted"]:
        world.capped(serial, store.now_s(), line["cap"])
