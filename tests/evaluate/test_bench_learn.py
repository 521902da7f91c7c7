"""The benchmark of the environment replays a run and counts its joint steps."""

from noonward.evaluate import bench_learn


def test_the_environments_figure_counts_joint_steps(monkeypatch):
    timed = []

    def one_call(work):
        work()
        timed.append(work)
        return float(len(timed))  # 1 s to set back, 2 s with the replay: the replay takes 1 s

    monkeypatch.setattr(bench_learn, "cpu_seconds", one_call)
    monkeypatch.setattr(bench_learn, "STEPS", 50)
    named = []
    (figure,) = bench_learn.bench_environment(named.append)
    assert named == [figure.name] == ["environment/joint_steps_per_cpu_s"]
    assert (figure.value, figure.unit) == (10 * 50, "joint steps/CPU s")
