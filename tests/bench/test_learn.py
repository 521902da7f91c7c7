"""Benchmarks of learning: the environment's counts joint steps; a device is timed beside the CPU."""

from noonward.bench import learn as bench_learn


def test_the_environments_figure_counts_joint_steps(monkeypatch):
    timed = []

    def one_call(work):
        work()
        timed.append(work)
        return float(len(timed))  # 1 s to set back, 2 s with the replay: the replay takes 1 s

    monkeypatch.setattr(bench_learn, "cpu_seconds", one_call)
    monkeypatch.setattr(bench_learn, "STEPS", 50)
    named = []
    (metric,) = bench_learn.bench_environment(named.append)
    assert named == [metric.name] == ["environment/joint_steps_per_cpu_s"]
    assert (metric.value, metric.unit) == (10 * 50, "joint steps/CPU s")


def test_a_device_is_timed_beside_the_cpu(monkeypatch):
    monkeypatch.setattr(bench_learn, "TWENTIETH", (60, 5))
    monkeypatch.setattr(bench_learn, "ROUNDS", 1)
    rate, ratio = bench_learn.updates_on("cpu")
    assert (rate.name, rate.unit) == ("masac/gpu_joint_updates_per_s", "joint updates/s")
    assert ratio.name == "masac/gpu_ratio_to_cpu"
    assert rate.value > 0
    assert ratio.value > 0
