"""The task of edge scenarios: advice against runs of the engine, draws, exported policies, records."""

import json
import math

import numpy as np
import pytest
import torch

from engine.edge.cells import environments
from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.view import EdgeAnswers
from noonward.engine.edge.engine import run_edge_environment
from noonward.errors import DataError, ScenarioError
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.settings import build
from noonward.learn.tasks import edge
from noonward.learn.tasks.edge import AdvisedBatch, EdgeTask
from noonward.learn.tasks.edge_advice import level_costs, make_room, place_costs, play_on
from noonward.learn.tasks.rows import moment_of
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import dimensions_of
from noonward.learn.train.export import export_policy
from noonward.learn.train.run_config import RunConfig, with_settings
from noonward.learn.train.trainer import Trainer
from noonward.ledger.edge import settle_edge
from noonward.model.edge.quality import quality
from noonward.schedule.edge import trained_policy
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.rules import PatientReuse
from noonward.schedule.edge.trained_policy import PARTS, EdgePolicy, read_meta, read_policy, write_policy
from noonward.schedule.policy_files import load_policy
from noonward.schedule.trained_files import trained_files

TASK = EdgeTask(sources=(Source(scenario="edge-inference-reference"),))
STEPS = 22.0


def played(task, batch, drawn, choice, rule):
    """Returns what a choice in row 0 leads to if a rule plays on in the engine: the sum of later responses, s."""
    copy = AdvisedBatch(task, drawn, [0] * len(drawn))
    copy.load_state(batch.state())
    before = copy.total("response_s")[0]
    rule.reset(EdgeBrief.of(drawn[0]), np.random.default_rng(0))
    while not copy.done_B[0]:
        choice_BN = np.array([[row.argmax()] for row in copy.mask_BNA[:, 0]])
        choice_BN[0, 0] = choice
        copy.step(choice_BN)
        if not copy.done_B[0]:
            answers = EdgeAnswers(np.zeros(1, copy.rows.answer_B.dtype))
            rule.decide(copy.row_view(0), answers)
            place = int(answers.answer_1["choice"][0])
            choice = place * len(task.steps) + (int(STEPS) - task.steps_low if place else 0)
    return copy.total("response_s")[0] - before


@pytest.mark.parametrize("nested", [False, True], ids=["patient", "lookahead"])
def test_what_is_played_on_in_hindsight_is_what_the_engine_does(nested):
    drawn = environments(3)
    batch, rng, seen = AdvisedBatch(TASK, drawn, [0, 0, 0]), np.random.default_rng(4), 0
    rule = Lookahead(STEPS) if nested else PatientReuse(STEPS)
    room = make_room(12, 10, 12)
    while not batch.done_B[0] and seen < 8:
        world = batch.row_world(0)
        for place in np.flatnonzero(batch.rows.mask_BA[0]).tolist():
            choice = place * 26 + (7 if place else 0)
            expected = played(TASK, batch, drawn, choice, rule)
            assert play_on(world, room, place, 12.0, STEPS, True, nested) == pytest.approx(expected)
        batch.step(np.array([[rng.choice(np.flatnonzero(row))] if row.any() else [0] for row in batch.mask_BNA[:, 0]]))
        seen += 1


def test_costs_by_the_tasks_known_now_do_not_depend_on_later_ones_and_hindsight_does():
    drawn = environments(1)
    batch = AdvisedBatch(TASK, drawn, [0])
    room, cost_A, other_A = make_room(12, 10, 12), np.zeros(11), np.zeros(11)
    found = []
    for change in (0.0, 20.0):
        batch.rows.task_BK["ready_t"][0, 4:] += int(change * 10)
        batch.rows.task_BK["stamp_s"][0, 4:] += change
        place_costs(batch.row_world(0), room, STEPS, False, False, cost_A)
        place_costs(batch.row_world(0), room, STEPS, True, False, other_A)
        found.append((cost_A.copy(), other_A.copy()))
    assert found[0][0].tolist() == found[1][0].tolist()
    assert found[0][1].tolist() != found[1][1].tolist()
    assert found[0][0][batch.rows.mask_BA[0] != 0].min() == 0.0


def test_steps_cost_their_time_less_quality_at_its_price():
    batch = AdvisedBatch(TASK, environments(1), [0])
    world, room, cost_L = batch.row_world(0), make_room(12, 10, 12), np.zeros(26)
    level_costs(world, room, 1, batch.step_L, STEPS, 90.0, True, cost_L)
    costs = [play_on(world, room, 1, s, STEPS, True, False) - 90.0 * quality(s, 0) for s in batch.step_L]
    np.testing.assert_allclose(cost_L, np.array(costs) - min(costs))


def test_launches_of_training_get_the_steps_that_the_least_quality_needs():
    task = EdgeTask(sources=(Source(scenario="edge-inference"),), cells="own")
    made, seed = task.open(0).training(0)
    batch = AdvisedBatch(task, [made], [seed])
    place = int(np.flatnonzero(batch.rows.mask_BA[0])[-1])
    batch.step(np.array([[place * 26]]))  # 5 steps are named
    assert batch.total("quality")[0] == pytest.approx(quality(12.0, 0))
    assert batch.total("quality")[0] > made.setting.quality_min > quality(11.0, 0)


def test_the_price_is_sought_where_the_line_through_all_rounds_meets_the_quality():
    line = np.array([[1.0, 0.25, 1.0], [2.0, 0.30, 1.0]])  # slope 0.05
    assert edge._crossing(line, 0.26) == pytest.approx(1.2)
    assert edge._crossing(line[:1], 0.26) == pytest.approx(1.0 + 0.01 / 0.05)
    flat = np.array([[1.0, 0.25, 1.0], [2.0, 0.25, 1.0]])
    assert edge._crossing(flat, 0.26) == pytest.approx(1.5 + 0.01 / 0.02)
    heavy = np.array([[1.0, 0.25, 3.0], [2.0, 0.30, 1.0]])
    assert edge._crossing(heavy, 0.26) == pytest.approx(1.2)


def test_dual_ascent_finds_the_price_of_a_quality_on_fresh_episodes(monkeypatch):
    seen, rng = [], np.random.default_rng(3)

    def figures(path, scenario, seed, indices, price_s):
        seen.extend(indices)
        return 40.0, 0.2 + 0.012 * np.log(price_s) + rng.normal() * 0.008 / np.sqrt(len(indices))

    monkeypatch.setattr(edge, "mean_figures", figures)
    found = edge.price_at("p.npz", load_scenario("edge-inference"), 1, 0.26)
    assert np.log(found) == pytest.approx(0.06 / 0.012, abs=0.25)
    assert seen == list(range(sum(edge.ROUNDS)))


def test_draws_are_the_papers_fifteen_cells_in_turn_and_parts_do_not_mix():
    task = TASK.open(0)
    drawn = [task.training(number)[0] for number in range(31)]
    cells = [(each.setting.servers.count, each.setting.tasks.rate_per_s) for each in drawn]
    assert cells[:15] == [(servers, rate) for servers, rates in edge.RATES_PER_S.items() for rate in rates]
    assert cells[15:30] == cells[:15]
    assert (drawn[0].index, drawn[15].index, drawn[0].seed) == (0, 1, 10_000)
    assert task.validation(0)[0].seed == 20_000
    own = EdgeTask(sources=(Source(scenario="edge-inference-reference"),), cells="own", replayed=True).open(3)
    assert {(own.training(n)[0].index, own.training(n)[0].seed) for n in range(4)} == {(0, 10_003)}
    prices = [TASK.price_of(each) for each in drawn]
    assert min(prices) >= 60.0
    assert max(prices) <= 600.0
    assert len(set(prices)) == 31


def test_wrong_settings_are_refused():
    source = (Source(scenario="edge-inference"),)
    for wrong, said in (
        ({"cells": "all"}, "cells is"),
        ({"advice": "oracle"}, "advice is"),
        ({"steps_high": 4}, "below steps_low"),
        ({"price_high_s": 1.0}, "at least price_low_s"),
        ({"reward": "usd"}, "reward is"),
    ):
        with pytest.raises(ScenarioError, match=said):
            EdgeTask(sources=source, **wrong)
    with pytest.raises(ScenarioError, match="of kind cluster"):
        EdgeTask(sources=(Source(scenario="tiny"),)).open(0)
    with pytest.raises(ScenarioError, match="leave out --signals"):
        EdgeTask(sources=(Source(scenario="edge-inference", jobs="x.parquet"),)).open(0)


def small_policy(name, **settings):
    """Returns a learner with random nets of float64, its batch and what its file says."""
    batch = AdvisedBatch(TASK, environments(6), [0] * 6)
    task, entry = TASK.open(0), algorithm_named(name)
    made = entry.make(dimensions_of(batch, task), build(entry.config, {"precision": "float64", **settings}), 1)
    meta = {**made.policy_arrays().meta, **task.about, "prices": [[4, 0.05, 24, 90.0]], "record": {}}
    return made, batch, meta


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("eat", {}),
        ("eat", {"predicts": "noise", "betas": "linear", "tanh_noise": True, "limit": 0.0}),
        ("eat", {"predicts": "noise"}),
        ("eat-a", {}),
        ("eat-d", {}),
        ("eat-da", {}),
        ("ppo", {}),
    ],
)
def test_an_exported_policy_is_the_net_to_1e_12(name, settings, tmp_path):
    made, batch, meta = small_policy(name, **settings)
    arrays = made.policy_arrays()
    write_policy(tmp_path / "p.npz", arrays.weights, [], meta)
    policies = [EdgePolicy(tmp_path / "p.npz", TASK.price_of(each)) for each in batch.environments]
    for policy, environment in zip(policies, batch.environments, strict=True):
        policy.reset(EdgeBrief.of(environment), np.random.default_rng(0))
    chosen, compared = 0, 0
    for _ in range(25):
        choice_BN = made.act(moment_of(batch), explore=False)
        for row in np.flatnonzero(~batch.done_B):
            answers = EdgeAnswers(np.zeros(1, batch.rows.answer_B.dtype))
            policies[row].decide(batch.row_view(row), answers)
            place = int(answers.answer_1["choice"][0])
            level = int(answers.answer_1["steps"][0]) - 5 if place else 0
            chosen, compared = chosen + (place * 26 + level == choice_BN[row, 0]), compared + 1
            scratch = policies[row].memory.scratch_XY
            tokens = torch.from_numpy(scratch[:23, :18].copy())[None]
            with torch.no_grad():
                if name == "ppo":
                    expected = made.actor(made.actor.features(tokens))[0][0].numpy()
                else:
                    expected = made.mean_action(tokens)[0][0].numpy()
            got = scratch[3 * 23 + 10 + (5 if "rounds" in meta["net"] and meta["net"]["rounds"] else 6)]
            whole = len(arrays.weights[PARTS.index("whole_b")])
            held = np.r_[np.ones(whole, bool), batch.row_view(row).task_Q["task"] >= 0]
            np.testing.assert_allclose(got[: whole + 10][held], expected[held], atol=1e-12)
        batch.step(np.where(batch.done_B[:, None], 0, choice_BN))
    assert compared > 60
    assert chosen > 0.97 * compared  # tokens are rounded to float32 in training alone


def test_a_policy_gives_no_launch_fewer_steps_than_the_least_quality_needs(tmp_path):
    made, _, meta = small_policy("eat-da")
    with torch.no_grad():
        made.actor.whole_b[1] = -9.0  # the fewest steps for every launch
        made.actor.whole_b[0] = 9.0
    write_policy(tmp_path / "p.npz", made.policy_arrays().weights, [], meta)
    for name, least in (("edge-inference", 12.0), ("edge-inference-reference", 5.0)):
        environment = build_edge_environment(load_scenario(name), 0, 1)
        ledger = settle_edge(run_edge_environment(environment, EdgePolicy(tmp_path / "p.npz")))
        assert ledger.quality == pytest.approx(quality(least, 0))
        assert ledger.below_quality_min == 0


def test_a_policy_whose_noise_is_left_on_is_asked_anew_at_the_next_tick(tmp_path):
    made, batch, meta = small_policy("eat-published")
    with torch.no_grad():
        made.actor.whole_b[0] = 30.0  # noise of that sign: the action waits
    write_policy(tmp_path / "p.npz", made.policy_arrays().weights, [], meta)
    policy = EdgePolicy(tmp_path / "p.npz")
    policy.reset(EdgeBrief.of(batch.environments[0]), np.random.default_rng(0))
    answers = EdgeAnswers(np.zeros(1, batch.rows.answer_B.dtype))
    policy.decide(batch.row_view(0), answers)
    now_t = int(batch.row_view(0).run_1["now_t"][0])
    assert answers.answer_1["choice"][0] == 0
    assert answers.answer_1["until_s"][0] == pytest.approx((now_t + 1) * 0.1)


def test_half_precision_leaves_the_rounds_of_noise_as_they_are(tmp_path):
    made, batch, meta = small_policy("eat-published")
    write_policy(tmp_path / "p.npz", made.policy_arrays().weights, [], meta, half=True)
    arrays = read_policy(tmp_path / "p.npz")[0]
    assert arrays["signal_T"][0] == pytest.approx(0.9999)
    assert not np.array_equal(arrays["whole_w"], made.policy_arrays().weights[PARTS.index("whole_w")])
    ledger = settle_edge(run_edge_environment(batch.environments[0], EdgePolicy(tmp_path / "p.npz")))
    assert 0.0 < ledger.quality < 0.284


def test_the_price_is_that_of_the_training_where_a_run_is_one_of_its_scenarios(tmp_path):
    made, _, meta = small_policy("eat-da")
    meta["prices"] = [[4, 0.03, 24, 80.0], [4, 0.05, 24, 120.0], [8, 0.1, 24, 95.0], [4, 0.05, 33.5, 70.0]]
    path = tmp_path / "p.npz"
    write_policy(path, made.policy_arrays().weights, [], meta)

    def price(name, *changes, given=None):
        brief = EdgeBrief.of(build_edge_environment(load_scenario(name, changes), 0, 1))
        return EdgePolicy(path, given).price_in(brief)

    large = ("servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1")
    assert price("edge-inference-reference") == 120.0
    assert price("edge-inference-reference", "tasks.rate_per_s=0.03", "window_h=3", "tasks.deadline_s=9") == 80.0
    assert price("edge-inference-reference", *large) == 95.0
    assert price("edge-inference") == 70.0
    assert price("edge-inference", given=33.0) == 33.0


@pytest.mark.parametrize(
    "changes",
    [
        ("tasks.rate_per_s=0.06",),
        ("tasks.sizes=[1,2]",),
        ("tasks.count=40",),
        ("gang_times.4.load_s=60",),
        ("quality_goal=0.27",),
        ("servers.count=5",),
    ],
)
def test_a_run_outside_the_training_finds_the_price_on_its_own_law(tmp_path, monkeypatch, changes):
    made, _, meta = small_policy("eat-da")
    meta["prices"] = [[4, 0.05, 24, 120.0]]
    path = tmp_path / "p.npz"
    write_policy(path, made.policy_arrays().weights, [], meta)
    asked = []

    def rehearsed(law, rule, memory_at, low, high, halvings, **how):
        asked.append((law.digest, memory_at(math.log(77.0)).number_P[1]))
        return math.log(77.0)

    monkeypatch.setattr(trained_policy, "rehearsed", rehearsed)
    setting = load_scenario("edge-inference-reference", changes)
    for _ in range(2):
        policy = EdgePolicy(path)
        policy.reset(EdgeBrief.of(build_edge_environment(setting, 0, 1)), np.random.default_rng(0))
        assert policy.memory.number_P[1] == pytest.approx(77.0)
    assert asked == [(setting.digest, pytest.approx(77.0))], "once in a process"


@pytest.mark.usefixtures("few_sampled_tasks")
def test_a_run_is_exported_with_its_record_and_runs_by_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(edge, "ROUNDS", (2, 1))
    settings = ["environments=4", "steps=30", "updates=3", "validation_environments=3", "cells=own", "advice=patient"]
    settings += ["hidden=[8,8]", "width=8", "heads=2", "context=8", "batch=16", "imitation_updates=3"]
    source = Source(scenario="edge-inference-reference", settings=("tasks.count=12", "tasks.first=4"))
    config = with_settings("eat", EdgeTask(sources=(source,)), settings, epochs=2)
    assert RunConfig.from_json(config.to_json()).content() == config.content()
    Trainer(config, config.open(), tmp_path / "run").run()
    path = tmp_path / "own.npz"
    export_policy(tmp_path / "run", path)
    meta = read_meta(path)
    assert meta["record"]["config"]["algorithm"] == "eat"
    assert len(meta["record"]["curve"]) == 2
    row = meta["record"]["curve"][0]
    assert row["episode_length"] == pytest.approx(120 / row["episodes"])
    assert row["reward"] == pytest.approx(row["reward_per_step"] * row["episode_length"])
    assert row["loss"] == row["imitation_loss"]
    curve = [{**row, "soft_loss": 2.0, "episodes": 0}]
    export_policy(tmp_path / "run", path, further={"from_scratch": [{"seed": 0, "curve": curve}]})
    scratch = read_meta(path)["record"]["from_scratch"][0]["curve"][0]
    assert (scratch["loss"], scratch["reward"], scratch["episode_length"]) == (2.0, None, None)
    assert meta["prices"][0][:3] == [4.0, 0.05, 24.0]
    assert set(meta["record"]) >= {"validation_response_s", "validation_quality", "seeds", "versions"}
    scheduler = load_policy(path)
    assert isinstance(scheduler, EdgePolicy)
    assert [file.name for file in trained_files((tmp_path,), read_meta)] == ["own"]
    more = load_scenario("edge-inference-reference", ["servers.count=16"])
    with pytest.raises(ScenarioError, match="at most 12 servers"):
        scheduler.reset(EdgeBrief.of(build_edge_environment(more)), np.random.default_rng(0))


def test_damaged_files_are_refused(tmp_path):
    made, _, meta = small_policy("eat-da")
    arrays = made.policy_arrays().weights
    with pytest.raises(DataError, match="meta lacks prices"):
        write_policy(tmp_path / "p.npz", arrays, [], {k: v for k, v in meta.items() if k != "prices"})
    with pytest.raises(DataError, match="unknown head"):
        write_policy(tmp_path / "p.npz", arrays, [], {**meta, "head": "tail"})
    with pytest.raises(DataError, match="must have"):
        write_policy(tmp_path / "p.npz", arrays, [], {**meta, "net": {**meta["net"], "width": 16}})
    bad = [np.full_like(each, np.nan) for each in arrays]
    with pytest.raises(DataError, match="not finite"):
        write_policy(tmp_path / "p.npz", bad, [], meta)
    assert not list(tmp_path.iterdir())
    assert json.dumps(meta)
