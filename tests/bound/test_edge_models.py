"""The bound for several models against exhaustive search on tiny worlds, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from bound.test_edge import least_response
from engine.edge.worlds import random_tasks
from noonward.bound import edge as edge_bound
from noonward.bound import edge_environment
from noonward.bound.edge_environment import chains, edge_response_bound
from noonward.bound.edge_models import least_mean_times, models_bound
from noonward.bound.edge_search import best_schedule
from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.edge.engine import edge_world
from noonward.evaluate.edge_objective import EdgeObjective
from noonward.model.edge.tasks import ImageTasks
from reference import edge as reference


def bound_of(servers, tasks, steps=24.0):
    columns = {name: np.array([task[name] for task in tasks]) for name in tasks[0]}
    return models_bound(
        servers,
        columns["stamp_t"] * 0.1,
        np.maximum(columns["stamp_t"] + 1, 10) * 0.1,
        columns["gang"],
        columns["model"],
        columns["load_s"],
        steps * columns["step_s"],
        1.0,
    )


@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("models", [1, 2, 4])
def test_no_schedule_is_better_than_the_bound(servers, models):
    """Loads differ from task to task, and many tasks come at once."""
    rng = np.random.default_rng(servers + models)
    gaps = []
    for number in range(12):
        tasks = random_tasks(rng, 4, servers, models, 200 if number % 2 else 600)
        for task in tasks:
            task["load_s"] = round(task["load_s"] * float(rng.uniform(0.1, 2.0)), 1)
        world = reference.World(servers, tasks, 24.0, fragmenting=number % 4 < 2)
        world.take_arrivals()
        least = least_response(world) / len(tasks)
        assert bound_of(servers, tasks) <= least + 1e-9
        gaps.append(least / bound_of(servers, tasks) - 1)
    assert np.mean(gaps) < 0.35


def task(gang, model, load_s, step_s, stamp_t=0):
    return {"stamp_t": stamp_t, "gang": gang, "model": model, "load_s": load_s, "step_s": step_s}


def test_a_model_that_one_task_alone_asks_for_is_loaded_for_it():
    assert bound_of(4, [task(1, 0, 20.0, 0.5), task(1, 1, 30.0, 0.5)]) == pytest.approx((33.0 + 43.0) / 2)


def test_a_second_task_of_a_class_waits_for_the_first_end_or_loads_itself():
    soon = [task(1, 0, 20.0, 0.5), task(1, 0, 90.0, 0.5)]  # the second is served by the gang that the first leaves
    assert bound_of(4, soon) == pytest.approx((33.0 + 45.0) / 2)
    apart = [task(1, 0, 90.0, 0.5), task(1, 0, 20.0, 0.5)]  # whichever of both
    assert bound_of(4, apart) == bound_of(4, soon)


def test_servers_that_all_tasks_need_are_counted():
    """Three tasks of both servers and three models: load and run one after another, the shortest first."""
    tasks = [task(2, model, load_s, 0.5) for model, load_s in enumerate((28.0, 8.0, 18.0))]
    assert bound_of(2, tasks) == pytest.approx((1 + 20 + 1 + 20 + 30 + 1 + 20 + 30 + 40) / 3)


def test_a_machine_that_may_interrupt_works_at_the_least_work_first():
    assert least_mean_times(np.array([5.0]), np.array([2.0])) == 6.0
    assert least_mean_times(np.array([0.0, 0.0]), np.array([4.0, 2.0])) == 1.0 + 4.0
    # 0 to 1 at the first, 1 to 3 at the second, 3 to 6 at the rest of the first
    assert least_mean_times(np.array([0.0, 1.0]), np.array([4.0, 2.0])) == pytest.approx((0.5 + 13.5) / 4 + 2.0)
    assert least_mean_times(np.array([3.0, 1.0]), np.array([0.0, 2.0])) == 3.0 + 2.0


def test_requests_as_in_a_real_trace_are_bounded_by_the_larger_bound():
    setting = load_scenario("edge-inference-real")
    more = []
    for number in range(6):
        environment = build_edge_environment(setting, number, 4)
        found = edge_response_bound(environment, 24.0)
        assert found <= best_schedule(edge_world(environment), 24.0, width=4).response_s
        record_K = environment.tasks.record_K
        of_gangs = edge_bound.response_bound(
            4,
            record_K["stamp_s"],
            record_K["ready_t"] * 0.1,
            record_K["gang"],
            environment.least_load_s_G,
            24.0 * environment.step_s_G,
            1.0,
        )
        more.append(found / of_gangs)
    assert min(more) >= 1
    assert np.mean(more) > 1.2


def test_what_would_take_too_long_is_left_out(monkeypatch):
    environment = build_edge_environment(load_scenario("edge-inference-reference"), 0, 0)
    whole = edge_response_bound(environment, 24.0)
    monkeypatch.setattr(edge_environment, "MOST_CHAINS", chains(environment.tasks.gang_K) - 1)
    less = edge_response_bound(environment, 24.0)
    assert 0 < less < whole


def test_a_task_that_may_have_few_steps_bounds_no_other():
    """A request for one step among others for 30, as in the real trace."""
    setting = load_scenario("edge-inference-real")
    whole = build_edge_environment(setting, 1, 4)
    record_K = whole.tasks.record_K.copy()
    record_K["steps_max"][3] = 1.0
    environment = replace(whole, tasks=ImageTasks(record_K=record_K))
    found = EdgeObjective().compute_bound(environment)
    assert found["response_s"] <= found["best_known_s"]
    assert found["response_s"] > edge_response_bound(environment, 1.0) + 5
    with pytest.raises(ValueError, match="given 1 steps; the scenario allows 5"):
        best_schedule(edge_world(environment), 1.0)
