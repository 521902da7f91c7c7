import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.errors import ScenarioError
from noonward.schedule.plan import Fractions
from noonward.schedule.plan.placement import Tracker


def drawn_fractions(rng, hours=3, classes=2, span=5, clusters=3):
    """Fractions with 1 to 5 places a row."""
    rows, where, values = [0], [], []
    for _ in range(hours * classes):
        count = int(rng.integers(1, 6))
        where += sorted(rng.choice(span * clusters, count, replace=False).tolist())
        values += rng.dirichlet(np.ones(count)).tolist()
        rows.append(rows[-1] + count)
    t, d = np.divmod(np.array(where), clusters)
    return Fractions(
        hours=hours, classes=classes, span=span, clusters=clusters, first_L=np.array(rows), run_hour_X=t, cluster_X=d,
        value_X=np.array(values),
    )  # fmt: skip


def plain_places(fractions, jobs):
    """Eq. (15) as printed, over all hours and clusters, counters from zero whenever the hour changes."""
    y = fractions.dense()
    places, now = [], None
    for hour, load_class, volume in jobs:
        if hour != now:
            placed, total, now = np.zeros_like(y), np.zeros(y.shape[:2]), hour
        share = y[hour, load_class].copy()
        if total[hour, load_class] > 0:
            share -= placed[hour, load_class] / total[hour, load_class]
        share[y[hour, load_class] == 0] = -np.inf
        t, d = np.unravel_index(int(share.argmax()), share.shape)
        placed[hour, load_class, t, d] += volume
        total[hour, load_class] += volume
        places.append((int(t), int(d)))
    return places


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_the_tracker_places_as_the_formula_says(seed):
    rng = np.random.default_rng(seed)
    fractions = drawn_fractions(rng)
    hours = np.sort(rng.integers(0, 3, 60))
    jobs = [(int(h), int(rng.integers(2)), float(rng.uniform(0.1, 2.0))) for h in hours]
    single, batch = Tracker(fractions), Tracker(fractions)
    expected = plain_places(fractions, jobs)
    assert [single.place(*job) for job in jobs] == expected
    got = []
    for hour in np.unique(hours).tolist():
        mine = [job for job in jobs if job[0] == hour]
        t, d = batch.place_hour(hour, np.array([j[1] for j in mine]), np.array([j[2] for j in mine]))
        got += list(zip(t.tolist(), d.tolist(), strict=True))
    assert got == expected


def test_shares_placed_approach_the_plan():
    rng = np.random.default_rng(4)
    fractions = drawn_fractions(rng)
    volume = rng.uniform(0.5, 1.5, 20_000)
    position = Tracker(fractions).positions(1, np.zeros(20_000, np.int64), volume)
    row = slice(fractions.first_L[2], fractions.first_L[3])
    share = np.bincount(position, volume, minlength=len(fractions.value_X))[row] / volume.sum()
    assert share == pytest.approx(fractions.value_X[row], abs=2e-4)


def test_counters_start_from_zero_every_hour():
    fractions = drawn_fractions(np.random.default_rng(0))
    tracker = Tracker(fractions)
    first = [tracker.place(0, 0, 1.0) for _ in range(5)]
    tracker.place(1, 0, 1.0)
    assert [tracker.place(0, 0, 1.0) for _ in range(5)] == first  # the next day's hour 0
    tracker.reset()
    assert tracker.place(0, 0, 1.0) == first[0]


def test_jobs_outside_the_plan_are_refused():
    tracker = Tracker(drawn_fractions(np.random.default_rng(0)))
    for hour, load_class in ((3, 0), (-1, 0), (0, 2), (0, -1)):
        with pytest.raises(ScenarioError, match="is not in the plan"):
            tracker.place(hour, load_class, 1.0)
    with pytest.raises(ScenarioError, match="is not in the plan"):
        tracker.place_hour(0, np.array([0, 5]), np.ones(2))
    with pytest.raises(ScenarioError, match="one of each a job"):
        tracker.place_hour(0, np.array([0, 1]), np.ones(3))
