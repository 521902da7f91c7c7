"""The fleet: what is refused, and the arrays it makes."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from noonward.model.cluster.fleet import Fleet


def kind(**changes):
    return {"idle_w": 10, "clocks": [0.5, 1.0], "classes": {"c": {"power": {"linear_w": 100}}}} | changes


def fleet(*, types=None, sites=None, **changes):
    types = {"A": kind()} if types is None else types
    sites = [site("a"), site("b")] if sites is None else sites
    return Fleet.model_validate({"gpu_types": types, "sites": sites} | changes)


def site(name, **changes):
    return {"name": name, "zone": "Z", "gpu_type": "A", "gpus": 2} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sites": [site("a"), site("a")]}, "the site name 'a' stands twice"),
        ({"ingress": [{"name": "i"}, {"name": "i"}]}, "the ingress name 'i' stands twice"),
        ({"ingress": [{"name": "i", "home": "aa"}]}, "ingress 'i' has the unknown home 'aa'; did you mean 'a'"),
        ({"sites": [site("a", gpu_type="B")]}, "site 'a' has the unknown GPU type 'B'; known: A"),
        ({"types": {"A": kind(clocks=[1.0, 0.5])}}, r"GPU type 'A' has clocks \[1.0, 0.5\]; they must ascend"),
        ({"types": {"A": kind(clocks=[0.5, 0.5])}}, "be distinct"),
        ({"types": {"A": kind(clocks=[0.5, 1.1])}}, "at most 1"),
        ({"free_gpus": "sleep"}, "GPU type 'A' has no sleep_w, but free GPUs sleep; give sleep_w in W"),
        (
            {"types": {"A": kind(), "B": kind(classes={"d": {"power": {}}})}},
            r"GPU type 'B' has profiles of the classes \['d'\], others of \['c'\]",
        ),
        ({"sites": []}, "at least 1 item"),
        ({"ranges": {"d": ["a"]}}, "ranges name the unknown class 'd'; known: c"),
        ({"ranges": {"c": []}}, "class 'c' has an empty range; name the sites it may run at"),
        ({"ranges": {"c": ["aa"]}}, "the range of class 'c' names the unknown site 'aa'; did you mean 'a'"),
        ({"ranges": {"c": ["a", "a"]}}, "the range of class 'c' names a site twice"),
    ],
)
def test_a_fleet_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        fleet(**changes)


def test_classes_may_stand_in_another_order():
    one, two = {"power": {"linear_w": 1}}, {"power": {"linear_w": 2}}
    types = {"A": kind(classes={"x": one, "y": two}), "B": kind(classes={"y": two, "x": one})}
    tables = fleet(types=types, sites=[site("a"), site("b", gpu_type="B")]).tables(1)
    assert tables.power_w_SCGF[:, :, 1, 1].tolist() == [[1.0, 2.0], [1.0, 2.0]]


def test_sites_are_their_own_ingress_points_unless_others_are_named():
    assert [(point.name, point.home) for point in fleet().ingress_points] == [("a", "a"), ("b", "b")]
    named = fleet(ingress=[{"name": "region"}, {"name": "east", "home": "b"}])
    assert named.tables(1).home_I.tolist() == [-1, 1]


def test_a_site_is_found_by_name():
    assert fleet().site_index("b") == 1
    with pytest.raises(ValueError, match="unknown site 'bb'; did you mean 'b'"):
        fleet().site_index("bb")


def test_free_gpus_draw_idle_or_sleep_power():
    types = {"A": kind(sleep_w=3)}
    assert fleet(types=types).tables(1).free_w_S.tolist() == [10.0, 10.0]
    assert fleet(types=types, free_gpus="sleep").tables(1).free_w_S.tolist() == [3.0, 3.0]


def test_tables_leave_unknown_what_a_site_does_not_have():
    types = {"A": kind(), "B": kind(clocks=[1.0])}
    tables = fleet(types=types, sites=[site("a"), site("b", gpu_type="B", gpus=5, pue=1.5)]).tables(2)
    assert tables.gpus_S.tolist() == [2, 5]
    assert tables.pue_S.tolist() == [1.0, 1.5]
    assert tables.levels_S.tolist() == [2, 1]
    assert np.array_equal(tables.clock_SF, [[0.5, 1.0], [1.0, math.nan]], equal_nan=True)
    assert np.isnan(tables.power_w_SCGF[:, :, 0]).all()
    assert tables.power_w_SCGF[0, 0, 1:].tolist() == [[50.0, 100.0], [100.0, 200.0]]
    assert tables.power_w_SCGF[1, 0, 2, 0] == 200.0
    assert np.isnan(tables.seconds_per_unit_SCGF[1, 0, 1, 1])


def test_a_class_may_run_anywhere_unless_its_range_is_named():
    classes = {"c": {"power": {}}, "d": {"power": {}}}
    made = fleet(types={"A": kind(classes=classes)}, ranges={"d": ["b"]})
    assert made.tables(1).range_CS.tolist() == [[1, 1], [0, 1]]
