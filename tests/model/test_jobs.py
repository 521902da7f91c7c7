"""The table of jobs: what is refused, in which words, and how columns are built."""

import re
from dataclasses import fields

import numpy as np
import pytest

from noonward.errors import DataError
from noonward.model.cluster.jobs import Jobs


def columns(**changes):
    """The columns of two good jobs, some changed."""
    good = {field.name: np.zeros(2, np.int64) for field in fields(Jobs)}
    good |= {name: np.zeros(2) for name in good if name.split("_")[-2] in ("s", "gb") or name == "work_J"}
    good |= {"gpus_min_J": np.array([1, 1]), "gpus_max_J": np.array([1, 1]), "work_J": np.array([60.0, 60.0])}
    return good | {name: np.asarray(value) for name, value in changes.items()}


def test_the_good_columns_are_good():
    assert len(Jobs(**columns())) == 2


@pytest.mark.parametrize(
    ("column", "values", "row", "shown", "allowed"),
    [
        ("arrival_s_J", [-1.0, 0.0], 0, "-1.0", "at least 0 s"),
        ("arrival_s_J", [0.0, np.inf], 1, "inf", "finite"),
        ("arrival_s_J", [5.0, 4.0], 1, "4.0", "sorted: at least the arrival of the row before"),
        ("origin_J", [0, -1], 1, "-1", "an ingress index of at least 0"),
        ("class_J", [-2, 0], 0, "-2", "a class index of at least 0"),
        ("gpus_min_J", [1, 0], 1, "0", "at least 1 GPU"),
        ("gpus_max_J", [0, 1], 0, "0", "at least gpus_min"),
        ("work_J", [0.0, 1.0], 0, "0.0", "above 0 and finite"),
        ("work_J", [1.0, np.inf], 1, "inf", "above 0 and finite"),
        ("slack_s_J", [0.0, -0.5], 1, "-0.5", "at least 0 s"),
        ("data_gb_J", [-1.0, 0.0], 0, "-1.0", "at least 0 GB and finite"),
        ("model_gb_J", [0.0, np.inf], 1, "inf", "at least 0 GB and finite"),
        ("result_gb_J", [0.0, -2.0], 1, "-2.0", "at least 0 GB and finite"),
        ("preset_site_J", [-2, 0], 0, "-2", "a site index, or -1 for none"),
    ],
)
def test_a_value_outside_its_range_is_refused_by_column_row_value_and_range(column, values, row, shown, allowed):
    message = f"column {column}, row {row}: value {shown} is not allowed; it must be {allowed}"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Jobs(**columns(**{column: values}))


@pytest.mark.parametrize("column", ["arrival_s_J", "work_J", "slack_s_J", "data_gb_J", "model_gb_J", "result_gb_J"])
def test_a_missing_number_is_refused(column):
    with pytest.raises(DataError, match=rf"column {column}, row 1: value is missing \(NaN\)"):
        Jobs(**columns(**{column: [60.0, np.nan]}))


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(DataError, match=r"column origin_J has shape \(3,\); expected \(2,\)"):
        Jobs(**columns(origin_J=[0, 0, 0]))


def test_no_job_is_refused():
    with pytest.raises(DataError, match="there is no job"):
        Jobs.build(arrival_s=np.zeros(0), work=np.zeros(0))


def test_infinite_slack_equal_arrivals_and_a_wide_gang_are_legal():
    jobs = Jobs(**columns(slack_s_J=[np.inf, 0.0], arrival_s_J=[3.0, 3.0], gpus_max_J=[9, 1]))
    assert jobs.slack_s_J[0] == np.inf


def test_build_sorts_every_column_by_arrival_and_keeps_ties_in_order():
    jobs = Jobs.build(arrival_s=np.array([9.0, 1.0, 9.0]), work=np.array([1.0, 2.0, 3.0]), origin=np.array([4, 5, 6]))
    assert jobs.arrival_s_J.tolist() == [1.0, 9.0, 9.0]
    assert jobs.work_J.tolist() == [2.0, 1.0, 3.0]
    assert jobs.origin_J.tolist() == [5, 4, 6]


def test_build_spreads_scalars_and_a_fixed_gang():
    jobs = Jobs.build(arrival_s=np.arange(3.0), work=np.ones(3), gpus=4, result_gb=0.5)
    assert jobs.gpus_min_J.tolist() == jobs.gpus_max_J.tolist() == [4, 4, 4]
    assert jobs.result_gb_J.tolist() == [0.5, 0.5, 0.5]
    assert jobs.slack_s_J.tolist() == [np.inf] * 3
    assert jobs.preset_site_J.tolist() == [-1] * 3


def test_build_takes_a_range_of_gangs():
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.ones(1), gpus_min=2, gpus_max=8)
    assert (jobs.gpus_min_J[0], jobs.gpus_max_J[0]) == (2, 8)
