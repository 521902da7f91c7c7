"""Field tests of flexible data centers: Emerald's two events, other tests made by hand, files that are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import CommandLine
from noonward.errors import DataError
from noonward.studies.grid_events.match import match, prepare
from noonward.studies.grid_events.read import caps_of, minutes_of, read_caps, read_jobs, read_power
from noonward.studies.grid_events.reproduce import reproduce_grid_events

EMERALD = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "flexible" / "emerald"
needs_emerald = pytest.mark.skipif(not EMERALD.is_dir(), reason=f"Emerald AI's files are not at {EMERALD}")
CAPS = """Workload,GPU power cap,throughput,total GPU power,power per GPU
train,200,60,1600,200
train,400,100,3200,400
serve,250,9,4000,250
serve,500,10,8000,500
"""
"""Two workloads, measured on 8 and 16 GPUs."""


@pytest.fixture
def noonward(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def write(name, text):
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def rows(step_min, levels, stamp):
    """Lines of power, one level each for a number of minutes."""
    lines, minute = [], 0
    for minutes, *watts in levels:
        for _ in range(0, minutes, step_min):
            lines.append(f"{stamp(minute)},{','.join(map(str, watts))}")
            minute += step_min
    return "\n".join(lines) + "\n"


def clock(minute):
    return f"{13 + minute // 60}:{minute % 60:02d}"


@needs_emerald
def test_emeralds_events_are_explained_within_three_percent():
    found = {m.name: m.value for m in reproduce_grid_events(data=EMERALD).metrics()}
    assert found["srp/largest_minute_error"] < 0.03
    assert found["aps/largest_minute_error"] < 0.03
    assert found["srp/largest_minute_error_unscaled"] < 0.04
    assert found["srp/event_cut"] == pytest.approx(0.31, abs=0.01)
    assert found["aps/event_cut"] == pytest.approx(0.35, abs=0.01)
    assert min(found["srp/steady_share"], found["aps/steady_share"]) >= 0.7


@needs_emerald
def test_our_caps_lose_less_than_emeralds_plan_at_the_same_cut():
    found = {m.name: (m.value, m.reference) for m in reproduce_grid_events(data=EMERALD).metrics()}
    ours, published = found["srp/weighted_performance"]
    assert published == 0.909560245
    assert ours > published
    assert found["srp/cut_met"][0] == 1
    assert found["srp/throughput_lost"][0] < found["srp/throughput_lost_measured"][0]


@needs_emerald
def test_our_caps_keep_what_the_classes_of_the_jobs_tolerate():
    srp = reproduce_grid_events(data=EMERALD).held[0]
    assert (srp.ours_J >= [job.least for job in srp.test.jobs]).all()
    assert [job.gpus for job in srp.test.jobs] == [32, 32, 48, 48, 48, 48]


def test_caps_cost_less_than_half_of_pausing():
    lost = reproduce_grid_events().lost
    assert {way: round(by_cut[0.25], 3) for way, by_cut in lost.items()} == {
        "caps": 0.102,
        "pausing": 0.24,
        "pausing-idle-60w": 0.286,
    }


def test_idle_power_is_an_option():
    lost = reproduce_grid_events(idle_w=90).lost
    assert lost["pausing-idle-90w"][0.25] > lost["pausing"][0.25]


@pytest.fixture
def by_job(noonward):
    """A test with power per job in kW, in steps of two minutes: the second of three nodes is stopped for an hour."""
    event = rows(2, [(60, 9.6, 4.0), (60, 6.4, 4.0), (60, 9.6, 4.0)], lambda m: f"2026-03-29 {clock(m)}+02:00")
    return write("caps.csv", CAPS), write("power.csv", "Field test\ntimestamp,train-7,serve-x_kw\n" + event)


def test_gpus_are_read_from_the_power_of_each_job(by_job):
    caps, power = by_job
    text = power.read_text(encoding="utf-8").replace("train-7", "train-7_kW")
    test = prepare("own", read_power(write("power.csv", text)), None, read_caps(caps))
    assert [job.gpus for job in test.jobs] == [24, 8]
    assert test.event_cut == pytest.approx(3.2 / 13.6)
    found = match(test)
    assert found.largest == pytest.approx(0, abs=1e-12)
    assert found.rows < len(test.steady_T)


@pytest.fixture
def totals(noonward):
    """Totals every five minutes: ``train`` is capped to 200 W, so that it gives 60% for an hour of three."""
    event = rows(5, [(60, 13600), (60, 8800), (60, 13600)], clock)
    jobs = "Job,Performance,Flexibility,GPUs\ntrain-a,0.8666666667,Flex 3,24\nserve-b,1,Flex 0,8\n"
    return write("caps.csv", CAPS), write("power.csv", "time,total (W)\n" + event), write("jobs.csv", jobs)


def test_allocations_follow_from_performances(totals):
    caps, power, jobs = totals
    test = prepare("own", read_power(power), read_jobs(jobs), read_caps(caps))
    assert test.event_T.sum() == 12
    assert match(test).largest < 0.01
    for wrong in (0.99, 0.7):
        text = jobs.read_text(encoding="utf-8").replace("0.8666666667", str(wrong))
        other = prepare("own", read_power(power), read_jobs(write("other.csv", text)), read_caps(caps))
        assert match(other).largest > 0.05


def test_scaling_takes_the_mean_before_the_event(totals):
    caps, power, jobs = totals
    hot = power.read_text(encoding="utf-8").replace("13600", "14280").replace("8800", "9240")
    test = prepare("own", read_power(write("hot.csv", hot)), read_jobs(jobs), read_caps(caps))
    assert match(test).largest < 0.01
    assert match(test, scaled=False).largest > 0.04


def test_the_event_may_be_stated(totals):
    caps, power, jobs = totals
    text = jobs.read_text(encoding="utf-8").splitlines()
    stated = "\n".join([text[0] + ",start,end", *(f"{line},13:30,13:55" for line in text[1:])]) + "\n"
    test = prepare("own", read_power(power), read_jobs(write("stated.csv", stated)), read_caps(caps))
    assert test.power.minutes_T[test.event_T].tolist() == [30, 35, 40, 45, 50]
    outside = stated.replace("13:30,13:55", "12:00,12:30")
    with pytest.raises(DataError, match="check the days and time zones"):
        prepare("own", read_power(power), read_jobs(write("stated.csv", outside)), read_caps(caps))


def test_times_of_other_zones_mean_the_same_minute(noonward):
    power = read_power(
        write("p.csv", "timestamp,total\n" + rows(5, [(30, 9)], lambda m: f"2026-03-01T{clock(m)}+02:00"))
    )
    assert minutes_of("2026-03-01T11:10Z", power) == 10
    assert minutes_of("2026-03-01T13:10", power) == 10
    assert minutes_of("13:10", power) == 10
    local = write("l.csv", "timestamp,total\n" + rows(5, [(30, 9)], lambda m: f"2026-07-01 {clock(m)}"))
    assert read_power(local, "Europe/London").first.hour == 12


def test_a_published_weighted_performance_is_read(noonward):
    jobs = read_jobs(
        write("j.csv", "A title,,\nModel,Performance,Flexibility\na,.5,Flex 3\nWeighted Performance,.5,\n")
    )
    assert (len(jobs.jobs), jobs.weighted, jobs.jobs[0].least) == (1, 0.5, 0.5)


def test_the_longest_workload_that_begins_a_job_is_its_own(noonward):
    caps = read_caps(write("c.csv", CAPS + "train_big,400,1,800,400\n"))
    assert caps_of("train_big-1", caps).workload == "train_big"
    assert caps_of("train-big", caps).workload == "train"
    with pytest.raises(DataError, match="no workload"):
        caps_of("trainer", caps)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("caps", ("power per GPU", "watts"), "no column 'power per GPU'"),
        ("caps", ("Workload", "w"), "no column 'Workload'"),
        ("caps", ("train,200,60", "train,200,160"), "must not fall"),
        ("power", ("time,total (W)", "when,total (W)"), "no column 'timestamp' or 'time'"),
        ("power", ("13:05", "12:05"), "times must ascend"),
        ("power", ("13600", "x"), "is not a number"),
        ("power", ("13600", "-5"), "is below 0"),
        ("power", ("13600", "20000"), "would draw"),
        ("power", ("13:05,13600", "13:05,"), "the value is empty; give W in each row"),
        ("power", ("8800", "13500"), "no event is found"),
        ("jobs", ("Job,", "Name,"), "no column 'Model' or 'job'"),
        ("jobs", ("train-a", "tune-a"), "has no caps"),
        ("jobs", ("serve-b", "train-a"), "stands twice"),
        ("jobs", ("Flex 3", "Flexible"), "no class of flexibility"),
        ("jobs", ("0.8666666667", "87"), "no share"),
        ("jobs", (",24", ",many"), "no number of GPUs"),
        ("jobs", ("0.8666666667", "0.1"), "no allocation"),
    ],
)
def test_files_that_cannot_be_read_are_refused(totals, file, change, said):
    files = dict(zip(("caps", "power", "jobs"), totals, strict=True))
    text = files[file].read_text(encoding="utf-8")
    assert change[0] in text
    files[file].write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        reproduce_grid_events(power=files["power"], events=files["jobs"], caps=files["caps"])


def test_power_that_is_zero_throughout_is_refused(totals):
    caps, power, jobs = totals
    text = power.read_text(encoding="utf-8").replace("13600", "0").replace("8800", "0")
    with pytest.raises(DataError, match="power is 0 in almost all rows"):
        prepare("own", read_power(write("zero.csv", text)), read_jobs(jobs), read_caps(caps))


def test_totals_without_performances_cannot_be_explained(totals):
    caps, power, _ = totals
    with pytest.raises(DataError, match="give power per job, or the performance"):
        match(
            prepare(
                "own",
                read_power(power),
                read_jobs(write("j.csv", "job,GPUs\ntrain-a,24\nserve-b,8\n")),
                read_caps(caps),
            )
        )


def test_the_command_holds_another_test_against_physics(noonward, totals):
    caps, power, jobs = totals
    told = ("reproduce", "grid-events", "--power", power, "--events", jobs, "--caps", caps, "--name", "own")
    figures = {f["name"]: f["value"] for f in json.loads(noonward(*told, "--json").out)["figures"]}
    assert figures["own/largest_minute_error"] < 0.01
    assert "own" in noonward(*told).out
    assert Path("runs/reproduce-grid-events/report.html").is_file()
    assert "give both" in noonward("reproduce", "grid-events", "--events", jobs).err
    assert "no measured power was given" in noonward("reproduce", "grid-events").out


def test_rows_that_lie_apart_are_refused(totals):
    _, power, _ = totals
    text = power.read_text(encoding="utf-8") + "23:00,13600\n"
    with pytest.raises(DataError, match="minutes pass since the row before"):
        read_power(write("gap.csv", text))


def test_the_sum_of_the_jobs_must_be_the_total(noonward):
    lines = rows(1, [(10, 100, 200, 400)], clock)
    with pytest.raises(DataError, match="the total is 400 W"):
        read_power(write("p.csv", "time,a,b,total\n" + lines))
    whole = read_power(write("p.csv", "time,a,b\n" + lines.replace(",400", "")))
    assert np.allclose(whole.total_w_T, 300)
