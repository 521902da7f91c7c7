from noonward.bench.edge_env import env_questions


def test_questions_are_counted_per_cpu_second():
    metric = env_questions(rows=8, steps=60)
    assert metric.name == "edge/batch_questions_per_cpu_s"
    assert metric.value is not None
    assert metric.value > 1000
