import re
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.data.jobs.load import load_job_table, load_job_trace, write_job_table
from noonward.errors import DataError
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve, TimeCurve

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
FIXED = ClassProfile(power=PowerCurve(constant_w=80))
SCALING = ClassProfile(power=PowerCurve(constant_w=80), time=TimeCurve(per_clock_s=0.05))


def make_fleet(classes):
    kind = GpuType(idle_w=8, classes=classes)
    return Fleet(
        gpu_types={"t4": kind},
        sites=tuple(Site(name=name, zone=name, gpu_type="t4", gpus=8) for name in ("north", "south")),
    )


FLEET = make_fleet({"tune": FIXED})
TWO_CLASSES = make_fleet({"tune": FIXED, "train": SCALING})
TABLE = "arrival_s,origin,gpus,duration_s,slack_s,data_gb,model_gb,result_gb,site\n"
FIRST = "0,north,2,600,60,1.5,0.25,0.25,\n"


def write(folder, text, name="jobs.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(call, *parts):
    with pytest.raises(DataError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


# ---------------------------------------------------------------- complete tables


def test_a_table_gives_the_jobs_it_states(tmp_path):
    path = write(tmp_path, TABLE + FIRST + "30.5,south,1,7,inf,0,0,0,north\n")
    jobs = load_job_table(path, FLEET)
    assert jobs.arrival_s_J.tolist() == [0, 30.5]
    assert jobs.origin_J.tolist() == [0, 1]
    assert jobs.gpus_min_J.tolist() == jobs.gpus_max_J.tolist() == [2, 1]
    assert jobs.work_J.tolist() == [600, 7]
    assert jobs.slack_s_J.tolist() == [60, np.inf]
    assert jobs.data_gb_J.tolist() == [1.5, 0]
    assert jobs.preset_site_J.tolist() == [-1, 0]


def test_unsorted_arrivals_are_sorted_and_ties_keep_their_order(tmp_path):
    text = "arrival_s,origin,gpus,duration_s\n9,north,1,1\n3,north,1,2\n9,north,1,3\n3,north,1,4\n"
    jobs = load_job_table(write(tmp_path, text), FLEET)
    assert jobs.work_J.tolist() == [2, 4, 1, 3]


def test_absent_optional_columns_have_their_stated_defaults(tmp_path):
    jobs = load_job_table(write(tmp_path, "arrival_s,origin,gpus,work\n1,south,3,5\n"), FLEET)
    assert jobs.slack_s_J.tolist() == [np.inf]
    assert [c[0] for c in (jobs.class_J, jobs.data_gb_J, jobs.model_gb_J, jobs.result_gb_J)] == [0, 0, 0, 0]
    assert jobs.preset_site_J.tolist() == [-1]


def test_columns_map_names_that_differ_and_other_columns_are_ignored(tmp_path):
    path = write(tmp_path, "t,where,user,n,min\n5,south,ada,4,60\n")
    columns = {"arrival_s": "t", "origin": "where", "gpus": "n", "duration_s": "min"}
    jobs = load_job_table(path, FLEET, columns)
    assert (jobs.arrival_s_J[0], jobs.origin_J[0], jobs.gpus_max_J[0], jobs.work_J[0]) == (5, 1, 4, 60)


def test_byte_order_mark_spaces_and_quotes_are_read(tmp_path):
    path = write(tmp_path, '\ufeffarrival_s,origin,gpus,duration_s\n" 5 ","south", 2,1e2\n')
    jobs = load_job_table(path, FLEET)
    assert (jobs.arrival_s_J[0], jobs.origin_J[0], jobs.gpus_max_J[0], jobs.work_J[0]) == (5, 1, 2, 100)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("1,north,0,600,0,0,0,0,", ["line 3", "'gpus'", "'0'", "at least 1"]),
        ("1,north,2.5,600,0,0,0,0,", ["line 3", "'gpus'", "'2.5'", "whole number"]),
        ("1,north,1e30,600,0,0,0,0,", ["'gpus'", "'1e30'", "whole number"]),
        ("1,north,two,600,0,0,0,0,", ["'gpus'", "'two'"]),
        ("1,north,1,-600,0,0,0,0,", ["'duration_s'", "'-600'", "above 0"]),
        ("1,north,1,0,0,0,0,0,", ["'duration_s'", "above 0"]),
        ("1,north,1,inf,0,0,0,0,", ["'duration_s'", "'inf'"]),
        ("1,north,1,,0,0,0,0,", ["'duration_s'", "is empty"]),
        ("-1,north,1,1,0,0,0,0,", ["'arrival_s'", "'-1'", "at least 0"]),
        ("nan,north,1,1,0,0,0,0,", ["'arrival_s'", "'nan'"]),
        ("inf,north,1,1,0,0,0,0,", ["'arrival_s'", "'inf'"]),
        ("1,nort,1,1,0,0,0,0,", ["'origin'", "'nort'", "did you mean 'north'?"]),
        ("1,,1,1,0,0,0,0,", ["'origin'", "is empty"]),
        ("1,north,1,1,-5,0,0,0,", ["'slack_s'", "'-5'", "inf"]),
        ("1,north,1,1,0,-2,0,0,", ["'data_gb'", "'-2'", "GB"]),
        ("1,north,1,1,0,0,inf,0,", ["'model_gb'", "'inf'", "GB"]),
        ("1,north,1,1,0,0,0,x,", ["'result_gb'", "'x'", "GB"]),
        ("1,north,1,1,0,0,0,0,sout", ["'site'", "'sout'", "did you mean 'south'?"]),
    ],
)
def test_a_wrong_value_is_named_with_file_row_column_value_and_remedy(tmp_path, row, parts):
    path = write(tmp_path, TABLE + FIRST + row + "\n")
    refused(lambda: load_job_table(path, FLEET), "jobs.csv, line 3", *parts)


def test_a_parquet_table_names_rows_without_lines(tmp_path):
    path = tmp_path / "jobs.parquet"
    pl.DataFrame({"arrival_s": [0.0, None], "origin": ["north"] * 2, "gpus": [1, 1], "work": [1.0, 1.0]}).write_parquet(
        path
    )
    refused(lambda: load_job_table(path, FLEET), "jobs.parquet, row 2, column 'arrival_s': the value is empty; ")


def test_a_column_of_another_type_is_refused(tmp_path):
    path = tmp_path / "jobs.parquet"
    frame = pl.DataFrame({"arrival_s": ["2022-01-01"], "origin": ["north"], "gpus": [1], "work": [1.0]})
    frame.with_columns(pl.col("arrival_s").str.to_datetime()).write_parquet(path)
    refused(lambda: load_job_table(path, FLEET), "'arrival_s'", "Datetime", "seconds")


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ("arival_s,origin,gpus,work", ["no column 'arrival_s'", "did you mean 'arival_s'?"]),
        ("arrival_s,gpus,work", ["no column 'origin'"]),
        ("arrival_s,origin,work", ["no column 'gpus'"]),
        ("arrival_s,origin,gpus_min,work", ["no column 'gpus_max'"]),
        ("arrival_s,origin,gpus", ["no column 'duration_s'"]),
        ("arrival_s,origin,gpus,work,duration_s", ["both 'duration_s' and 'work'"]),
        ("arrival_s,origin,gpus,gpus_max,work", ["both 'gpus' and 'gpus_max'"]),
        ("arrival_s,origin,gpus,work,slak_s", ["unknown column 'slak_s'", "did you mean 'slack_s'?"]),
        ("arrival_s,origin,gpus,work,work", ["'work' twice"]),
    ],
)
def test_a_wrong_set_of_columns_is_refused(tmp_path, header, parts):
    row = ",".join("north" if name == "origin" else "1" for name in header.split(","))
    path = write(tmp_path, f"{header}\n{row}\n")
    refused(lambda: load_job_table(path, FLEET), "jobs.csv", *parts)


def test_several_classes_need_the_column_and_a_duration_needs_a_class_of_fixed_duration(tmp_path):
    head = "arrival_s,origin,gpus"
    path = write(tmp_path, f"{head},work\n0,north,1,1\n")
    refused(lambda: load_job_table(path, TWO_CLASSES), "no column 'class'")
    path = write(tmp_path, f"{head},class,duration_s\n0,north,1,tune,1\n0,north,1,train,1\n")
    refused(lambda: load_job_table(path, TWO_CLASSES), "line 3", "'train'", "'work'")
    path = write(tmp_path, f"{head},class,work\n0,north,1,train,1\n0,north,1,tune,2\n")
    assert load_job_table(path, TWO_CLASSES).class_J.tolist() == [1, 0]


def test_gangs_may_be_ranges_in_order(tmp_path):
    head = "arrival_s,origin,gpus_min,gpus_max,work\n"
    jobs = load_job_table(write(tmp_path, head + "0,north,1,8,1\n"), FLEET)
    assert (jobs.gpus_min_J[0], jobs.gpus_max_J[0]) == (1, 8)
    path = write(tmp_path, head + "0,north,4,2,1\n")
    refused(lambda: load_job_table(path, FLEET), "line 2", "'gpus_max'", "'2'", "gpus_min")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    refused(lambda: load_job_table(tmp_path / "none.csv", FLEET), "none.csv", "no file")
    refused(lambda: load_job_table(write(tmp_path, "x", "jobs.xlsx"), FLEET), "'.xlsx'", ".csv", ".parquet")
    refused(lambda: load_job_table(write(tmp_path, ""), FLEET), "jobs.csv")
    refused(lambda: load_job_table(write(tmp_path, TABLE), FLEET), "no row of data")
    refused(lambda: load_job_table(write(tmp_path, "no parquet", "a.parquet"), FLEET), "a.parquet", "cannot be read")
    refused(lambda: load_job_table(write(tmp_path, TABLE + FIRST[:-1] + ",9,9,9\n"), FLEET), "cannot be read")
    path = write(tmp_path, TABLE + FIRST)
    refused(lambda: load_job_table(path, FLEET, {"gpu": "gpus"}), "'gpu'", "did you mean 'gpus'?")
    refused(lambda: load_job_table(path, FLEET, {"site": "where"}), "no column 'where'")


@st.composite
def job_tables(draw):
    count = draw(st.integers(1, 6))

    def column(element):
        return np.array(draw(st.lists(element, min_size=count, max_size=count)))

    size = st.floats(0, 1e6)
    gpus_min = column(st.integers(1, 8))
    return Jobs.build(
        arrival_s=column(size),
        work=column(st.floats(1e-9, 1e9)),
        origin=column(st.integers(0, 1)),
        class_=column(st.integers(0, 1)),
        gpus_min=gpus_min,
        gpus_max=gpus_min + column(st.integers(0, 8)),
        slack_s=column(st.one_of(size, st.just(np.inf))),
        data_gb=column(size),
        model_gb=column(size),
        result_gb=column(size),
        preset_site=column(st.integers(-1, 1)),
    )


@settings(max_examples=40, deadline=None)
@given(jobs=job_tables(), suffix=st.sampled_from(["csv", "parquet"]))
def test_a_written_table_is_read_back_bit_for_bit(jobs, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"jobs.{suffix}"
        write_job_table(jobs, TWO_CLASSES, path)
        again = load_job_table(path, TWO_CLASSES)
    assert again.row_J.tolist() == list(range(len(jobs)))
    for name in set(vars(jobs)) - {"row_J"}:
        np.testing.assert_array_equal(getattr(again, name), getattr(jobs, name), err_msg=name)


def test_writing_another_extension_is_refused(tmp_path):
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.ones(1))
    refused(lambda: write_job_table(jobs, FLEET, tmp_path / "jobs.json"), "'.json'", ".csv")


# ---------------------------------------------------------------- traces


def test_a_trace_is_read_and_sorted(tmp_path):
    path = write(tmp_path, "submit_time_s,duration_s,num_gpus\n90,5,1\n10,7,4\n")
    trace = load_job_trace(path)
    assert len(trace) == 2
    assert trace.submit_s_J.tolist() == [10, 90]
    assert trace.duration_s_J.tolist() == [7, 5]
    assert trace.gpus_J.tolist() == [4, 1]
    assert trace.local_s_J.tolist() == [10, 90]


def test_the_local_clock_is_inferred_from_hours_and_weekdays(tmp_path):
    offset = 3 * 86400 + 22 * 3600 + 1234
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 30 * 86400, 4000))
    local = submit + offset
    path = tmp_path / "trace.parquet"
    pl.DataFrame(
        {
            "when": submit,
            "duration_s": np.ones(len(submit)),
            "num_gpus": np.ones(len(submit), dtype=int),
            "est_local_hour": local // 3600 % 24,
            "est_weekday": local // 86400 % 7,
        }
    ).write_parquet(path)
    trace = load_job_trace(path, {"submit_s": "when"})
    assert trace.clock_offset_s == pytest.approx(offset, abs=10)
    np.testing.assert_array_equal(trace.local_s_J // 3600 % 24, local // 3600 % 24)
    np.testing.assert_array_equal(trace.local_s_J // 86400 % 7, local // 86400 % 7)


def test_local_hours_that_no_clock_fits_are_refused(tmp_path):
    head = "submit_time_s,duration_s,num_gpus,est_local_hour,est_weekday\n"
    path = write(tmp_path, head + "0,1,1,5,0\n60,1,1,9,0\n", "trace.csv")
    refused(lambda: load_job_trace(path), "line 2", "'est_local_hour'", "no one local clock")
    path = write(tmp_path, head + "0,1,1,24,0\n", "trace.csv")
    refused(lambda: load_job_trace(path), "'est_local_hour'", "'24'", "0 to 23")
    path = write(tmp_path, head + "0,1,1,0,7\n", "trace.csv")
    refused(lambda: load_job_trace(path), "'est_weekday'", "'7'", "Monday")


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("0,-3,1", ["'duration_s'", "'-3'", "above 0"]),
        ("0,3,0", ["'num_gpus'", "'0'", "at least 1"]),
        ("0,3,0.5", ["'num_gpus'", "'0.5'", "at least 1"]),
        (",3,1", ["'submit_time_s'", "is empty"]),
    ],
)
def test_a_wrong_value_of_a_trace_is_refused(tmp_path, row, parts):
    path = write(tmp_path, f"submit_time_s,duration_s,num_gpus\n0,1,1\n{row}\n", "trace.csv")
    refused(lambda: load_job_trace(path), "trace.csv, line 3", *parts)


def test_a_trace_without_a_needed_column_is_refused(tmp_path):
    path = write(tmp_path, "submit_time,duration_s,num_gpus\n0,1,1\n", "trace.csv")
    with pytest.raises(DataError, match=re.escape("did you mean 'submit_time'?")):
        load_job_trace(path)


@pytest.mark.skipif(not (SHARED / "data/jobs_pai.parquet").exists(), reason="the PAI trace is not on this machine")
def test_the_pai_trace_is_read_with_its_inferred_clock():
    path = SHARED / "data/jobs_pai.parquet"
    trace = load_job_trace(path)
    assert len(trace) == 70182
    assert trace.clock_offset_s == 86400 + 4140
    hours = pl.read_parquet(path).sort("submit_time_s", maintain_order=True)["est_local_hour"].to_numpy()
    np.testing.assert_array_equal(trace.local_s_J // 3600 % 24, hours)
