"""Bid prices by kinds of sites: exact where sites differ, shared prices where not, room at every one of them."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.data.environments import build_environment
from noonward.engine.run import run
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.kinds import Kinds, member, option_site, sites_of
from reference.alike_sites import alike
from reference.small_worlds import plain

HOUR_S = 3600.0


def kinds_of(kind_S):
    """Kinds by the kind of every site."""
    kind_S = np.array(kind_S)
    sites_X = np.bincount(kind_S)
    kind_X = np.zeros(len(sites_X), [("begin", "i8"), ("sites", "i8")])
    kind_X["sites"], kind_X["begin"] = sites_X, np.cumsum(sites_X) - sites_X
    return Kinds(kind_X, np.argsort(kind_S, kind="stable"), kind_S)


@pytest.mark.parametrize("kind_S", [[0, 1, 2], [0, 0, 1], [0, 0, 0], [0, 1, 0, 0, 1], [0, 1, 1, 0, 2, 0]])
def test_every_site_is_of_exactly_one_option_wherever_a_job_waits_and_is_at_home(kind_S):
    kinds, sites = kinds_of(kind_S), range(len(kind_S))
    for s, home in ((s, home) for s in sites for home in (-1, *sites)):
        found = []
        for x in range(kinds.options):
            described = option_site(kinds, x, s, home)
            if described < 0:
                continue
            members = [member(kinds, x, 5 + i, described, s, home) for i in range(sites_of(kinds, x))]
            found += [d for d in members if d >= 0]
            assert described in members
        assert sorted(found) == list(sites)


def test_where_every_site_is_a_kind_by_itself_options_are_the_sites_in_their_order():
    kinds = kinds_of([0, 1, 2])
    assert [option_site(kinds, x, 1, 2) for x in range(kinds.options)] == [0, 1, 2]


def world(gpus, jobs, of_S, price):
    """A plain world with alike sites, whose planners expect nothing to come but one small job."""
    built = plain(gpus, jobs, price=price, alpha=0.1).environment()
    expected = Jobs.build(arrival_s=np.zeros(1), work=np.ones(1), slack_s=np.zeros(1))
    return replace(alike(built, of_S), sample_jobs=lambda rng: expected)


def test_jobs_find_room_at_every_site_of_a_kind():
    """Three jobs of an hour at a site that costs 0.4 USD an hour; three alike sites of one GPU cost nothing."""
    jobs = [{"work": HOUR_S, "slack_s": 1800.0} for _ in range(3)]
    environment = world([3, 1, 1, 1], jobs, (0, 1, 1, 1), price=[[4000.0], [0.0], [0.0], [0.0]])
    outcome = run(environment, BidPrice(Forecast("perfect"), exact_sites=1))
    assert (outcome.job_J["status"] == DONE).all()
    assert sorted(outcome.job_J["site"].tolist()) == [1, 2, 3]


def test_a_job_goes_to_the_site_of_a_kind_with_most_room_at_its_start():
    """A gang of three and three small jobs, of an hour; three alike sites of four GPUs cost nothing."""
    jobs = [{"work": HOUR_S, "slack_s": 1800.0, "gpus": gpus} for gpus in (3, 1, 1, 1)]
    environment = world([8, 4, 4, 4], jobs, (0, 1, 1, 1), price=[[4000.0], [0.0], [0.0], [0.0]])
    outcome = run(environment, BidPrice(Forecast("perfect"), exact_sites=1))
    used = np.bincount(outcome.job_J["site"], outcome.job_J["gpus"], 4)
    assert sorted(used.tolist()) == [0, 1, 2, 3]


def test_sites_of_one_kind_share_prices_and_others_have_their_own():
    environment = build_environment(many_sites(1500, 6, zones=2))
    scheduler = BidPrice(Forecast("regression"), exact_sites=1)
    run(environment, scheduler)
    kind_S = [0, 1, 2, 3, 4, 5]  # zones alternate, the type changes every two sites, the PUE every four
    assert scheduler._kinds.kind_S.tolist() == kind_S
    environment = build_environment(many_sites(1500, 6, zones=1))
    run(environment, scheduler)
    assert scheduler._kinds.kind_S.tolist() == [0, 1, 2, 3, 0, 1]
    slope_SH = scheduler.state()["_square_SH"]  # prices are 0 again at the end of the run
    assert np.array_equal(slope_SH[0], slope_SH[4])
    assert np.array_equal(slope_SH[1], slope_SH[5])
    assert not np.array_equal(slope_SH[0], slope_SH[1])


def test_where_no_sites_are_alike_kinds_change_nothing():
    environment = build_environment(many_sites(1500, 6, zones=2))
    environment = replace(environment, sample_jobs=environment.sample_jobs.__call__)  # says nothing of what is expected
    exact, kinds = (run(environment, BidPrice(Forecast("regression"), exact_sites=count)).job_J for count in (6, 1))
    assert exact.tobytes() == kinds.tobytes()


def test_kinds_cost_little_of_the_utility():
    environment = build_environment(many_sites(2000, 12, zones=1))
    exact, kinds = (
        settle(run(environment, BidPrice(Forecast("regression"), exact_sites=count))).utility_usd for count in (12, 1)
    )
    assert kinds == pytest.approx(exact, rel=0.02)
