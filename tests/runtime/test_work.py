"""How work was shared: CPU time over wall-clock time, what is shared counted once, in words and figures."""

import time

import pytest

from noonward.runtime.executor import Serial, map_runs
from noonward.runtime.processes import Processes
from noonward.runtime.shared import forget, shared
from noonward.runtime.work import Cost, Work, measured
from runtime.specs import Square


def test_speed_is_cpu_time_per_wall_clock_time():
    work = Work(wall_s=10.0, offered=8)
    for worker in (1, 2, 3):
        work.add(Cost(12.0, {}, worker, node=""))
    assert (work.runs, work.cpu_s, work.cores, work.nodes, work.speedup) == (3, 36.0, 3, 1, 3.6)
    assert work.told() == "3 runs, 36 CPU-s in 10 s on 3 cores: 3.6 times as fast as one core"


def test_what_several_workers_built_for_themselves_counts_once():
    work = Work(wall_s=10.0, offered=2)
    work.add(Cost(1.0, {"north": 8.0, "south": 2.0}, 1, node="a"))
    work.add(Cost(1.0, {"north": 9.0}, 2, node="b"))
    assert work.cpu_s == 2.0 + 9.0 + 2.0
    assert work.nodes == 2


def test_a_worker_in_place_of_a_dead_one_is_no_further_core():
    work = Work(wall_s=1.0, offered=2)
    for worker in range(5):
        work.add(Cost(0.1, {}, worker, node=""))
    assert work.cores == 2


def test_building_what_is_shared_is_told_apart_from_the_run(monkeypatch):
    spent = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: spent[0])

    def use(seconds):
        spent[0] += seconds

    def run():
        shared("outer", lambda: (use(2.0), shared("inner", lambda: use(4.0))))
        use(1.0)
        return 5

    forget()
    found, cost = measured(run)
    forget()
    assert (found, cost.cpu_s, sorted(cost.built_s.values())) == (5, 1.0, [2.0, 4.0])
    assert measured(int)[1].built_s == {}


@pytest.mark.parametrize("make", [Serial, lambda: Processes(2, patience_s=0.0, start_s=0.0)])
def test_every_spec_is_counted_wherever_it_runs(make):
    executor = make()
    try:
        map_runs([Square(n, first="wait_a_little") for n in range(6)], executor)
        map_runs([Square(n) for n in range(2)], executor)
    finally:
        executor.close()
    assert executor.work.runs == 8
    assert executor.work.cores == (1 if isinstance(executor, Serial) else 2)
    assert executor.work.cpu_s > 0.0 < executor.work.wall_s
