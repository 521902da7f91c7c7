import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.data.jobs.calibration import load_workload_calibration
from noonward.data.jobs.generate import (
    build_jobs,
    generate_fine_tuning_jobs,
    generate_poisson_jobs,
    paper_stream_jobs,
    sample_trace_jobs,
)
from noonward.data.jobs.kernels import draw_times, scale_to_demand
from noonward.data.jobs.load import JobTrace, load_job_trace, write_job_table
from noonward.data.jobs.load_shapes import load_shape_constants
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError, ScenarioError
from noonward.model.cluster.fleet import Fleet, Ingress, Site
from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve
from noonward.model.cluster.scenario import FineTuningJobs, JobKind, JobTable, PaperStreamJobs, PoissonJobs, Range
from noonward.seeding import stream

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
PAI = SHARED / "data/jobs_pai.parquet"
has_pai = pytest.mark.skipif(not PAI.exists(), reason="the PAI trace is not on this machine")
T4 = {"t4": GpuType(idle_w=8, classes={"tune": ClassProfile(power=PowerCurve(constant_w=80))})}
SHARES = {"AU-SA": 0.01, "AU-WA": 0.02, "CA-ON": 0.01, "PL": 0.025, "SG": 0.03}
FLEET = Fleet(
    gpu_types=T4,
    sites=tuple(
        Site(name=zone, zone=zone, gpu_type="t4", gpus=gpus)
        for zone, gpus in zip(SHARES, (100, 110, 80, 130, 120), strict=True)
    ),
)
SINGAPORE = Fleet(gpu_types=T4, sites=(Site(name="SG", zone="SG", gpu_type="t4", gpus=500),))
KINDS = {
    "image": JobKind(share=0.5, data=Range(low_gb=10, high_gb=20), model=Range(low_gb=4, high_gb=5)),
    "text": JobKind(share=0.3, data=Range(low_gb=1, high_gb=2), model=Range(low_gb=0.1, high_gb=0.2)),
    "text-to-image": JobKind(share=0.2, data=Range(low_gb=5, high_gb=6), model=Range(low_gb=1, high_gb=2)),
}
SPEC = FineTuningJobs(origin_shares=SHARES, kinds=KINDS)
START = datetime(2022, 7, 4, tzinfo=UTC)
WINDOW_GPU_S = 540 * 48 * 3600


def changed(spec, **fields):
    return type(spec).model_validate({**dict(spec), **fields})


def generate(spec=SPEC, fleet=FLEET, start=START, window_h=48, slot_s=60.0, seed=1):
    return generate_fine_tuning_jobs(spec, fleet, start, window_h, slot_s, stream(seed, "workload"))


def columns(jobs, *names):
    """Columns as lists; what is not known, as a start that no log recorded, is -1, which equals itself."""
    return [np.nan_to_num(getattr(jobs, name), nan=-1.0).tolist() for name in names or vars(jobs)]


@pytest.fixture(scope="module")
def draws():
    return [generate(seed=seed) for seed in range(30)]


def pooled(draws, name):
    return np.concatenate([getattr(jobs, name) for jobs in draws])


# ---------------------------------------------------------------- fine-tuning jobs from the packaged statistics


def test_number_of_jobs_is_poisson_about_the_count(draws):
    counts = np.array([len(jobs) for jobs in draws])
    assert counts.mean() == pytest.approx(1500, abs=3.5 * math.sqrt(1500 / len(draws)))
    assert 0.35 < counts.var() / 1500 < 2.2


def test_demand_is_met_within_half_a_percent_in_every_environment(draws):
    for jobs in draws:
        assert jobs.gpus_max_J @ jobs.work_J == pytest.approx(0.85 * WINDOW_GPU_S, rel=1e-4)


def test_gangs_are_fixed_and_have_the_capped_mean_of_the_trace(draws):
    table = load_workload_calibration()
    gpus = pooled(draws, "gpus_max_J")
    np.testing.assert_array_equal(gpus, pooled(draws, "gpus_min_J"))
    assert gpus.max() == 16
    assert gpus.mean() == pytest.approx(np.minimum(table.gpus_G, 16) @ table.gpus_share_G, rel=0.03)
    assert (gpus == 1).mean() == pytest.approx(table.gpus_share_G[0], abs=0.01)


def test_durations_have_the_traces_shape_after_scaling(draws):
    table = load_workload_calibration()
    single = [jobs.work_J[jobs.gpus_max_J == 1] / np.median(jobs.work_J[jobs.gpus_max_J == 1]) for jobs in draws]
    ratios = np.quantile(np.concatenate(single), [0.1, 0.25, 0.75, 0.9, 0.95])
    wanted = table.duration_s_KQ[0, [10, 25, 75, 90, 95]] / table.duration_s_KQ[0, 50]
    np.testing.assert_allclose(ratios, wanted, rtol=0.06)


def test_duration_depends_on_the_gang_as_in_the_trace(draws):
    table = load_workload_calibration()
    of_8 = np.median(np.concatenate([jobs.work_J[jobs.gpus_max_J == 8] / np.median(jobs.work_J) for jobs in draws]))
    of_1 = np.median(np.concatenate([jobs.work_J[jobs.gpus_max_J == 1] / np.median(jobs.work_J) for jobs in draws]))
    assert of_8 / of_1 == pytest.approx(table.duration_s_KQ[5, 50] / table.duration_s_KQ[0, 50], rel=0.15)


def test_slack_is_on_average_the_ratio_and_at_most_twice_it(draws):
    ratio = pooled(draws, "slack_s_J") / pooled(draws, "work_J")
    assert ratio.mean() == pytest.approx(0.4, abs=0.01)
    assert ratio.max() <= 0.8
    assert np.quantile(ratio, 0.25) == pytest.approx(0.2, abs=0.01)
    slack = pooled(draws, "slack_s_J")
    np.testing.assert_array_equal(slack, np.floor(slack))


def test_times_are_whole_slots_within_the_window(draws):
    for name in ("arrival_s_J", "work_J"):
        np.testing.assert_array_equal(pooled(draws, name) % 60, 0)
    assert pooled(draws, "work_J").min() >= 60
    assert pooled(draws, "arrival_s_J").max() < 48 * 3600


def test_origins_follow_the_shares(draws):
    observed = np.bincount(pooled(draws, "origin_J"), minlength=5) / sum(len(jobs) for jobs in draws)
    np.testing.assert_allclose(observed, np.array(list(SHARES.values())) / sum(SHARES.values()), atol=0.01)


def test_kinds_set_the_sizes_and_the_result_is_the_model(draws):
    data, model = pooled(draws, "data_gb_J"), pooled(draws, "model_gb_J")
    np.testing.assert_array_equal(model, pooled(draws, "result_gb_J"))
    for kind in KINDS.values():
        mine = (data >= kind.data.low_gb) & (data <= kind.data.high_gb)
        assert mine.mean() == pytest.approx(kind.share, abs=0.015)
        assert model[mine].min() >= kind.model.low_gb
        assert model[mine].max() <= kind.model.high_gb
        assert data[mine].mean() == pytest.approx((kind.data.low_gb + kind.data.high_gb) / 2, rel=0.02)


@pytest.mark.parametrize(("zone", "offset_h"), [("SG", 8), ("CA-ON", -4)])
def test_arrivals_follow_the_hours_and_weekdays_of_the_sites_local_time(zone, offset_h):
    table = load_workload_calibration()
    fleet = Fleet(gpu_types=T4, sites=(Site(name="one", zone=zone, gpu_type="t4", gpus=500),))
    spec = changed(SPEC, count=200_000, origin_shares={"one": 1}, demand=1000)
    jobs = generate(spec, fleet, window_h=24 * 7 * 10)
    local_h = (jobs.arrival_s_J / 3600 + offset_h) // 1 % 168
    by_hour = np.bincount((local_h % 24).astype(int), minlength=24)
    by_day = np.bincount((local_h // 24).astype(int), minlength=7)
    assert np.corrcoef(by_hour, table.hour_weight_H)[0, 1] > 0.9
    assert np.corrcoef(np.roll(by_hour, 6), table.hour_weight_H)[0, 1] < 0.7
    np.testing.assert_allclose(by_hour / by_hour.mean(), table.hour_weight_H, atol=0.2)
    np.testing.assert_allclose(by_day / by_day.mean(), table.weekday_weight_D, atol=0.15)


def test_arrivals_are_as_bursty_as_the_trace():
    table = load_workload_calibration()
    weeks = 6
    spec = changed(SPEC, count=round(table.jobs_per_h * 168 * weeks), origin_shares={"SG": 1}, demand=20)
    jobs = generate(spec, SINGAPORE, window_h=168 * weeks, slot_s=1.0)
    gaps = np.diff(jobs.arrival_s_J)
    assert gaps.std() / gaps.mean() == pytest.approx(table.interarrival_cv, rel=0.2)
    count_H = np.bincount((jobs.arrival_s_J // 3600).astype(int), minlength=168 * weeks)
    weight_H = table.arrival_weight((np.arange(168 * weeks) + 8) % 168 * 3600.0)
    mean_H = weight_H * count_H.sum() / weight_H.sum()
    excess = ((count_H - mean_H) ** 2 - mean_H).sum() / (mean_H**2).sum()
    assert excess == pytest.approx(table.block_cv2_L[1], rel=0.35)


def test_a_sites_own_time_zone_goes_before_its_zones():
    def hours(timezone):
        site = Site(name="SG", zone="SG", gpu_type="t4", gpus=500, timezone=timezone)
        fleet = Fleet(gpu_types=T4, sites=(site,))
        return generate(changed(SPEC, origin_shares={"SG": 1}), fleet).arrival_s_J.tolist()

    assert hours(None) == hours("Asia/Singapore")
    assert hours(None) != hours("Europe/Warsaw")


def test_same_seed_same_jobs_and_another_seed_other_jobs():
    assert columns(generate(seed=5)) == columns(generate(seed=5))
    assert columns(generate(seed=5)) != columns(generate(seed=6))


def test_turning_a_knob_changes_its_own_columns_only():
    def differing(**fields):
        base, other = generate(), generate(changed(SPEC, **fields))
        return {name for name in vars(base) if columns(base, name) != columns(other, name)}

    sizes = {"data_gb_J", "model_gb_J", "result_gb_J"}
    assert differing(slack_ratio=0.2) == {"slack_s_J"}
    assert differing(demand=0.5) == {"work_J", "slack_s_J"}
    assert differing(gpus_cap=4) == {"gpus_min_J", "gpus_max_J", "work_J", "slack_s_J"}
    assert differing(kinds={"text": changed(KINDS["text"], share=1)}) == sizes
    assert {"origin_J", "arrival_s_J"} <= differing(origin_shares={"PL": 1})
    assert len(generate(changed(SPEC, count=300))) < 400


def test_a_fleet_of_one_gpu_and_a_window_of_one_hour_work():
    fleet = Fleet(gpu_types=T4, sites=(Site(name="PL", zone="PL", gpu_type="t4", gpus=1),))
    spec = changed(SPEC, count=1, origin_shares={"PL": 1}, gpus_cap=1, slack_ratio=0)
    for seed in range(5):
        jobs = generate(spec, fleet, window_h=1, seed=seed)
        assert jobs.gpus_max_J @ jobs.work_J == pytest.approx(0.85 * 3600, abs=60 * len(jobs))
        assert not jobs.slack_s_J.any()


def refused(error, call, *parts):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


def test_wrong_arguments_are_refused():
    spec = changed(SPEC, origin_shares={"PLL": 1})
    refused(ScenarioError, lambda: generate(spec), "'PLL'", "did you mean 'PL'?")
    refused(ScenarioError, lambda: generate(changed(SPEC, demand=1e-4)), "GPU-hours", "jobs.demand", "slot_s")
    refused(ScenarioError, lambda: generate(start=datetime(2022, 7, 4)), "not UTC")
    refused(ScenarioError, lambda: generate(window_h=0), "0 h", "at least 1 h")
    refused(ScenarioError, lambda: generate(slot_s=0), "0 s")


@pytest.mark.parametrize(
    ("site", "part"),
    [
        ({"zone": "MOON"}, "'MOON'"),
        ({"zone": "PL", "timezone": "Europe/Warszawa"}, "'Europe/Warszawa'"),
        ({"zone": "PL", "timezone": "../etc"}, "'../etc'"),
    ],
)
def test_an_unknown_time_zone_is_refused(site, part):
    fleet = Fleet(gpu_types=T4, sites=(Site(name="one", gpu_type="t4", gpus=500, **site),))
    refused(ScenarioError, lambda: generate(changed(SPEC, origin_shares={"one": 1}), fleet), part, "IANA")


def test_an_ingress_without_home_is_refused_only_if_jobs_arrive_there():
    fleet = Fleet(
        gpu_types=T4,
        sites=SINGAPORE.sites,
        ingress=(Ingress(name="far"), Ingress(name="here", home="SG")),
    )
    refused(ScenarioError, lambda: generate(changed(SPEC, origin_shares={"far": 1}), fleet), "'far'", "home")
    assert set(generate(changed(SPEC, origin_shares={"here": 1}), fleet).origin_J) == {1}


# ---------------------------------------------------------------- kernels


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(50, 300),
    slot_s=st.sampled_from([1.0, 60.0, 300.0]),
    mean_slots=st.floats(40, 500),
)
def test_scaled_durations_meet_any_demand_by_one_factor(seed, count, slot_s, mean_slots):
    rng = np.random.default_rng(seed)
    raw, gpus = rng.lognormal(7, 1.5, count), rng.integers(1, 17, count)
    demand = float(gpus.sum()) * slot_s * mean_slots
    scaled = scale_to_demand(raw, gpus, demand, slot_s)
    assert gpus @ scaled == pytest.approx(demand, rel=5e-3)
    np.testing.assert_array_equal(scaled % slot_s, 0)
    assert scaled.min() >= slot_s
    above_one = scaled > slot_s
    lowest = ((scaled - slot_s) / raw)[above_one].max(initial=0)
    assert lowest <= (scaled / raw).min() * (1 + 1e-9)


def test_times_are_drawn_by_inverting_the_mass_of_the_rate():
    rng = np.random.default_rng(3)
    for cells in (1, 2, 7, 400):
        rate_C = rng.gamma(0.3, size=cells) * (rng.random(cells) < 0.7)
        rate_C[rng.integers(cells)] = 2.0
        mass_C = np.concatenate([[0.0], np.cumsum(rate_C)])
        drawn = np.random.default_rng(cells).random(500) * mass_C[-1]
        expected = np.interp(drawn, mass_C, np.arange(cells + 1) * 60.0)
        times = draw_times(rate_C, 500, np.random.default_rng(cells))
        assert times.tolist() == pytest.approx(expected.tolist(), rel=1e-13)


def test_times_fall_into_cells_by_their_rates():
    times = draw_times(np.array([1.0, 0.0, 3.0]), 40_000, np.random.default_rng(0))
    share = np.bincount((times // 60).astype(int), minlength=3) / len(times)
    np.testing.assert_allclose(share, [0.25, 0, 0.75], atol=0.01)
    assert times[times < 60].mean() == pytest.approx(30, abs=1)


# ---------------------------------------------------------------- jobs drawn from a trace


def hourly_trace(days, per_hour=1, offset_s=0.0):
    """One job (or several) at half past every hour; its GPU count is 1 + its local hour of day."""
    submit = np.repeat(np.arange(days * 24) * 3600.0 + 1800, per_hour)
    local_hour = (submit + offset_s) // 3600 % 24
    return JobTrace(
        name="hourly",
        submit_s_J=submit,
        duration_s_J=np.full(len(submit), 1000.0),
        gpus_J=(local_hour + 1).astype(np.int64),
        clock_offset_s=offset_s,
    )


def sample(trace, spec, fleet=FLEET, window_h=48, slot_s=60.0, seed=1, start=START):
    return sample_trace_jobs(spec, trace, fleet, start, window_h, slot_s, stream(seed, "workload"))


@pytest.mark.parametrize("window_h", [48, 24, 30, 5])
@pytest.mark.parametrize("offset_s", [0.0, 5 * 3600.0])
def test_a_traces_job_arrives_at_the_same_local_time_of_day(window_h, offset_s):
    spec = changed(SPEC, count=60, gpus_cap=24)
    jobs = sample(hourly_trace(6, per_hour=20, offset_s=offset_s), spec, window_h=window_h)
    assert jobs.arrival_s_J.max() < window_h * 3600
    utc_offset_h = np.array([9.5, 8, -4, 2, 8])[jobs.origin_J]
    local_hour = (jobs.arrival_s_J / 3600 + utc_offset_h) % 24
    np.testing.assert_allclose(local_hour, jobs.gpus_max_J - 0.5)


def test_jobs_are_drawn_without_replacement_and_keep_gang_and_relative_duration():
    trace = JobTrace(
        name="distinct",
        submit_s_J=np.arange(400) * 432.0,
        duration_s_J=10_000.0 + 50 * np.arange(400),
        gpus_J=np.where(np.arange(400) < 200, 3, 40).astype(np.int64),
        clock_offset_s=0.0,
    )
    jobs = sample(trace, changed(SPEC, count=300), slot_s=1.0)
    assert len(np.unique(jobs.work_J)) == len(jobs) > 200
    assert set(jobs.gpus_max_J) == {3, 16}
    assert jobs.work_J[jobs.gpus_max_J == 3].max() < jobs.work_J[jobs.gpus_max_J == 16].min()
    assert jobs.work_J.max() / jobs.work_J.min() == pytest.approx(29_950 / 10_000, rel=0.06)
    assert jobs.gpus_max_J @ jobs.work_J == pytest.approx(0.85 * WINDOW_GPU_S, rel=5e-3)


def test_a_trace_of_exactly_the_window_serves_and_a_shorter_or_thinner_one_does_not():
    spec = changed(SPEC, count=20)
    assert len(sample(hourly_trace(2), spec)) > 5
    refused(DataError, lambda: sample(hourly_trace(1), spec), "covers 24 h", "48 h")
    refused(DataError, lambda: sample(hourly_trace(4), changed(SPEC, count=200)), "at most 48 jobs", "jobs.count")
    refused(
        DataError,
        lambda: sample(hourly_trace(4), changed(SPEC, count=20), window_h=2),
        "fall into the window of 2 h",
        "jobs.count",
    )


def test_a_trace_file_is_read_by_its_columns_and_again_after_a_change(tmp_path):
    path = tmp_path / "trace.csv"
    spec = changed(SPEC, trace=path, columns={"gpus": "n"}, count=20)

    def write(gpus):
        submit = np.arange(0, 48 * 3600, 1800)
        pl.DataFrame({"submit_time_s": submit, "duration_s": submit + 1, "n": np.full(len(submit), gpus)}).write_csv(
            path
        )

    write(3)
    assert set(generate(spec).gpus_max_J) == {3}
    write(12)
    assert set(generate(spec).gpus_max_J) == {12}
    path.unlink()
    refused(DataError, lambda: generate(spec), "trace.csv", "no file")


@has_pai
def test_jobs_drawn_from_the_pai_trace_look_like_those_from_its_statistics(draws):
    spec = changed(SPEC, trace=PAI)
    real = [generate(spec, seed=seed) for seed in range(30)]
    for jobs in real:
        assert jobs.gpus_max_J @ jobs.work_J == pytest.approx(0.85 * WINDOW_GPU_S, rel=1e-4)
    assert pooled(real, "gpus_max_J").mean() == pytest.approx(pooled(draws, "gpus_max_J").mean(), rel=0.1)
    probabilities = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(pooled(real, "work_J"), probabilities),
        np.quantile(pooled(draws, "work_J"), probabilities),
        rtol=0.15,
    )


@has_pai
def test_arrivals_from_the_pai_trace_keep_its_local_rhythm():
    trace = load_job_trace(PAI)
    spec = changed(SPEC, origin_shares={"SG": 1}, count=1800)
    table = load_workload_calibration()
    hours = np.concatenate([sample(trace, spec, SINGAPORE, seed=seed).arrival_s_J // 3600 + 8 for seed in range(40)])
    by_hour = np.bincount((hours % 24).astype(int), minlength=24)
    assert np.corrcoef(by_hour, table.hour_weight_H)[0, 1] > 0.85


# ---------------------------------------------------------------- Poisson streams

EIGHT = Fleet(
    gpu_types=T4, sites=tuple(Site(name=f"s{index}", zone="PL", gpu_type="t4", gpus=16) for index in range(8))
)


def test_poisson_jobs_have_the_stated_rate_and_work():
    spec = PoissonJobs(source="poisson", rate_per_s=0.02, median_work=50_000, sigma=0.4)
    jobs = generate_poisson_jobs(spec, EIGHT, 86400.0, stream(2, "workload"))
    assert len(jobs) == pytest.approx(0.16 * 86400, abs=4 * math.sqrt(0.16 * 86400))
    gaps = np.diff(jobs.arrival_s_J)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)
    np.testing.assert_allclose(np.bincount(jobs.origin_J) / len(jobs), 1 / 8, atol=0.01)
    assert np.median(jobs.work_J) == pytest.approx(50_000, rel=0.02)
    assert np.log(jobs.work_J).std() == pytest.approx(0.4, rel=0.03)
    assert (set(jobs.gpus_min_J), set(jobs.gpus_max_J), set(jobs.preset_site_J)) == ({1}, {8}, {-1})
    assert np.isinf(jobs.slack_s_J).all()


def test_poisson_work_is_at_least_its_minimum_and_an_empty_draw_is_refused():
    spec = PoissonJobs(source="poisson", rate_per_s=0.02, median_work=1, sigma=0.4, work_min=0.9, gpus_min=2)
    jobs = generate_poisson_jobs(spec, EIGHT, 3600.0, stream(2, "workload"))
    assert jobs.work_J.min() == 0.9
    assert set(jobs.gpus_min_J) == {2}
    spec = changed(spec, rate_per_s=1e-12)
    refused(ScenarioError, lambda: generate_poisson_jobs(spec, EIGHT, 1.0, stream(2, "workload")), "rate_per_s")


PAPER = PaperStreamJobs(source="paper-stream")


PAPER_ROWS = {
    True: [
        (1.9450288574348022, 5, 66655.21872780079, 5),
        (2.6892196695146375, 0, 58999.6308286737, 6),
        (4.561194268199827, 1, 75903.94351346852, 0),
    ],
    False: [
        (1.9450288574348022, 5, 66655.21872780079, -1),
        (2.6892196695146375, 0, 42988.37392139405, -1),
        (2.772817195006393, 0, 47660.152194037444, -1),
    ],
}


@pytest.mark.parametrize(("routed", "count"), [(True, 96_748), (False, 96_627)])
def test_the_papers_stream_has_its_jobs(routed, count):
    jobs = paper_stream_jobs(changed(PAPER, routed=routed), EIGHT, 7 * 86400.0)
    assert len(jobs) == count
    first = zip(*columns(jobs, "arrival_s_J", "origin_J", "work_J", "preset_site_J"), strict=True)
    for row, wanted in zip(first, PAPER_ROWS[routed], strict=False):
        assert row == pytest.approx(wanted, rel=1e-12)


def test_the_papers_stream_is_drawn_in_the_papers_order():
    """Plain restatement without a heap: first gaps, then work, site and next gap at the earliest arrival."""
    source = random.Random(7)
    due = [source.expovariate(0.02) for _ in range(8)]
    rows = []
    while min(due) <= 2000:
        now, origin = min(due), due.index(min(due))
        work = max(0.1, source.lognormvariate(math.log(50_000), 0.4))
        rows.append((now, origin, work, source.choice(range(8))))
        due[origin] = now + source.expovariate(0.02)
    jobs = paper_stream_jobs(changed(PAPER, seed=7), EIGHT, 2000.0)
    assert list(zip(*columns(jobs, "arrival_s_J", "origin_J", "work_J", "preset_site_J"), strict=True)) == rows


def test_an_empty_paper_stream_is_refused():
    refused(ScenarioError, lambda: paper_stream_jobs(PAPER, EIGHT, 1e-3), "no job", "window_h")


# ---------------------------------------------------------------- dispatch


def test_build_jobs_goes_by_the_type_of_the_source(tmp_path):
    def build(spec, fleet=FLEET, window_h=48):
        return columns(build_jobs(spec, fleet, START, window_h, 60.0, stream(1, "workload")))

    assert build(SPEC) == columns(generate())
    poisson = PoissonJobs(source="poisson", rate_per_s=0.01, median_work=10, sigma=0)
    assert build(poisson) == columns(generate_poisson_jobs(poisson, FLEET, 48 * 3600.0, stream(1, "workload")))
    assert build(PAPER, EIGHT, 1) == columns(paper_stream_jobs(PAPER, EIGHT, 3600.0))
    write_job_table(generate(), FLEET, tmp_path / "jobs.parquet")
    table = JobTable(source="table", path=tmp_path / "jobs.parquet")
    again = build_jobs(table, FLEET, START, 48, 60.0, stream(1, "workload"))
    names = [name for name in vars(again) if name != "row_J"]  # the rows of the file
    assert columns(again, *names) == columns(generate(), *names)
    refused(DataError, lambda: build(table, window_h=24), "after the window of 24 h", "below 86400 s")
    refused(ScenarioError, lambda: build("poisson"), "str")


def test_the_clock_change_of_a_site_is_followed_by_the_rhythm():
    """On 2022-10-30 at 01:00 UTC Warsaw falls from UTC+2 to UTC+1, and the hours of the rhythm with it."""
    table = load_workload_calibration()
    fleet = Fleet(gpu_types=T4, sites=(Site(name="PL", zone="PL", gpu_type="t4", gpus=500),))
    spec = changed(SPEC, origin_shares={"PL": 1}, count=20_000, demand=100)
    start = datetime(2022, 10, 29, tzinfo=UTC)
    arrivals = np.concatenate([generate(spec, fleet, start, seed=seed).arrival_s_J for seed in range(12)])
    by_hour = np.bincount((arrivals // 3600).astype(int), minlength=48) / len(arrivals)
    local = [start + timedelta(hours=h + (2 if h < 25 else 1)) for h in range(48)]
    weight = np.array([table.hour_weight_H[t.hour] * table.weekday_weight_D[t.weekday()] for t in local])
    unchanged = [start + timedelta(hours=h + 2) for h in range(48)]
    wrong = np.array([table.hour_weight_H[t.hour] * table.weekday_weight_D[t.weekday()] for t in unchanged])
    late = slice(25, 48)

    def distance(weights):
        return np.abs(by_hour / by_hour.sum() - weights / weights.sum())[late].sum()

    assert distance(weight) < 0.7 * distance(wrong)


def test_shaped_jobs_follow_their_load_and_come_at_full_hours():
    scenario = load_scenario("load-shaping")
    jobs = build_jobs(scenario.jobs, scenario.fleet, START, 48, 60.0, np.random.default_rng(3))
    assert (jobs.arrival_s_J % 3600 == 0).all()
    assert (jobs.slack_s_J == 36000).all()
    assert (jobs.work_J == 3600).all()
    constants = load_shape_constants()
    per_class = np.bincount(jobs.class_J, jobs.gpus_min_J) / 48 / 1000
    np.testing.assert_allclose(per_class, constants.class_level, rtol=0.2)
    spread = jobs.gpus_min_J.std() / jobs.gpus_min_J.mean()
    assert 0.09 < spread < 0.12  # rounding to whole GPUs adds a little
    afternoon = jobs.gpus_min_J[jobs.arrival_s_J % 86400 // 3600 == 15].sum()
    night = jobs.gpus_min_J[jobs.arrival_s_J % 86400 // 3600 == 3].sum()
    assert afternoon > 1.2 * night
    with pytest.raises(ScenarioError, match=r"raise jobs.cluster_gpus or lower jobs.mean_gpus"):
        build_jobs(
            scenario.jobs.model_copy(update={"cluster_gpus": 1.0}), scenario.fleet, START, 2, 60.0,
            np.random.default_rng(0),
        )  # fmt: skip
