"""MASAC-credit: returns are what jobs earned, prices are fitted, and a run that stops resumes bit for bit."""

import dataclasses

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.learn.algorithms.masac_credit import MasacCredit, MasacCreditConfig
from noonward.learn.algorithms.registry import ALGORITHMS, algorithm_named
from noonward.learn.core.experience import Credit, Played, Studied
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.cluster_runs import capacity_usd, discounted_from, job_values_usd
from noonward.learn.tasks.edge import EdgeTask
from noonward.learn.tasks.source import Source
from noonward.learn.train.export import export_policy
from noonward.learn.train.run_config import RunConfig, with_settings
from noonward.learn.train.run_trainer import RunTrainer, trainer_for
from noonward.learn.train.trainer import CHECKPOINT, CURVES
from noonward.ledger.ledger import settle, settle_run
from noonward.ledger.segments import JOB_OUTCOME
from noonward.runtime.executor import map_runs
from noonward.runtime.processes import Processes
from noonward.schedule.cluster.choices.layout import INPUTS, PRICE_INPUTS
from noonward.schedule.policies import make_scheduler
from noonward.schedule.policy_files import load_policy

BRIEF = ("environments=2", "validation_environments=2", "windows=3", "price_steps=20", "questions=200", "hidden=[8,8]")


def brief_run(epochs=3, *more, setting=()):
    task = ClusterTask(sources=(Source(scenario="tiny", settings=setting),))
    return with_settings("masac-credit", task, (*BRIEF, *more), epochs=epochs)


@pytest.mark.parametrize("policy", ["random", "cheapest-feasible", "booked-persistence"])
def test_the_jobs_values_and_an_idle_fleet_sum_to_the_utility(policy):
    outcome = run(build_environment(load_scenario("tiny")), make_scheduler(policy))
    ledger = settle(outcome)
    assert job_values_usd(outcome, settle_run(outcome)).sum() - ledger.fixed_usd == pytest.approx(ledger.utility_usd)


def test_capacity_is_paid_by_the_hours_a_job_runs_in():
    job_J = np.zeros(3, JOB_OUTCOME)
    job_J["site"], job_J["gpus"] = [0, 1, 0], [2, 3, 1]
    job_J["start_s"], job_J["finish_s"] = [1800.0, 0.0, np.nan], [9000.0, 3600.0 * 50, np.nan]
    price_SH = np.array([[0.1, 0.2, 0.4], [1.0, 0.0, 2.0]])
    # Half an hour at 0.1, one at 0.2, half at 0.4, two GPUs; hours after the last are free.
    assert capacity_usd(job_J, price_SH) == pytest.approx([2 * 0.45, 3 * 3.0, 0.0])


def test_the_teams_return_counts_jobs_that_start_at_or_after_the_question():
    value_J, start_h_J = np.array([1.0, 10.0, 100.0, 7.0]), np.array([2.0, 1.0, 2.0, np.nan])
    hour_Q = np.array([0.0, 1.0, 1.5, 3.0])
    assert discounted_from(value_J, start_h_J, hour_Q, 1.0) == pytest.approx([111.0, 111.0, 101.0, 0.0])
    half = discounted_from(value_J, start_h_J, hour_Q, 0.25)
    assert half == pytest.approx([10 * 0.25 + 101 * 0.25**2, 10 + 101 * 0.25, 101 * 0.5, 0.0])


def test_a_played_run_says_what_the_jobs_of_its_questions_earned():
    plays = brief_run().open().plays
    learner = MasacCredit(MasacCreditConfig(learned_price=0.0, questions=5000), 0)
    found = {price: plays.play(0, learner.scheduler(explore=True), Credit(1.0, price), 0) for price in (0.0, 1.0)}
    free, paid = found[0.0], found[1.0]
    assert len(free.own_Q) == free.questions > 30
    assert free.inputs_QI.shape[1] == INPUTS
    assert 0.2 < np.median(free.own_Q) < 1.0  # shares of the revenue
    assert (paid.own_Q <= free.own_Q + 1e-12).all()
    assert (paid.own_Q < free.own_Q - 1e-6).any()
    late = plays.play(0, learner.scheduler(explore=True), Credit(0.99, 0.0), 0)
    assert (late.own_Q <= free.own_Q + 1e-12).all()
    assert (late.own_Q < free.own_Q - 1e-6).any()


def test_the_learned_price_finds_a_simple_law():
    rng = np.random.default_rng(0)
    inputs_RI = rng.normal(size=(4000, PRICE_INPUTS)).astype(np.float32)
    price_R = 0.4 * np.maximum(0.0, 1.0 - inputs_RI[:, 0])
    learner = MasacCredit(MasacCreditConfig(price_steps=600), 0)
    assert learner.study(Studied(inputs_RI, price_R))["price_r2"] > 0.95
    assert MasacCredit(MasacCreditConfig(learned_price=0.0), 0).study(Studied(inputs_RI, price_R)) == {}


def test_the_critic_learns_what_choices_earn_beyond_their_plans():
    rng = np.random.default_rng(1)
    learner = MasacCredit(MasacCreditConfig(rate=5e-3, passes=30), 0)
    inputs_QI = rng.normal(size=(3000, INPUTS)).astype(np.float32)
    earned_Q = inputs_QI[:, 3] + 0.3 * inputs_QI[:, 7]
    ones = np.ones(3000)
    learner.observe(Played(inputs_QI, earned_Q.astype(float), 0 * ones, ones, 0.0, 3000))
    first = learner.update()["critic_loss"]
    learner.observe(Played(inputs_QI, earned_Q.astype(float), 0 * ones, ones, 0.0, 3000))
    assert learner.update()["critic_loss"] < 0.2 * first


def test_a_run_that_stops_resumes_bit_for_bit_and_exports_what_it_trained(tmp_path):
    whole = trainer_for(brief_run(), brief_run().open(), tmp_path / "whole")
    assert isinstance(whole, RunTrainer)
    whole.run()
    trainer_for(brief_run(2), brief_run(2).open(), tmp_path / "parts").run()
    resumed = trainer_for(brief_run(), brief_run().open(), tmp_path / "parts")
    assert resumed.epoch == 2
    resumed.run()
    assert [row["critic_loss"] for row in whole.curves[1:]] == [row["critic_loss"] for row in resumed.curves[1:]]
    assert whole.best_reward == resumed.best_reward
    mine, theirs = whole.algorithm.policy_arrays(), resumed.algorithm.policy_arrays()
    assert all(one.tobytes() == other.tobytes() for one, other in zip(mine.weights, theirs.weights, strict=True))
    meta = export_policy(tmp_path / "whole", tmp_path / "policy.npz")
    assert meta["record"]["validation_utility_usd"] == pytest.approx(whole.best_reward)
    assert load_policy(tmp_path / "policy.npz").nets.weights[0].shape == (1, INPUTS, 8)


def test_workers_play_the_runs_of_the_same_training(tmp_path):
    def trained(folder, carry_out):
        trainer = trainer_for(brief_run(2), brief_run(2).open(), folder, None, carry_out)
        trainer.run()
        return [(folder / name).read_bytes() for name in (CURVES, CHECKPOINT)]

    executor = Processes(2, patience_s=0.0, start_s=0.0)
    try:
        apart = trained(tmp_path / "apart", lambda specs, step: map_runs(specs, executor, step))
    finally:
        executor.close()
    assert executor.work.cores == 2
    assert executor.work.runs == 3 + 2 * 2 + 3 * 2  # windows studied; played and validated in the epochs
    assert apart == trained(tmp_path / "here", None)


@pytest.mark.parametrize(
    "setting",
    ["credit=team", "gamma=0.9", "capacity_price=0", "learned_price=0", "residual=false", "inputs=state", "ask_min=1",
     "deviate=0.3",
     "temperature_first=0.5", "temperature_last=1", "cooling=1", "rate=0.01", "passes=5", "batch=64", "kept=1",
     "weight_gpu_hours=1", "weight_most=1", "gradient_norm=0.001", "price_hidden=5", "price_rate=0.1",
     "price_batch=10"],
)  # fmt: skip
def test_every_setting_changes_what_is_learned(setting, tmp_path):
    learned = []
    for number, settings in enumerate(((), (setting,))):
        trainer = trainer_for(run_ := brief_run(2, *settings), run_.open(), tmp_path / str(number))
        trainer.run()
        arrays = trainer.algorithm.policy_arrays()
        learned.append(b"".join(part.tobytes() for part in (*arrays.weights, *arrays.biases)))
    assert learned[0] != learned[1]


def test_what_it_does_not_read_or_cannot_play_is_refused():
    with pytest.raises(ScenarioError, match="knows no steps"):
        brief_run(1, "steps=10")
    with pytest.raises(ScenarioError, match="two layers"):
        MasacCreditConfig(hidden=(8,))
    with pytest.raises(ScenarioError, match="plays whole runs"):
        brief_run(1, setting=("protocol=on-arrival",)).open()


def test_no_setting_of_an_algorithm_has_the_name_of_one_of_the_run():
    of_runs = {each.name for kind in (RunConfig, ClusterTask, EdgeTask) for each in dataclasses.fields(kind)}
    for name in ALGORITHMS:
        own = {each.name for each in dataclasses.fields(algorithm_named(name).config)}
        assert not own & of_runs, name


def test_the_forecast_of_plans_is_set_by_its_own_name():
    config = brief_run(1, "plan_forecast=persistence").algorithm_config()
    assert MasacCredit(config, 0).scheduler(explore=False).needs.forecast == Forecast("persistence")
    with pytest.raises(ScenarioError, match="plan_forecast is 'oracle'"):
        brief_run(1, "plan_forecast=oracle").algorithm_config()
