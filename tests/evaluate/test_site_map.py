"""The map of sites: where things lie, what overlaps, what has no place, and what the section says."""

import dataclasses
import itertools
import re

import numpy as np
import polars as pl
import pytest

from noonward.data.local_time import zone_timezones
from noonward.data.places import site_place, zone_places
from noonward.data.scenarios.load import load_scenario
from noonward.data.site_map import Flow, Spot, _rings, site_map
from noonward.evaluate.report.site_section import site_figures, site_section
from noonward.model.cluster.fleet import Fleet, Site


def spot(name, lat, lon, size=1.0):
    return Spot(name=name, lat=lat, lon=lon, size=size, color="#fff", tip=name)


def circles(svg):
    return [tuple(map(float, each)) for each in re.findall(r'<circle cx="([\d.-]+)" cy="([\d.-]+)" r="([\d.]+)"', svg)]


def test_north_is_up_and_east_is_right():
    berlin, rome, london = circles(site_map([spot("b", 52.5, 13.4), spot("r", 41.9, 12.5), spot("l", 51.5, -0.1)]))
    assert berlin[1] < rome[1]
    assert london[0] < rome[0] < berlin[0]


def test_degrees_have_the_scale_of_the_middle_of_the_map():
    a, b, c = circles(site_map([spot("a", 50.0, 0.0), spot("b", 50.0, 10.0), spot("c", 40.0, 0.0)]))
    assert (b[0] - a[0]) / (c[1] - a[1]) == pytest.approx(np.cos(np.radians(45.0)), abs=0.01)


@pytest.mark.parametrize("places", [[(52, 13)], [(1, 104), (44, -79), (-35, 139)], [(-37, 175), (21, -158)]])
def test_every_site_lies_on_the_map(places):
    svg = site_map([spot(str(n), *place) for n, place in enumerate(places)])
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    for x, y, radius in circles(svg):
        assert radius <= x < width
        assert radius <= y <= height - radius
    assert width * 0.3 < height < width * 0.7


def test_sites_at_one_place_stand_beside_each_other():
    found = circles(site_map([spot("a", 52.0, 13.0), spot("b", 52.0, 13.0), spot("c", 40.0, 0.0)]))
    assert np.hypot(found[0][0] - found[1][0], found[0][1] - found[1][1]) > found[0][2] + 10


def test_a_name_stands_where_no_arrow_ends():
    spots = [spot("north", 45.0, -80.0), spot("south", 0.0, 100.0)]
    alone, pointed_at = (
        float(re.search(r'<text x="([\d.-]+)"[^>]*>north<', site_map(spots, flows)).group(1))
        for flows in ((), (Flow(start=1, end=0, share=1.0, tip="work"),))
    )
    x = circles(site_map(spots))[0][0]
    assert pointed_at < x < alone  # the arrow comes from the east, where the name would stand


def test_names_overlap_neither_each_other_nor_points():
    rng = np.random.default_rng(3)
    spots = [spot(f"site-{n}", 40 + 15 * rng.random(), 25 * rng.random(), 0.4) for n in range(24)]
    svg = site_map(spots)
    boxes = [
        (float(x), float(y) - 13, float(x) + 7.0 * len(name), float(y))
        for x, y, name in re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]+)</text>', svg)
    ]
    assert len(boxes) > 15
    for n, a in enumerate(boxes):
        for b in boxes[n + 1 :]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_coasts_are_whole_and_small():
    points = [point for ring in _rings() for point in ring]
    assert 2000 < len(points) < 4000
    longest = max(abs(a[0] - b[0]) for ring in _rings() for a, b in itertools.pairwise(ring))
    assert longest < 40  # no line across the map from a ring over the 180th meridian
    assert len(site_map([spot("a", 10.0, -120.0), spot("b", 0.0, 140.0)])) < 30_000


def test_arrows_end_short_of_their_site():
    svg = site_map([spot("a", 50.0, 0.0), spot("b", 50.0, 20.0)], [Flow(start=0, end=1, share=1.0, tip="a to b")])
    end_x = float(re.search(r"Q[\d. -]+ ([\d.]+) [\d.]+\"", svg)[1])
    a, b = circles(svg)
    assert a[0] < end_x < b[0] - b[2]


def test_every_zone_has_a_place_in_its_time_zone_part_of_the_world():
    assert set(zone_places()) == set(zone_timezones())
    for zone, (lat, lon) in zone_places().items():
        part = zone_timezones()[zone].split("/")[0]
        assert -55 < lat < 72
        if part == "Europe":
            assert -10 <= lon <= 42
            assert lat > 34
        elif part == "Australia":
            assert lat < -10 < 110 < lon
        elif part == "America":
            assert lon < -34


def test_a_site_may_state_its_own_place():
    told = Site(name="a", zone="DE", gpu_type="x", gpus=1, lat=48.1, lon=11.6)
    assert site_place(told) == (48.1, 11.6)
    assert site_place(Site(name="a", zone="DE", gpu_type="x", gpus=1)) == zone_places()["DE"]
    assert site_place(Site(name="a", zone="nowhere", gpu_type="x", gpus=1)) is None
    with pytest.raises(ValueError, match="give both, or neither"):
        Site(name="a", zone="DE", gpu_type="x", gpus=1, lat=48.1)
    with pytest.raises(ValueError, match="less than or equal to 90"):
        Site(name="a", zone="DE", gpu_type="x", gpus=1, lat=91, lon=0)


def test_places_change_no_digest_unless_they_are_stated():
    scenario = load_scenario("tiny")
    assert "lat" not in scenario.fleet.model_dump_json()
    sites = [site.model_copy(update={"lat": 1.0, "lon": 2.0}) for site in scenario.fleet.sites]
    placed = scenario.model_copy(update={"fleet": scenario.fleet.model_copy(update={"sites": tuple(sites)})})
    assert Fleet.model_validate(placed.fleet.model_dump()).sites[0].lat == 1.0
    assert placed.digest != scenario.digest


def test_figures_of_sites_are_those_of_the_records(money):
    found = site_figures(money, "random")
    hours = pl.concat([record.hours.with_columns(pl.col("site").cast(pl.String)) for record in money.records["random"]])
    for s, site in enumerate(money.scenario.fleet.sites):
        here = hours.filter(pl.col("site") == site.name)
        assert found.best_S[s] == pytest.approx(here["busy_gpu_hours"].sum() / 2)
    assert found.flow_IS.sum() == pytest.approx(found.best_S.sum(), rel=1e-9)
    assert found.flow_IS.sum() == pytest.approx(money.mean("random", "gpu_hours").value, rel=1e-6)


def test_sites_without_a_place_are_listed_beneath(money):
    sites = [money.scenario.fleet.sites[0], money.scenario.fleet.sites[1].model_copy(update={"zone": "nowhere"})]
    fleet = money.scenario.fleet.model_copy(update={"sites": tuple(sites)})
    found = dataclasses.replace(money, scenario=money.scenario.model_copy(update={"fleet": fleet}))
    html = site_section(found, "random")
    assert "Not on the map: south." in html
    assert html.count("<circle") == 2  # one site, on a wide and on a narrow map
    assert html.count("<tr>") == 3


def test_a_fleet_without_any_place_has_its_table(money):
    sites = tuple(site.model_copy(update={"zone": "nowhere"}) for site in money.scenario.fleet.sites)
    fleet = money.scenario.fleet.model_copy(update={"sites": sites})
    found = dataclasses.replace(money, scenario=money.scenario.model_copy(update={"fleet": fleet}))
    assert "<svg" not in site_section(found, "random")
