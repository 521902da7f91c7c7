"""Books of bid prices: moved on as time passes, and summed by hour, as plain loops over slots say."""

import numpy as np
import pytest

from noonward.schedule.cluster.bookings import blank_plans, left_to_plan, move_books


@pytest.mark.parametrize("past", [1, 4, 7, 29, 30])
def test_moved_books_begin_later_and_end_free(past):
    booked_ST = np.random.default_rng(past).integers(0, 9, (3, 30))
    later_ST = np.concatenate([booked_ST[:, past:], np.zeros((3, past), np.int64)], axis=1)
    move_books(booked_ST, past)
    assert (booked_ST == later_ST).all()


def test_what_is_left_by_the_hour_is_free_of_bookings_but_those_of_jobs_that_wait():
    rng, per_hour, hours, slot_0 = np.random.default_rng(0), 4, 5, 8
    booked_ST = rng.integers(20, 40, (2, per_hour * (hours + 2)))
    site_S = np.zeros(2, [("gpus", "i8")])
    site_S["gpus"] = 64
    plan_J = blank_plans(4)
    plan_J["site"], plan_J["gpus"] = [0, 1, -1, 1], [3, 5, 7, 2]
    plan_J["slot"], plan_J["slots"] = [6, 11, 9, 24], [9, 6, 6, 40]  # from the past, within, nowhere, beyond the hours
    expected_ST = booked_ST.copy()
    for plan in plan_J[[0, 1, 2]]:
        if plan["site"] >= 0:
            begin = plan["slot"] - slot_0
            expected_ST[plan["site"], max(0, begin) : max(0, begin + plan["slots"])] -= plan["gpus"]
    capacity_SH = np.empty((2, hours))
    left_to_plan(site_S, booked_ST, slot_0, plan_J, np.array([0, 1, 2]), per_hour, capacity_SH)
    mean_SH = expected_ST[:, : hours * per_hour].reshape(2, hours, per_hour).mean(axis=2)
    assert (capacity_SH == 64 - mean_SH).all()
