"""Progress of long commands: the first line comes at once, and the time left is that of all runs."""

from pathlib import Path

import pytest

from command_line import CommandLine
from noonward.cli import progress
from noonward.cli.progress import TimeLeft, progress_bar
from noonward.notices import tell


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_first_line_says_at_once_what_runs_and_where_results_go(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(24, "mine", results=Path("runs/mine")):
        assert capsys.readouterr().err == "mine: 24 runs; results go to runs/mine\n"


def test_a_long_command_says_that_it_begins_before_it_reads_its_scenario(noonward: CommandLine) -> None:
    answer = noonward("compare", "no-such.yaml", "--policies", "local-fcfs")
    assert answer.began == "noonward compare no-such.yaml --policies local-fcfs: starting\n"
    assert answer.err.startswith("error: ")


def test_steps_that_are_not_counted_yet_are_told_when_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(None, "mine", unit="passes"):
        assert capsys.readouterr().err == "mine: counting passes\n"
        tell("runs", "30")
        assert capsys.readouterr().err == "mine: 30 passes\n"
        tell("runs", "5")  # more of them later is no news
        assert capsys.readouterr().err == ""


def test_the_time_left_is_that_of_all_runs(clock: list[float]) -> None:
    """A run takes 10 s: 2 of 10 are done and half of a third, so 75 s are left."""
    left = TimeLeft(10)
    for clock[0] in (10.0, 20.0):
        left.step(f"local-fcfs, environment {clock[0]:g}")
    clock[0] = 25.0
    left.within("booked-persistence, environment 3: 2,000 of 4,000 jobs")
    assert left.seconds() == pytest.approx(75.0)
    assert left.told() == "about 75 s left"


def test_runs_that_were_recorded_already_say_nothing_of_the_pace(clock: list[float]) -> None:
    """8 records are read in 0.1 s; then each run takes 60 s."""
    left = TimeLeft(20)
    clock[0] = 0.1
    for n in range(8):
        left.step(str(n))
    for n in range(4):
        clock[0] += 60.0
        left.step(str(n))
    assert left.seconds() == pytest.approx(8 * 60.0)
    assert left.told() == "about 8 min left"


def test_a_pause_says_little_of_the_pace(clock: list[float]) -> None:
    """19 runs in 15 s, then two in 15 s while workers start: the pace is that of the last four or more."""
    left = TimeLeft(60)
    for n in range(19):
        clock[0] = (n + 1) * 15 / 19
        left.step(str(n))
    for clock[0] in (22.0, 30.0):
        left.step("slow")
    assert left.seconds() == pytest.approx(39 * (30 - 17 * 15 / 19) / 4)


def test_stretches_of_a_bound_count(clock: list[float]) -> None:
    left = TimeLeft(2)
    clock[0] = 100.0
    left.within("bound, environment 0: stretch 1 of 4")
    assert left.told() == "about 12 min left"  # 1.75 of 2 steps at 400 s


def test_a_part_of_another_name_than_its_step_leaves_no_time_below_zero(clock: list[float]) -> None:
    left = TimeLeft(2)
    for clock[0] in (100.0, 200.0):
        left.within("run: 1,000 of 1,000 jobs")
        left.step("us_per_job")
    assert left.told() == "about 0 s left"


def test_before_anything_is_known_no_time_is_told(clock: list[float]) -> None:
    left = TimeLeft(2)
    clock[0] = 100.0
    left.within("local-fcfs, environment 0")
    assert left.told() == ""


def test_within_the_first_hundredth_no_time_is_told(clock: list[float]) -> None:
    """Until then most of the time went into compiling functions."""
    left = TimeLeft(10)
    clock[0] = 100.0
    left.within("run: 494 of 97,186 jobs")
    assert left.told() == ""
    clock[0] = 110.0
    left.within("run: 48,593 of 97,186 jobs")
    assert left.told() != ""


def test_a_step_without_a_name_has_no_colon_of_its_own(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(10, "mine"):
        clock[0] = 60.0
        tell("within", "494 of 97,186 jobs")
    assert capsys.readouterr().err.endswith("mine: 0 of 10 done; 494 of 97,186 jobs\n")


def test_a_line_now_and_then_says_how_far_all_of_it_is(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(4, "mine") as step:
        capsys.readouterr()
        tell("progress", "local-fcfs, environment 0")
        clock[0] = 20.0
        tell("within", "100 of 200 jobs")
        assert capsys.readouterr().err == ""
        clock[0] = 40.0
        step("local-fcfs, environment 0")
        assert capsys.readouterr().err == "mine: 1 of 4 done, about 2 min left; local-fcfs, environment 0\n"
