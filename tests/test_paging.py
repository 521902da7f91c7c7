"""Arrays in files hold what arrays in memory would, leave memory, and give every run the same bytes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from engine.test_checkpoint import WORLDS, files_of
from noonward import paging
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.checkpoint import Checkpoint
from noonward.engine.run import run
from noonward.notices import listening
from noonward.paging import column, in_file, leave_memory, parts, summed, zero_rows
from noonward.schedule.policies import make_scheduler
from noonward.sorting import time_order

pytestmark = pytest.mark.skipif(not paging.MAPPED, reason="this system keeps all arrays in memory")


@pytest.fixture
def small(monkeypatch):
    """Arrays of more than 20 rows lie in files, and are worked on 7 rows at a time."""
    monkeypatch.setattr(paging, "MOST_ROWS", 20)
    monkeypatch.setattr(paging, "PART_ROWS", 7)


def lies_in_file(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview)


def resident_kib():
    """Memory of files that this process holds, KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


def test_only_arrays_of_many_rows_lie_in_files(small):
    few, many = zero_rows(20, "f8"), zero_rows(21, "f8", 3)
    assert (few.shape, many.shape) == ((20,), (21, 3))
    assert not lies_in_file(few)
    assert lies_in_file(many)
    assert not many.any()


def test_what_leaves_memory_comes_back():
    array = zero_rows(2_000_000, "i8")
    array[:] = np.arange(2_000_000)
    held = resident_kib()
    leave_memory()
    assert held - resident_kib() > 14_000
    assert (array == np.arange(2_000_000)).all()


def test_files_have_no_name_and_go_with_their_arrays(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    array = zero_rows(1000, "f8")
    assert list(tmp_path.iterdir()) == []
    kept = len(paging._maps)
    del array
    assert len(paging._maps) == kept - 1


def test_without_room_for_a_file_the_array_is_in_memory_and_that_is_told_once(small, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    notices = []
    with listening(lambda kind, about: notices.append((kind, about))):
        array, _ = zero_rows(30, "f8"), zero_rows(60, "f8")
    assert not lies_in_file(array)
    assert not array.any()
    ((kind, about),) = notices
    assert kind == "memory"
    assert f"no room in {tmp_path} (No space left on device)" in about


def test_a_copy_in_a_file_is_the_array(small):
    many, few, repeated = np.arange(50.0), np.arange(20), np.broadcast_to(np.float64(3.0), 50)
    assert lies_in_file(in_file(many))
    assert (in_file(many) == many).all()
    assert in_file(few) is few
    assert in_file(repeated) is repeated


@pytest.mark.parametrize("count", [0, 1, 20, 21, 28, 50])
def test_parts_follow_each_other_and_hold_all_rows(small, count):
    rows = [row for part in parts(count) for row in range(part.start, part.stop)]
    assert rows == list(range(count))
    assert len(list(parts(count))) == (1 if count <= 20 else -(-count // 7))


@pytest.mark.parametrize("count", [12, 50])
def test_a_column_holds_the_rows_that_each_part_has(small, count):
    values = np.arange(float(count))
    even = column(count, lambda part: values[part][values[part] % 2 == 0])
    assert even.tolist() == values[::2].tolist()
    assert summed(even) == values[::2].sum()
    assert column(count, lambda part: values[:0]).tolist() == []


@pytest.mark.parametrize("shuffled", [0, 2, 30, 200])
def test_times_are_ordered_part_by_part_as_at_once(small, shuffled):
    rng = np.random.default_rng(shuffled)
    times = np.floor(np.arange(200) / 3 + rng.uniform(0, 1 + shuffled, 200))
    assert time_order(times).tolist() == np.argsort(times, kind="stable").tolist()


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_over_arrays_in_files_gives_the_same_record(world, monkeypatch, tmp_path):
    policy, scenario, settings = WORLDS[world]

    def played(**options):
        outcome = run(build_environment(load_scenario(scenario, settings)), make_scheduler(policy), seed=3, **options)
        return outcome, outcome.tobytes(), files_of(outcome)

    _, outcome, files = played()
    monkeypatch.setattr(paging, "MOST_ROWS", 20)
    monkeypatch.setattr(paging, "PART_ROWS", 7)
    for options in ({}, {"compiled": False}, {"checkpoint": Checkpoint(tmp_path / "kept.npz", every_s=0.0)}):
        paged, same_outcome, same_files = played(**options)
        assert lies_in_file(paged.job_J)
        assert lies_in_file(paged.environment.jobs.arrival_s_J)
        assert same_outcome == outcome
        assert same_files == files
