"""A net beside a rule: it follows what the rule proposes, may overrule it, and the rule's books stay true."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.observation import Observation
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.evaluate.conformance import check_scheduler
from noonward.forecasts.forecast import Forecast
from noonward.schedule.cluster.advised_policy import AdvisedPolicy
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.trained_policy import TrainedPolicy, write_policy
from noonward.schedule.registry import load_policy, make_scheduler
from noonward.seeding import stream

OBSERVATION = Observation(kind="paper")
PERSISTENCE = Forecast("persistence")


@pytest.fixture(scope="module")
def environment():
    return build_environment(load_scenario("tiny"), 1, 0)


def write(path, environment, *, own_start=0.0, hold=0.0, logit=0.0, adviser="bid-price-persistence", features=False):
    """Writes nets of one layer, all zero but for biases on holding and on starting here."""
    sites = environment.sites
    inputs = OBSERVATION.global_size(len(sites)) + features * (1 + len(sites))
    bias_NA = np.zeros((len(sites), 1 + len(sites)), np.float32)
    bias_NA[:, 0] = hold
    for n in range(len(sites)):
        bias_NA[n, 1 + n] = own_start
    meta = {
        "algorithm": "none",
        "scenario": "tiny",
        "protocol": "each-slot",
        "sites": list(sites),
        "observation": asdict(OBSERVATION),
        "hidden": "relu",
        "head": "logits",
        "agent_one_hot": False,
        "record": {},
        "advice_features": features,
        "advice_logit": logit,
    } | ({} if adviser is None else {"adviser": adviser})
    write_policy(path, [np.zeros((len(sites), inputs, 1 + len(sites)), np.float32)], [bias_NA], meta)
    return path


def same(one, other):
    return all(
        np.array_equal(one.job_J[name], other.job_J[name], equal_nan=name.endswith("_s"))
        for name in ("status", "site", "start_s")
    )


class StartHere(Scheduler):
    """Starts whatever may start where it is; else holds."""

    needs = Needs(protocols=("each-slot",))

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.allowed(site, site):
                answers.send(site, site)


@pytest.mark.parametrize("features", [False, True])
def test_a_net_without_opinions_does_what_the_rule_does(environment, tmp_path, features):
    policy = load_policy(write(tmp_path / "p.npz", environment, logit=1.0, features=features))
    assert isinstance(policy, AdvisedPolicy)
    assert same(run(environment, policy, seed=3), run(environment, BidPrice(PERSISTENCE), seed=3))


def test_a_net_that_is_sure_overrules_the_rule(environment, tmp_path):
    path = write(tmp_path / "p.npz", environment, own_start=4.0, hold=2.0, logit=1.0)
    outcome = run(environment, make_scheduler(str(path)), seed=3)
    assert same(outcome, run(environment, StartHere(), seed=3))
    assert not same(outcome, run(environment, BidPrice(PERSISTENCE), seed=3))


def test_the_books_of_an_overruled_rule_hold_what_was_carried_out(environment, tmp_path):
    path = write(tmp_path / "p.npz", environment, own_start=4.0, hold=2.0, logit=1.0)
    adviser = BidPrice(PERSISTENCE)
    policy = AdvisedPolicy(path, adviser)
    engine = ClusterEngine(environment, policy, seed=3)
    policy.reset(Brief.of(environment, policy.needs), stream(3, "policy", environment.index))
    while engine.step():
        policy.decide(engine.view, engine.answers)
    job_J, jobs = engine.outcome().job_J, environment.jobs
    booked_TS = np.zeros_like(adviser._booked_TS)
    for job in np.flatnonzero(~np.isnan(job_J["start_s"])):
        first = round(job_J["start_s"][job] / environment.slot_s)
        length = int(np.ceil(jobs.work_J[job] / environment.slot_s))
        booked_TS[first : first + length, job_J["site"][job]] += jobs.gpus_max_J[job]
    np.testing.assert_array_equal(adviser._booked_TS, booked_TS)


def test_advised_policies_keep_the_rules_of_the_interface(tmp_path):
    small = SimpleNamespace(sites=("site0", "site1", "site2"))  # those of the conformance check
    path = write(tmp_path / "p.npz", small, own_start=0.5, logit=1.0)
    check_scheduler(load_policy(path))


def test_files_that_do_not_fit_say_so(environment, tmp_path):
    alone = write(tmp_path / "alone.npz", environment, adviser=None)
    assert isinstance(load_policy(alone), TrainedPolicy)
    with pytest.raises(DataError, match="trained without an adviser"):
        AdvisedPolicy(alone, BidPrice(PERSISTENCE))
