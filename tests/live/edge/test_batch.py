"""Equal requests drawn at once: which ones, what their records say, and what becomes of them if the launch fails."""

import pytest

from live.edge.fakes import Bench
from noonward.errors import DataError


@pytest.fixture
def bench(tmp_path):
    """One worker that is ready and draws up to three images at once; it is at work, so that tasks wait."""
    found = Bench(tmp_path, batch=3, tries=1).ready()
    found.submit(gang=4)
    found.load(0, 1, 2, 3)
    return found


def begun(bench, *given):
    """Submits tasks and ends what keeps the servers; returns the tasks, of which the first has been launched."""
    tasks = [bench.submit(**each) for each in given]
    bench.draw(0, 1, 2, 3)
    return tasks


def order(bench):
    """Loads the first server's model; returns what it is to draw."""
    bench.load(0)
    return next(arguments[0] for n, name, arguments, _ in bench.workers.pending if (n, name) == (0, "generate"))


def test_only_equal_requests_are_drawn_at_once_oldest_first_and_no_more_than_allowed(bench):
    odd = [{"gang": 2}, {"model": "other"}, {"steps_max": 9}, {"size": "256x256"}, {"guidance": 3.0}]
    tasks = begun(bench, {"gang": 1, "seed": 5}, *odd, {"gang": 1}, {"gang": 1}, {"gang": 1})
    drawn = order(bench)
    assert [each.task for each in drawn.pictures] == [tasks[i].id for i in (0, 6, 7)]
    assert [each.seed for each in drawn.pictures] == [5, 8, 9]
    assert all(len(run.tasks) == 1 for run in bench.controller.runs.values() if run.first is not tasks[0])


def test_every_image_of_a_launch_is_kept_and_bears_its_share_of_the_energy(bench, tmp_path):
    tasks = begun(bench, {}, {})
    bench.now_s = 2.0
    bench.load(0)
    bench.now_s = 6.0
    bench.draw(0)
    assert [task.state for task in tasks] == ["done", "done"]
    assert [(tmp_path / "images" / f"{task.id}.png").read_bytes() for task in tasks] == [b"png", b"png 1"]
    assert [task.attempts[0].images for task in tasks] == [2, 2]
    assert sum(task.energy_j for task in tasks) == pytest.approx(2.0 * 100 + 4.0 * 300)
    assert bench.controller.predictor.runs_G[1] == 0, "the scheduler is told the times of single images"
    assert bench.store.read()[0][tasks[0].id].attempts[0].images == 2


@pytest.mark.parametrize("answer", [DataError("the prompt has 200 tokens"), OSError("out of memory")])
def test_images_of_a_launch_that_failed_are_each_drawn_alone(bench, answer):
    tasks = begun(bench, {}, {})
    bench.load(0)
    bench.workers.answer(0, "generate", answer)
    bench.controller.tick()
    assert [(task.state, task.attempts[0].fault) for task in tasks] == [("running", "batch")] * 2
    runs = list(bench.controller.runs.values())
    assert [run.tasks for run in runs] == [[tasks[0]], [tasks[1]]]
    bench.load(0)
    bench.workers.answer(0, "generate", DataError("the prompt has 200 tokens"))
    bench.load(1)
    bench.draw(1)
    assert [task.state for task in tasks] == ["failed", "done"], "the one that was wrong fails"


def test_one_image_of_a_launch_is_canceled_or_late_and_the_others_are_drawn(bench, tmp_path):
    tasks = begun(bench, {}, {}, {"deadline_s": 5.0})
    bench.load(0)
    bench.controller.cancel(tasks[0].id)
    bench.pass_s(6.0)
    assert [task.state for task in tasks] == ["failed", "running", "failed"]
    assert bench.workers.calls("leave") == []
    bench.draw(0)
    assert [task.state for task in tasks] == ["failed", "done", "failed"]
    assert (tmp_path / "images" / f"{tasks[1].id}.png").read_bytes() == b"png 1"


def test_a_launch_of_which_nothing_is_wanted_any_longer_is_ended(bench):
    tasks = begun(bench, {}, {})
    bench.load(0)
    for task in tasks:
        bench.controller.cancel(task.id)
    assert bench.workers.calls("leave") == [(0, "leave")]
    assert [task.reason for task in tasks] == ["it was canceled"] * 2
    bench.workers.answer(0, "generate", RuntimeError("stopped"))
    assert 0 in bench.idle()


def test_a_lost_worker_or_a_stopped_service_makes_all_images_of_a_launch_wait_again(bench, tmp_path):
    tasks = begun(bench, {}, {})
    bench.load(0)
    bench.workers.die(0)
    assert [(task.state, task.attempts[0].fault) for task in tasks] == [("queued", "worker")] * 2
    bench.controller.tick()
    bench.controller.stop()
    again = Bench(tmp_path, batch=3)
    assert [task.id for task in again.controller.queue][-2:] == [task.id for task in tasks]
