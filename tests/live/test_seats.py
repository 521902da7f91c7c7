"""Jobs in sight: what each takes of memory, and that older stores are read."""

import gc
import math
import sys

import msgspec

from noonward.live.world.seats import NOWHERE, Arrival, Seat, seats_of

ABOUT = Arrival(
    7, 1, 30.0, 0, 0, 1, 4, work=600.0, max_delay_s=math.inf, move_gb=0.5, result_gb=0.0, vetoed=frozenset()
)


def test_a_job_that_waits_takes_little_memory():
    seat = Seat.of(ABOUT, 3, 5)
    assert seat.about == ABOUT
    assert sys.getsizeof(seat) + sys.getsizeof(seat.packed) < 400  # 808 as a data class beside a tuple and a set
    assert seat.vetoed is NOWHERE
    assert not gc.is_tracked(seat)


def test_what_an_operator_wants_of_a_job_that_arrives_holds_at_its_seat():
    seat = Seat.of(ABOUT._replace(held=True, pinned=1, vetoed=frozenset({0})), 3, 5, state="waiting")
    assert (seat.held, seat.pinned, seat.vetoed, seat.state) == (True, 1, {0}, "waiting")


def test_jobs_in_sight_of_an_older_journal_are_read():
    seat = Seat.of(ABOUT, 3, 5, site=1, reach_s=60.0)
    assert seats_of(msgspec.msgpack.encode([seat])) == [seat]
    older = msgspec.structs.asdict(seat) | {"about": ABOUT[:-2]}
    del older["packed"], older["asked"]
    (read,) = seats_of(msgspec.msgpack.encode([older]))
    assert (read.about, read.site, read.reach_s) == (ABOUT, 1, 60.0)
