import numpy as np

from noonward.bench import plan as bench_plan
from noonward.schedule.plan import make_plan
from schedule.plan.problems import paper_like


def test_the_large_problem_has_the_papers_form_at_another_size():
    problem = bench_plan.large_problem(clusters=6, samples=3)
    assert problem.shape == (3, 24, 10, 34, 6)
    assert [len(one.clusters) for one in problem.classes] == [1] * 6 + [2] * 3 + [6]


def test_placements_are_counted_per_cpu_second(monkeypatch):
    monkeypatch.setattr(bench_plan, "JOBS", 240_000)
    plan = make_plan(paper_like(samples=3, hours=24))
    batch, single = bench_plan.placement_metrics(plan)
    assert batch.name == "placement/decisions_per_cpu_s"
    assert batch.value > single.value > 1e4


def test_the_bench_names_what_it_measures(monkeypatch):
    monkeypatch.setattr(bench_plan, "JOBS", 24_000)
    monkeypatch.setattr(bench_plan, "generate_load_shapes", lambda days, classes, rng: np.full((2, 24, classes), 0.3))
    done = []
    metrics = {metric.name: metric.value for metric in bench_plan.bench_plan(done.append, large=False)}
    assert len(done) == bench_plan.STEPS - 1
    for name in (
        "plan/paper_size/cpu_s",
        "plan/replan_one_hour/cpu_s",
        "plan/ratio_to_whole_compact_lp",
        "placement/decisions_per_cpu_s",
    ):
        assert metrics[name] > 0
