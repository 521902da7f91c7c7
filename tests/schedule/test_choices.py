"""Policies that score choices: plans, books, holds, refusals, files, and fleets of any size."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.schedule.cluster.choices.file import ChoiceNets, read_choice_policy, write_choice_policy
from noonward.schedule.cluster.choices.layout import INPUTS, PRICE_INPUTS
from noonward.schedule.cluster.choices.policy import ChoicePolicy
from noonward.schedule.cluster.trained_policy import read_meta
from noonward.schedule.policy_files import load_policy
from reference import small_worlds

HOUR_S = 3600.0
ABOUT = {
    "algorithm": "masac-credit",
    "head": "choices",
    "scenario": "tiny",
    "protocol": "each-slot",
    "sites": ["north", "south"],
    "record": {},
    "forecast": {"kind": "persistence"},
    "ask_s": 900.0,
    "residual": True,
    "price_scale": 1.0,
    "state_only": False,
}


def nets(price=-50.0, seed=None):
    """Nets that add nothing to planned values and price every hour alike: softplus(price) x 0.4 of the revenue."""
    sizes = ((INPUTS, 4), (4, 4), (4, 1), (PRICE_INPUTS, 3), (3, 1))
    rng = np.random.default_rng(seed)
    draw = (lambda *shape: np.zeros(shape)) if seed is None else (lambda *shape: rng.normal(scale=0.05, size=shape))
    weights = [draw(1, *size).astype(np.float32) for size in sizes]
    biases = [draw(1, size[1]).astype(np.float32) for size in sizes]
    biases[-1] += np.float32(price)
    return ChoiceNets(tuple(weights[:3]), tuple(biases[:3]), tuple(weights[3:]), tuple(biases[3:]))


def policy(**options):
    return ChoicePolicy(options.pop("nets", nets()), Forecast(options.pop("forecast", "perfect")), **options)


def starts(environment, scheduler):
    return run(environment, scheduler).job_J["start_s"]


def test_a_job_waits_for_the_cheap_hour_and_starts_at_its_plan():
    price = [[100.0, 100.0, 0.0, 100.0]]
    job = {"work": HOUR_S, "slack_s": 3 * HOUR_S}
    world = small_worlds.plain([2], [job], price=price)
    assert starts(world.environment(), policy()) == pytest.approx([2 * HOUR_S])


def test_a_plan_leaves_room_to_the_plans_of_others():
    price = [[100.0, 100.0, 0.0, 50.0, 100.0]]
    jobs = [{"work": HOUR_S, "gpus": 2, "slack_s": 4 * HOUR_S}] * 2
    world = small_worlds.plain([2], jobs, price=price)
    assert sorted(starts(world.environment(), policy())) == pytest.approx([2 * HOUR_S, 3 * HOUR_S])


def test_a_job_moves_to_the_cheaper_site():
    world = small_worlds.plain([2, 2], [{"work": HOUR_S, "slack_s": HOUR_S, "move_gb": 1.0}], price=[[100.0], [10.0]])
    outcome = run(world.environment(), policy())
    assert outcome.job_J["site"].tolist() == [1]
    assert outcome.job_J["moves"].tolist() == [1]


def test_a_job_that_does_not_pay_the_price_of_capacity_is_refused():
    world = small_worlds.plain([2], [{"work": HOUR_S, "slack_s": HOUR_S}], price=[[100.0]])
    dear = policy(nets=nets(price=5.0))  # 5 x 0.4 of the revenue
    assert np.isnan(starts(world.environment(), dear)).all()
    assert np.isfinite(starts(world.environment(), policy(nets=nets(price=5.0), price_scale=0.0))).all()


def test_a_hold_stands_until_the_next_question():
    environment = build_environment(load_scenario("tiny"))
    asked = {}
    for ask_s in (60.0, 900.0):
        scheduler = policy(forecast="persistence", ask_s=ask_s, notes=1)
        run(environment, scheduler)
        asked[ask_s] = scheduler.noted[1]
    assert 0 < 3 * asked[900.0] < asked[60.0]


@pytest.mark.parametrize("name", ["tiny", "fine-tuning"])
def test_one_net_runs_in_fleets_of_any_size(name):
    environment = build_environment(load_scenario(name))
    fcfs = settle(run(environment, load_scheduler("local-fcfs"))).utility_usd
    assert settle(run(environment, policy(forecast="persistence"))).utility_usd > fcfs


def load_scheduler(name):
    from noonward.schedule.policies import make_scheduler

    return make_scheduler(name)


def test_the_compiled_loop_and_single_questions_decide_alike():
    environment = build_environment(load_scenario("tiny"))
    options = {"nets": nets(price=-3.0, seed=3), "forecast": "persistence", "temperature": 0.01}
    whole, single = (run(environment, policy(**options), compiled=compiled) for compiled in (True, False))
    assert whole.job_J.tobytes() == single.job_J.tobytes()


def test_notes_are_a_sample_of_all_questions():
    environment = build_environment(load_scenario("tiny"))
    few, all_of_them = policy(forecast="persistence", notes=10), policy(forecast="persistence", notes=10_000)
    run(environment, few)
    run(environment, all_of_them)
    assert few.noted[1] == all_of_them.noted[1] == len(all_of_them.noted[0])
    assert len(few.noted[0]) == 10
    every = {row.tobytes() for row in all_of_them.noted[0]}
    assert all(row.tobytes() in every for row in few.noted[0])
    assert few.noted[0][:, INPUTS].max() > 15  # not the first ones only


def test_a_file_holds_the_policy(tmp_path):
    made, path = nets(price=-3.0, seed=1), tmp_path / "choices.npz"
    parts = [*made.weights, *made.price_weights], [*made.biases, *made.price_biases]
    write_choice_policy(path, *parts, ABOUT)
    assert read_meta(path)["head"] == "choices"
    environment = build_environment(load_scenario("tiny"))
    kept = load_policy(path)
    direct = policy(nets=made, forecast="persistence")
    assert run(environment, kept).job_J.tobytes() == run(environment, direct).job_J.tobytes()
    assert any("north, south" in note for note in load_policy(path).remarks(brief_of("fine-tuning")))
    assert not load_policy(path).remarks(brief_of("tiny"))


def brief_of(name):
    from noonward.decision.brief import Brief, Needs

    return Brief.of(build_environment(load_scenario(name)), Needs())


def test_a_file_of_other_shape_is_refused(tmp_path):
    made, path = nets(), tmp_path / "choices.npz"
    wrong = replace(made, biases=(np.zeros((1, 5), np.float32), *made.biases[1:]))
    with pytest.raises(DataError, match="shape"):
        write_choice_policy(path, [*wrong.weights, *wrong.price_weights], [*wrong.biases, *wrong.price_biases], ABOUT)
    parts = [*made.weights, *made.price_weights], [*made.biases, *made.price_biases]
    with pytest.raises(DataError, match="ask_s"):
        write_choice_policy(path, *parts, {name: value for name, value in ABOUT.items() if name != "ask_s"})
    assert not path.exists()
    write_choice_policy(path, *parts, ABOUT)
    assert read_choice_policy(path)[1] == Forecast("persistence")
